"""A session is a pure function of the answers: whoever receives the same ones holds the same model, bit for bit."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from ringfence import protocol
from ringfence.server.rounds import Session, run
from tests.server.quadratics import make_plan, refuse, update

NAMES = ("s0", "s1", "s2")
PLANS: dict[str, dict[str, Any]] = {
    "minibatch-sgd": {"algorithm": protocol.MinibatchSGD(step=0.3, momentum=0.5, growth=1.1)},
    "accelerated": {"algorithm": protocol.Accelerated(smoothness=3.0, penalty=0.1, average="tail")},
    "multi-stage": {
        "algorithm": protocol.MultiStage(
            smoothness=3.0, stages=(protocol.Restart(rounds=5, upsilon=0.0), protocol.Restart(rounds=7, upsilon=9.0))
        ),
        "ridge": 0.1,
    },
    "localized": {
        "algorithm": protocol.Localized(
            smoothness=3.0, phases=(protocol.Phase(rounds=8, penalty=0.3), protocol.Phase(rounds=4, penalty=4.0))
        )
    },
}


def plan_of(kind: str, **changes: Any) -> protocol.Plan:
    domain = {"name": "ball", "radius": 2.0}
    shape = {"rounds": 12, "records": 64, "survey": protocol.Curvature(), "survey_sigmas": [0.1] * 3, "domain": domain}
    return make_plan([1 / 3] * 3, **{**shape, **PLANS[kind], **changes})


def answers(request: protocol.RoundRequest) -> dict[str, protocol.Answer]:
    """Give noisy answers, a refusal now and then, and in some rounds none; the same for the same request."""
    random = np.random.default_rng([request.round, 7])
    if request.round in (3, 8):
        return {}
    if request.round == 0:
        return {name: update(request, name, random.uniform(0, 1, 1)) for name in NAMES}
    given: dict[str, protocol.Answer] = {
        name: update(request, name, protocol.unpack(request.argument) + random.normal(size=2)) for name in NAMES
    }
    if request.round % 4 == 1:
        given["s1"] = refuse(request, "s1", protocol.RefusalReason.UNAVAILABLE)
    return given


@pytest.mark.parametrize("participation", [{}, {"silos": 2}, {"probability": 0.6}], ids=str)
@pytest.mark.parametrize("kind", PLANS)
def test_two_sessions_that_receive_the_same_answers_are_equal_bit_for_bit(
    kind: str, participation: dict[str, object]
) -> None:
    """However often one of them is looked at: `asked` and `request` neither draw anew nor move on within a round."""
    plan = plan_of(kind, participation=participation)
    here, there = (Session(plan, np.random.default_rng(5)) for _ in range(2))
    chosen = set()
    while not here.finished:
        for _ in range(3):
            assert (here.round, here.asked()) == (there.round, there.asked())
            assert here.request().to_bytes() == there.request().to_bytes()
        chosen.add(tuple(here.asked()))
        given = answers(here.request())
        shuffled: Mapping[str, protocol.Answer] = {name: given[name] for name in reversed(given)}
        assert here.receive(given) == there.receive(shuffled)
    assert there.finished
    assert len(chosen) > 1 or not participation, "which silos are asked is drawn anew"
    one, other = here.result(), there.result()
    assert one.weights.tobytes() == other.weights.tobytes()
    assert one.history == other.history
    assert one.findings.keys() == other.findings.keys() == {"curvature"}
    mine, theirs = one.findings["curvature"], other.findings["curvature"]
    assert mine.statistic.tobytes() == theirs.statistic.tobytes()
    assert (mine.noise, mine.weight) == (theirs.noise, theirs.weight)


@pytest.mark.parametrize("kind", PLANS)
def test_a_run_is_a_session_whose_answers_are_asked_for(kind: str) -> None:
    plan = plan_of(kind, participation={"silos": 2})
    session = Session(plan, np.random.default_rng(5))
    while not session.finished:
        session.receive(answers(session.request()))
    trained = run(plan, lambda request, asked: answers(request), choices=np.random.default_rng(5))
    assert trained.weights.tobytes() == session.result().weights.tobytes()
    assert trained.history == session.result().history
