"""Second moments at the server: pilots move the place, and averages are of silos that answered at every place."""

from itertools import pairwise

import numpy as np

from ringfence.protocol import SecondMoments
from ringfence.research.experiments.looking_coefficients import DESIGNS, draw, exact_answers, summary_plan
from ringfence.server.queries.second_moments import SecondMomentsFindings, argument, receive
from ringfence.server.state import RoundAnswers, ServerState

PLAN = summary_plan(labels=True)
QUERY = PLAN.stages[0].query
TABLE = draw(DESIGNS[0], True, 200, np.random.default_rng(1))


def run(missing: dict[int, str]) -> list[SecondMomentsFindings]:
    """Answer all rounds without noise, except where a silo is missing."""
    assert isinstance(QUERY, SecondMoments)
    learned, found = ServerState.initial(PLAN), []
    for round in range(PLAN.rounds):
        asked = QUERY.read(PLAN, argument(QUERY, learned, round))
        answers = dict(zip([terms.name for terms in PLAN.silos], exact_answers(PLAN, asked, *TABLE), strict=True))
        answers.pop(missing.get(round, ""), None)
        mean = np.mean(list(answers.values()), axis=0)
        learned = receive(QUERY, learned, RoundAnswers(0, round, tuple(answers), mean, answers))
        measured = learned.findings[QUERY.name]
        assert isinstance(measured, SecondMomentsFindings)
        found.append(measured)
    return found


def test_each_pilot_round_and_the_first_half_move_the_place_and_nothing_else_does() -> None:
    rounds = run({})
    moved = [not np.array_equal(a.asked.packed(), b.asked.packed()) for a, b in pairwise(rounds)]
    assert [place + 1 for place, yes in enumerate(moved) if yes] == [1, 2, 7]
    last = rounds[-1]
    assert np.array_equal(last.asked.axes, rounds[3].asked.axes)
    assert {name: silo.rounds for name, silo in last.silos.items()} == {terms.name: 10 for terms in PLAN.silos}
    np.testing.assert_allclose(last.at.weights, (last.places[0] + last.places[-1]) / 2)


def test_a_silo_that_missed_a_round_that_counts_is_left_out() -> None:
    assert set(run({5: "silo2"})[-1].silos) == {"silo0", "silo1", "silo3", "silo4"}
    assert len(run({1: "silo2"})[-1].silos) == 5
