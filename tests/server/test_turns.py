"""Silos that take turns: nobody is asked more often than the plan says, and everybody about equally often."""

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest

from ringfence.planning.problem import turns_needed
from ringfence.protocol import Answer, Participation, Plan, RefusalReason
from ringfence.server.rounds import Session
from tests.server.quadratics import make_plan, refuse, update
from tests.support import restaged


def turns(silos: int, asked: int, rounds: int) -> Plan:
    plan = make_plan((1 / silos,) * silos, rounds=rounds)
    return restaged(plan, participation=Participation(silos=asked, answers=turns_needed(rounds, asked / silos)))


def answers(session: Session, gone: str = "") -> Mapping[str, Answer]:
    request = session.request()
    return {
        name: refuse(request, name, RefusalReason.REVOKED) if name == gone else update(request, name, np.zeros(2))
        for name in session.asked()
    }


@pytest.mark.parametrize(("silos", "asked", "rounds"), [(5, 2, 10), (5, 2, 7), (25, 12, 25), (3, 1, 1), (4, 3, 9)])
@pytest.mark.parametrize("seed", range(5))
def test_every_round_asks_its_number_and_nobody_has_a_turn_too_many(
    silos: int, asked: int, rounds: int, seed: int
) -> None:
    plan = turns(silos, asked, rounds)
    session, had = Session(plan, np.random.default_rng(seed)), Counter[str]()
    while not session.finished:
        assert len(session.asked()) == asked
        had.update(session.asked())
        session.receive(answers(session))
    assert max(had.values()) <= plan.stages[0].most_answers
    assert max(had.values()) - min(had[terms.name] for terms in plan.silos) <= 1


def test_whose_turn_it_is_is_drawn_and_equal_seeds_draw_alike() -> None:
    def asked(seed: int) -> list[list[str]]:
        session, found = Session(turns(6, 2, 6), np.random.default_rng(seed)), []
        while not session.finished:
            found.append(session.asked())
            session.receive(answers(session))
        return found

    assert asked(1) == asked(1)
    assert asked(1) != asked(2)


def test_where_a_silo_is_gone_the_others_are_not_asked_beyond_their_turns() -> None:
    plan = turns(4, 2, 6)
    session, had = Session(plan, np.random.default_rng(3)), Counter[str]()
    while not session.finished:
        had.update(session.asked())
        session.receive(answers(session, gone="s0"))
    assert had["s0"] <= 1
    assert all(had[terms.name] <= plan.stages[0].most_answers for terms in plan.silos)
