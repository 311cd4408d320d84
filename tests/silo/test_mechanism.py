"""The mechanism is a pure function: the exact answer and the noise that it is given, whatever the question."""

from typing import Any

import numpy as np
import pytest

from ringfence.protocol.schedule import task
from ringfence.silo.channels.own_noise import grid_exponent
from ringfence.silo.mechanism import Draws, release
from ringfence.silo.questions import compute
from ringfence.silo.records import Records
from tests.support import MakePlan, about_moments, own_terms


def test_nobody_taking_part_releases_the_noise_alone(plan_of: MakePlan, records: Records) -> None:
    plan = plan_of(sampling="poisson")
    noise = 2.0 ** grid_exponent(own_terms(plan).sigma) * np.arange(4.0)
    work = task(plan, plan.silos[0], 0, 0)
    vector = release(plan, work, np.zeros(4), records, Draws(np.zeros(40), noise))
    assert np.array_equal(vector, noise)


@pytest.mark.parametrize("about", [lambda plan: plan, about_moments], ids=["curvature", "moments"])
def test_every_question_s_answer_is_released_with_the_noise_given_and_the_same_draws_give_the_same_bytes(
    plan_of: MakePlan, records: Records, about: Any
) -> None:
    plan = about(plan_of(survey=True, algorithm="accelerated"))
    random = np.random.default_rng(1)
    for round in (0, 1):
        work = task(plan, plan.silos[0], round, 0)
        grid = 2.0 ** grid_exponent(work.sigma)
        noise = grid * np.round(work.sigma / grid * random.normal(size=work.length))
        draws, weights = Draws(np.ones(40), noise), random.normal(size=4)
        answer = release(plan, work, weights, records, draws)
        assert answer.tobytes() == release(plan, work, weights, records, draws).tobytes()
        question = work.stage.question
        exact = compute(question, plan, weights, records, np.ones(40), 40)
        assert exact.shape == (work.length,)
        np.testing.assert_allclose(answer - noise, exact, rtol=0, atol=grid)
