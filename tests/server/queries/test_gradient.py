"""Gradients move the weights, round by round, whatever else a plan asks in between."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from ringfence.protocol.algorithms import Accelerated, AlgorithmSpec, MinibatchSGD, MultiStage, Restart
from ringfence.protocol.messages import Answer, RoundRequest
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions import Moments
from ringfence.protocol.sampling import Full
from ringfence.server.rounds import Ask, run
from tests.server.quadratics import Journal, make_plan, quadratics, update
from tests.support import rebuilt

SILOS = quadratics((1, 0), (0, 1))


def surveyed_in(round: int) -> Ask:
    """Make silos that send moments in that round and gradients in all others."""

    def ask(request: RoundRequest, asked: Sequence[str]) -> Mapping[str, Answer]:
        return {n: update(request, n, np.ones(6)) for n in asked} if request.round == round else SILOS(request, asked)

    return ask


def interrupted(plan: Plan, after: int) -> Plan:
    """Return the plan with a survey of moments between its rounds."""
    (stage,) = plan.stages
    survey = stage.model_copy(update={"question": Moments(), "rounds": 1, "sampling": Full()})
    lengths = after, stage.rounds - after
    first, second = (stage.model_copy(update={"rounds": rounds}) for rounds in lengths)
    silos = [terms.model_copy(update={"stages": terms.stages * 3}) for terms in plan.silos]
    return rebuilt(plan, stages=(first, survey, second), silos=tuple(silos))


@pytest.mark.parametrize(
    "algorithm",
    [
        MinibatchSGD(step=0.3, momentum=0.5, growth=1.2, skip=2),
        Accelerated(smoothness=2.0, average="tail"),
        MultiStage(smoothness=2.0, stages=(Restart(rounds=3, pace=1.0), Restart(rounds=5, pace=9.0)), penalty=0.1),
    ],
    ids=lambda algorithm: algorithm.name,
)
def test_a_question_between_the_rounds_of_training_changes_neither_steps_nor_model(algorithm: AlgorithmSpec) -> None:
    plain = make_plan(rounds=8, algorithm=algorithm)
    plan = interrupted(plain, 5)
    assert (plan.rounds, plan.steps) == (9, 8)
    journal, steady = Journal(surveyed_in(5)), Journal(SILOS)
    trained, expected = run(plan, journal), run(plain, steady)
    assert trained.weights.tobytes() == expected.weights.tobytes()
    del journal.queries[5]
    np.testing.assert_array_equal(journal.queries, steady.queries)
    assert trained.findings["moments"].statistic.tolist() == [1.0] * 6


def test_the_weights_that_a_round_asked_at_are_told_to_whoever_watches_in_training_rounds_only() -> None:
    plan = interrupted(make_plan(rounds=4), 2)
    seen = []
    run(plan, surveyed_in(2), watch=lambda outcome: seen.append(outcome.weights is None))
    assert seen == [False, False, True, False, False]
