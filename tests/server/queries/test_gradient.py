"""Gradients move the weights, round by round, whatever else a plan asks in between."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from ringfence import protocol
from ringfence.server.rounds import Ask, run
from tests.server.quadratics import Journal, make_plan, quadratics, update
from tests.support import rebuilt

COUNTS = protocol.Statistics(columns=("y",), bins=4)
LENGTH = COUNTS.length(make_plan())
SILOS = quadratics((1, 0), (0, 1))


def surveyed_in(round: int) -> Ask:
    """Make silos that send counts in that round and gradients in all others."""

    def ask(request: protocol.RoundRequest, asked: Sequence[str]) -> Mapping[str, protocol.Answer]:
        return (
            {n: update(request, n, np.ones(LENGTH)) for n in asked} if request.round == round else SILOS(request, asked)
        )

    return ask


def interrupted(plan: protocol.Plan, after: int) -> protocol.Plan:
    """Return the plan with a survey of counts between its rounds."""
    (stage,) = plan.stages
    survey = stage.model_copy(update={"query": COUNTS, "rounds": 1, "sampling": protocol.Full()})
    lengths = after, stage.rounds - after
    first, second = (stage.model_copy(update={"rounds": rounds}) for rounds in lengths)
    silos = [terms.model_copy(update={"stages": terms.stages * 3}) for terms in plan.silos]
    return rebuilt(plan, stages=(first, survey, second), silos=tuple(silos))


@pytest.mark.parametrize(
    "algorithm",
    [
        protocol.MinibatchSGD(step=0.3, momentum=0.5, growth=1.2, skip=2),
        protocol.Accelerated(smoothness=2.0, average="tail"),
        protocol.MultiStage(
            smoothness=2.0,
            stages=(protocol.Restart(rounds=3, upsilon=1.0), protocol.Restart(rounds=5, upsilon=9.0)),
            penalty=0.1,
        ),
    ],
    ids=lambda algorithm: algorithm.name,
)
def test_a_query_between_the_rounds_of_training_changes_neither_steps_nor_model(
    algorithm: protocol.AlgorithmSpec,
) -> None:
    plain = make_plan(rounds=8, algorithm=algorithm)
    plan = interrupted(plain, 5)
    assert (plan.rounds, plan.steps) == (9, 8)
    journal, steady = Journal(surveyed_in(5)), Journal(SILOS)
    trained, expected = run(plan, journal), run(plain, steady)
    assert trained.weights.tobytes() == expected.weights.tobytes()
    del journal.queries[5]
    np.testing.assert_array_equal(journal.queries, steady.queries)
    assert trained.findings["statistics"].statistic.tolist() == [1.0] * LENGTH


def test_watch_gets_the_weights_that_a_round_asked_at_in_training_rounds_only() -> None:
    plan = interrupted(make_plan(rounds=4), 2)
    seen = []
    run(plan, surveyed_in(2), watch=lambda outcome: seen.append(outcome.weights is None))
    assert seen == [False, False, True, False, False]
