"""Moments that a plan of before asks for are found, and move no step."""

import numpy as np

from ringfence.protocol.algorithms import Accelerated
from ringfence.protocol.questions import Moments
from ringfence.server.rounds import run
from tests.server.quadratics import make_plan, update
from tests.server.surveyed import GRADIENTS, SHARES, surveyed, surveying


def test_moments_say_nothing_of_the_smoothness_and_leave_the_steps_as_they_are() -> None:
    algorithm = Accelerated(smoothness=2.0)
    ask = surveying(lambda request, name: update(request, name, np.full(6, 0.1)), GRADIENTS)
    told = run(surveyed(Moments(), rounds=6, algorithm=algorithm), ask)
    plain = run(make_plan(SHARES, rounds=6, algorithm=algorithm), GRADIENTS)
    assert told.weights.tobytes() == plain.weights.tobytes()
    np.testing.assert_allclose(told.findings["moments"].statistic, np.full(6, 0.1))
