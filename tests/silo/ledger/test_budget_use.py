"""What has become of a budget: its parts add up, for machines and as people read them, and name one guarantee."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.evidence.verification import verify
from ringfence.protocol import Guarantee
from ringfence.silo.folder import SiloFolder
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger.budget import BASIS_WORDS, Budget, BudgetUse
from ringfence.silo.ledger.certificate import certify
from ringfence.silo.ledger.summary import budget_words, summarise
from ringfence.silo.operator.decisions import set_budget
from tests.generated import examples
from tests.support import MakePlan, approved_by, ask_all

N = r"([\d.]+)"
PARTS = rf"Of the budget of epsilon {N} at delta \S+, {N} is used, {N} is reserved .*, {N} is kept .* {N} is left"


def printed(words: str) -> tuple[int, list[int]]:
    """The budget and its parts as they are printed, in units of their last digit."""
    found = re.search(PARTS, words)
    assert found is not None, words
    budget, *parts = (int(number.replace(".", "")) for number in found.groups())
    return budget, parts


@given(st.floats(1e-3, 1e3), st.lists(st.floats(0, 1), min_size=4, max_size=4))
@examples(400)
def test_the_parts_of_a_budget_add_up_to_it_as_they_are_printed(epsilon: float, shares: list[float]) -> None:
    total = sum(shares) or 1.0
    used, reserved, _, left = (epsilon * share / total for share in shares)
    use = BudgetUse(Guarantee(epsilon=epsilon, delta=1e-6), used, reserved, left)
    budget, parts = printed(use.words())
    assert sum(parts) == budget
    assert min(parts) >= 0
    data = use.as_data()
    assert sum(data[name] for name in ("used", "reserved", "kept", "left")) == pytest.approx(data["budget"])
    unit = epsilon / budget
    assert all(
        abs(part * unit - data[name]) <= 2.1 * unit
        for part, name in zip(parts, ("used", "reserved", "kept", "left"), strict=True)
    )


@pytest.mark.parametrize("sampling", ["full", "poisson"])
def test_before_during_and_after_a_plan_the_parts_of_the_budget_add_up_and_the_budget_is_the_guarantee(
    silo_folder: SiloFolder, plan_of: MakePlan, sampling: str
) -> None:
    with silo_folder.ledger() as ledger:
        gate, plan = Gate(silo_folder.records(), ledger), plan_of(epsilon=1.0, sampling=sampling, rounds=4)
        seen = []

        def look() -> None:
            (cost,) = summarise(ledger.path)["costs"]
            assert cost["used"] + cost["reserved"] + cost["kept"] + cost["left"] == pytest.approx(cost["budget"])
            assert (cost["guarantee"]["epsilon"], cost["basis"]) == (cost["budget"], "budget")
            words = budget_words(cost, 1e-6)
            assert words.startswith("This is the budget. ")
            budget, parts = printed(words)
            assert sum(parts) == budget
            seen.append(cost)

        look()
        approved_by(gate, plan)
        look()
        ask_all(gate, plan, [0, 1])
        look()
        gate.end(plan)
        look()
    new, approved, running, ended = seen
    assert new["left"] == new["budget"]
    assert approved["used"] == 0 < running["used"] < approved["reserved"]
    assert ended["reserved"] == 0 < ended["used"] == running["used"]
    assert ended["kept"] > (0.1 if sampling == "poisson" else 0.0)  # sampled batches count in full once they began


def test_a_guarantee_that_is_not_the_budget_says_so_and_why(silo_folder: SiloFolder, plan_of: MakePlan) -> None:
    """Lowered, raised within the first budget, and raised beyond it: one guarantee each time, and its basis."""
    found = []
    with silo_folder.ledger() as ledger:
        gate = Gate(silo_folder.records(), ledger)
        for epsilon, budget in ((1.0, 2.0), (0.0, 1.5), (0.5, 2.5), (2.5, 3.5)):
            set_budget(silo_folder, Budget(budget, 1e-6), note="a test")
            if epsilon:
                ask_all(gate, approved_by(gate, plan_of(epsilon=epsilon)))
            (cost,) = summarise(ledger.path)["costs"]
            assert cost["used"] <= cost["budget"]
            assert BASIS_WORDS[cost["basis"]] in budget_words(cost, 1e-6)
            assert "exceed" not in budget_words(cost, 1e-6)
            text = verify(certify(silo_folder).to_file()).text()
            assert BASIS_WORDS[cost["basis"]] in text
            assert f"private at epsilon = {cost['guarantee']['epsilon']:.6g}, delta = " in text
            assert f"{budget:g} at delta 1e-06, {cost['used']:.6g} is used" in text
            found.append((cost["basis"], cost["guarantee"]["delta"], cost["guarantee"]["epsilon"]))
    bases, deltas, epsilons = zip(*found, strict=True)
    assert bases == ("budget", "first-budget", "first-budget", "odometer")
    assert deltas == (1e-6, 1e-6, 1e-6, 2e-6)
    assert epsilons[:3] == (2.0, 2.0, 2.0) < epsilons[3:]


def test_a_budget_lowered_below_what_is_used_says_that_nothing_is_left(
    silo_folder: SiloFolder, plan_of: MakePlan
) -> None:
    with silo_folder.ledger() as ledger:
        gate = Gate(silo_folder.records(), ledger)
        plan = approved_by(gate, plan_of(epsilon=1.5))
        ask_all(gate, plan)
        gate.end(plan)
        set_budget(silo_folder, Budget(1.0, 1e-6), note="a test")
        (cost,) = summarise(ledger.path)["costs"]
    assert (cost["left"], cost["kept"]) == (0, 0)
    assert "Used and reserved are epsilon 1.5 at delta 1e-06, more than the budget of 1: nothing is left." in (
        budget_words(cost, 1e-6)
    )
