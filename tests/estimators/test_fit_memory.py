"""The memory of fits, against a count by hand."""

import math
from collections.abc import Iterable

import numpy as np
import pytest

from ringfence.accounting import accountant
from ringfence.accounting.charges import person_events, plan_events
from ringfence.accounting.events import GaussianRelease, SectionRelease
from ringfence.estimators.fit_memory import Memory
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import Plan, SamplingName, Schema
from ringfence.protocol.plan import sections
from ringfence.silo.ledger.budget import Budget


def plan_for(schema: Schema, records: int, epsilon: float, delta: float = 1e-6) -> Plan:
    return make_plan(schema, [Member("clinic", records, epsilon, delta)], PlanRequest(rounds=3, survey=False))


def rows(numbers: Iterable[int]) -> dict[str, list[bytes]]:
    return {"clinic": [f"row {number}".encode() for number in numbers]}


def test_the_total_is_that_of_the_record_that_was_in_the_costliest_fits(schema: Schema) -> None:
    memory, random = Memory(), np.random.default_rng(2)
    past: list[tuple[set[int], Plan]] = []
    for _ in range(12):
        chosen = {int(row) for row in random.choice(20, size=random.integers(1, 12), replace=False)}
        plan = plan_for(schema, len(chosen), float(random.uniform(0.2, 2.0)))
        past.append((chosen, plan))
        total = memory.charge(plan, rows(chosen), settings="same")["clinic"]
        costs = []
        for row in chosen:
            fits = [fit for seen, fit in past if row in seen]
            costs.append(accountant.epsilon([e for fit in fits for e in plan_events(fit, fit.silos[0])], 1e-6))
        assert total.epsilon == pytest.approx(max(costs), rel=1e-9)


def test_a_record_pays_for_every_copy_in_every_fit(schema: Schema) -> None:
    memory, plan = Memory(), plan_for(schema, 4, 1.0)
    (event, rounds) = plan_events(plan, plan.silos[0])[0]
    assert isinstance(event, GaussianRelease)

    def of_copies(*copies: int) -> float:
        """Copies multiply the shift of a fit; fits add up by their squares."""
        return accountant.epsilon([(GaussianRelease(event.shift * math.hypot(*copies) * math.sqrt(rounds)), 1)], 1e-6)

    for numbers, worst in (([1, 1, 1, 2], (3,)), ([1, 2, 2, 3], (3, 1)), ([2, 2, 2, 4], (1, 2, 3))):
        total = memory.charge(plan, rows(numbers), settings="same")["clinic"]
        assert total.epsilon == pytest.approx(of_copies(*worst), rel=1e-9)
    once = Memory().charge(plan, rows([1, 1, 1, 2]), settings="same", copies=False)["clinic"]  # equal, but not copies
    assert once.epsilon == pytest.approx(1.0, rel=1e-4)


def test_the_total_is_at_the_largest_delta_or_at_the_cap_s(schema: Schema) -> None:
    memory = Memory()
    memory.charge(plan_for(schema, 3, 1.0, delta=1e-4), rows([1, 2, 3]), settings="same")
    second = plan_for(schema, 3, 1.0, delta=1e-7)
    assert memory.charge(second, rows([1, 2, 3]), settings="same")["clinic"].delta == 1e-4
    cap = Budget(50.0, 1e-5)
    assert memory.charge(second, rows([1, 2, 3]), settings="same", cap=cap)["clinic"].delta == 1e-5


def test_a_record_pays_for_the_sections_that_it_was_in(schema: Schema) -> None:
    """Rows come in another order in every fit, so that who trained is held out in some, and copies may do both."""
    memory, random = Memory(), np.random.default_rng(3)
    past: list[tuple[list[tuple[int, str]], Plan]] = []
    for _ in range(6):
        chosen = [int(row) for row in random.integers(0, 30, 40)]
        members = [Member("clinic", 32, float(random.uniform(0.2, 2.0)), 1e-6, held_out=8)]
        plan = make_plan(schema, members, PlanRequest(rounds=3, survey=False))
        own = ["held-out" if place in sections.members("held-out", 40, 0.2) else "training" for place in range(40)]
        past.append((list(zip(chosen, own, strict=True)), plan))
        total = memory.charge(plan, rows(chosen), None, {"clinic": own}, settings="same")["clinic"]
        costs = []
        for row in set(chosen):
            squares = 0.0
            for seen, fit in past:
                for event, count in plan_events(fit, fit.silos[0]):
                    assert isinstance(event, SectionRelease)
                    assert isinstance(event.release, GaussianRelease)
                    squares += count * (seen.count((row, event.section)) * event.release.shift) ** 2
            costs.append(accountant.epsilon([(GaussianRelease(math.sqrt(squares)), 1)], 1e-6))
        assert total.epsilon == pytest.approx(max(costs), rel=1e-6)


@pytest.mark.parametrize("sampling", ["full", "one-pass"])
def test_a_person_s_total_is_what_every_silo_with_their_rows_released_in_every_fit(
    schema: Schema, sampling: SamplingName
) -> None:
    memory, random = Memory(), np.random.default_rng(4)
    of_persons = schema.model_copy(update={"person": "patient"})
    past: list[tuple[dict[str, list[str]], Plan]] = []
    for fit in range(8):
        held = {silo: [f"p{n}" for n in random.integers(0, 9, random.integers(3, 9))] for silo in ("north", "west")}
        members = [Member(silo, len(set(persons)), 0.5 + fit % 3, 1e-6) for silo, persons in held.items()]
        plan = make_plan(of_persons, members, PlanRequest(rounds=2, survey=False, sampling=sampling))
        past.append((held, plan))
        identities = {silo: [random.bytes(8) for _ in persons] for silo, persons in held.items()}
        totals = memory.charge(plan, identities, held, settings="same")
        for silo, persons in held.items():
            costs = [
                accountant.epsilon(
                    [event for then, made in past for event in person_events(made, {s for s in then if p in then[s]})],
                    1e-6,
                )
                for p in set(persons)
            ]
            assert totals[silo].epsilon == pytest.approx(max(costs), rel=1e-9)
