"""A session is a pure function of the answers: whoever receives the same ones holds the same model, bit for bit."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from ringfence.protocol import (
    Accelerated,
    Answer,
    Curvature,
    Localized,
    MinibatchSGD,
    MultiStage,
    Phase,
    Plan,
    RefusalReason,
    Restart,
    RoundRequest,
    unpack,
)
from ringfence.server.rounds import RoundOutcome, Session, run
from tests.server.quadratics import make_plan, quadratics, refuse, update

NAMES = ("s0", "s1", "s2")
PLANS: dict[str, dict[str, Any]] = {
    "minibatch-sgd": {"algorithm": MinibatchSGD(step=0.3, momentum=0.5, growth=1.1)},
    "accelerated": {"algorithm": Accelerated(smoothness=3.0, penalty=0.1, average="tail")},
    "multi-stage": {
        "algorithm": MultiStage(
            smoothness=3.0, stages=(Restart(rounds=5, upsilon=0.0), Restart(rounds=7, upsilon=9.0))
        ),
        "ridge": 0.1,
    },
    "localized": {
        "algorithm": Localized(smoothness=3.0, phases=(Phase(rounds=8, penalty=0.3), Phase(rounds=4, penalty=4.0))),
    },
}


def plan_of(kind: str, **changes: Any) -> Plan:
    domain = {"name": "ball", "radius": 2.0}
    shape = {"rounds": 12, "records": 64, "survey": Curvature(), "survey_sigmas": [0.1] * 3, "domain": domain}
    return make_plan([1 / 3] * 3, **{**shape, **PLANS[kind], **changes})


def answers(request: RoundRequest) -> dict[str, Answer]:
    """Give noisy answers, a refusal now and then, and in some rounds none; the same for the same request."""
    random = np.random.default_rng([request.round, 7])
    if request.round in (3, 8):
        return {}
    if request.round == 0:
        return {name: update(request, name, random.uniform(0, 1, 1)) for name in NAMES}
    given: dict[str, Answer] = {
        name: update(request, name, unpack(request.argument) + random.normal(size=2)) for name in NAMES
    }
    if request.round % 4 == 1:
        given["s1"] = refuse(request, "s1", RefusalReason.UNAVAILABLE)
    return given


def assert_alike(one: Session, other: Session) -> None:
    assert (one.round, one.finished, one.asked()) == (other.round, other.finished, other.asked())
    if not one.finished:
        assert one.request().to_bytes() == other.request().to_bytes()


@pytest.mark.parametrize("participation", [{}, {"silos": 2}, {"probability": 0.6}], ids=str)
@pytest.mark.parametrize("kind", PLANS)
def test_two_sessions_that_receive_the_same_answers_are_equal_bit_for_bit(
    kind: str, participation: dict[str, object]
) -> None:
    plan = plan_of(kind, participation=participation)
    here, there = (Session(plan, np.random.default_rng(5)) for _ in range(2))
    while not here.finished:
        assert_alike(here, there)
        given = answers(here.request())
        shuffled: Mapping[str, Answer] = {name: given[name] for name in reversed(given)}
        outcomes: list[RoundOutcome] = [here.receive(given), there.receive(shuffled)]
        assert outcomes[0] == outcomes[1]
    assert there.finished
    one, other = here.result(), there.result()
    assert one.weights.tobytes() == other.weights.tobytes()
    assert one.history == other.history
    assert one.findings.keys() == other.findings.keys() == {"curvature"}
    mine, theirs = one.findings["curvature"], other.findings["curvature"]
    assert mine.statistic.tobytes() == theirs.statistic.tobytes()
    assert (mine.noise, mine.weight) == (theirs.noise, theirs.weight)


@pytest.mark.parametrize("kind", PLANS)
def test_a_session_that_is_looked_at_often_is_the_one_that_is_not(kind: str) -> None:
    """`asked` and `request` neither draw anew nor move on within a round."""
    plan = plan_of(kind, participation={"silos": 2})
    watched, left_alone = (Session(plan, np.random.default_rng(5)) for _ in range(2))
    chosen = []
    while not watched.finished:
        for _ in range(3):
            asked, request = list(watched.asked()), watched.request().to_bytes()
            assert (watched.asked(), watched.request().to_bytes()) == (asked, request)
        chosen.append(tuple(asked))
        given = answers(watched.request())
        watched.receive(given)
        left_alone.receive(given)
    assert watched.result().weights.tobytes() == left_alone.result().weights.tobytes()
    assert watched.result().history == left_alone.result().history
    assert len(set(chosen[1:])) == 3  # every pair of silos had its turn


@pytest.mark.parametrize("kind", PLANS)
def test_a_run_is_a_session_whose_answers_are_asked_for(kind: str) -> None:
    plan = plan_of(kind, participation={"silos": 2})
    session = Session(plan, np.random.default_rng(5))
    while not session.finished:
        session.receive(answers(session.request()))
    trained = run(plan, lambda request, asked: answers(request), choices=np.random.default_rng(5))
    assert trained.weights.tobytes() == session.result().weights.tobytes()
    assert trained.history == session.result().history


def test_a_silo_that_left_is_not_among_those_asked_in_the_next_round() -> None:
    session = Session(plan_of("accelerated"), np.random.default_rng(5))
    for round in range(4):
        request = session.request()
        given = {**answers(request), **({"s1": refuse(request, "s1", RefusalReason.REVOKED)} if round == 1 else {})}
        assert session.asked() == (["s0", "s1", "s2"] if round < 2 else ["s0", "s2"])
        session.receive(given)


@pytest.mark.parametrize("kind", PLANS)
def test_every_point_asked_about_and_the_model_are_in_the_domain(kind: str) -> None:
    plan = plan_of(kind)
    session = Session(plan, np.random.default_rng(5))
    silos = quadratics((9, 0), (0, 9), (-9, 1))
    while not session.finished:
        request = session.request()
        assert plan.domain.contains(unpack(request.argument))
        session.receive(answers(request) if request.round == 0 else silos(request, session.asked()))
    assert plan.domain.contains(session.result().weights)
