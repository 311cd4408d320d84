"""A ledger admits what its filter does and says what that guarantees, and whoever replays it agrees."""

from pathlib import Path

import pytest

from ringfence.accounting.charges import cost, plan_events
from ringfence.errors import ApprovalError
from ringfence.protocol.guarantee import Guarantee
from ringfence.protocol.plan import Plan
from ringfence.silo.budget import Budget
from ringfence.silo.certificate import certify
from ringfence.silo.decisions import approve_plan, set_budget
from ringfence.silo.folder import SiloFolder
from ringfence.silo.gate import Gate
from ringfence.silo.ledger import Ledger
from ringfence.silo.summary import summarise
from ringfence.storage.chain import Draft
from ringfence.verification import verify
from tests.silo.agents import make_silo_folder
from tests.support import MakePlan, ask_all

BUDGET = Guarantee(epsilon=2.0, delta=1e-6)


@pytest.fixture
def silo_folder(tmp_path: Path) -> SiloFolder:
    return make_silo_folder(tmp_path)


@pytest.fixture
def brim(plan_of: MakePlan) -> tuple[Plan, Plan]:
    """A full-batch plan, and a sampled one that with it comes to the whole budget by exact composition."""
    plans = plan_of(epsilon=1.4), plan_of(epsilon=1.3885, sampling="fixed")
    together = cost([event for plan in plans for event in plan_events(plan, plan.silos[0])], BUDGET)
    assert 0.9995 * BUDGET.epsilon < together <= BUDGET.epsilon
    return plans


def test_a_plan_that_composes_to_the_budget_is_approved_before_the_first_answer_and_refused_after_it(
    gate: Gate, brim: tuple[Plan, Plan]
) -> None:
    first, second = brim
    gate.approve(first)
    gate.check(second)
    ask_all(gate, first, [0])
    with pytest.raises(ApprovalError, match="more than its budget of 2, where plans may be chosen by earlier answers"):
        gate.approve(second)


def test_plans_that_were_approved_before_the_first_answer_have_the_budget_to_themselves(
    gate: Gate, ledger: Ledger, brim: tuple[Plan, Plan], plan_of: MakePlan
) -> None:
    for plan in brim:
        gate.approve(plan)
    ask_all(gate, brim[0], [0])
    assert ledger.account().left("anyone") == 0.0
    assert ledger.account().guarantees() == (BUDGET,)
    with pytest.raises(ApprovalError, match="more than its budget"):
        gate.approve(plan_of(epsilon=0.01))


@pytest.mark.parametrize(("sampling", "gives_back"), [("full", True), ("one-pass", True), ("poisson", False)])
def test_a_plan_that_ends_early_gives_back_unless_its_batches_were_sampled(
    gate: Gate, ledger: Ledger, plan_of: MakePlan, sampling: str, gives_back: bool
) -> None:
    plan = plan_of(epsilon=1.0, sampling=sampling, rounds=4)
    gate.approve(plan)
    ask_all(gate, plan, [0])
    before = ledger.account().left("anyone")
    gate.end(plan)
    after = ledger.account().left("anyone")
    assert after >= before if sampling == "one-pass" else (after > before) is gives_back
    assert summarise(ledger.path)["costs"][0]["left"] == after


def by_an_earlier_version(ledger: Ledger, plan: Plan) -> None:
    """Approve a plan as versions did that went by exact composition."""
    events = [[event.to_dict(), count] for event, count in plan_events(plan, plan.silos[0])]
    ledger.update(lambda _: (None, [Draft("approved", {"events": events}, plan.content)]))


def test_a_ledger_that_went_by_exact_composition_is_read_has_nothing_left_and_says_what_is_guaranteed(
    silo_folder: SiloFolder, brim: tuple[Plan, Plan], plan_of: MakePlan
) -> None:
    first, second = brim
    approve_plan(silo_folder, first)
    with silo_folder.ledger() as ledger:
        gate = Gate(silo_folder.records(), ledger)
        ask_all(gate, first)
        by_an_earlier_version(ledger, second)
        ask_all(gate, second)
        (guarantee,) = ledger.account().guarantees()
        with pytest.raises(ApprovalError, match="more than its budget"):
            gate.approve(plan_of(epsilon=0.01))
    (told,) = summarise(silo_folder.ledger_path)["costs"]
    assert (told["left"], told["budget"]) == (0.0, 2.0)
    assert told["used"] <= 2.0 < guarantee.epsilon == told["guarantee"]["epsilon"]
    assert guarantee.delta == 2e-6
    assert verify(certify(silo_folder).to_file()).guarantee == (guarantee,)


def test_a_budget_that_was_raised_after_an_answer_is_no_guarantee_and_whoever_replays_the_ledger_agrees(
    silo_folder: SiloFolder, plan_of: MakePlan
) -> None:
    with silo_folder.ledger() as ledger:
        gate = Gate(silo_folder.records(), ledger)
        for epsilon, sampling in ((1.2, "full"), (1.0, "poisson"), (1.5, "full")):
            set_budget(silo_folder, Budget(2.0 if epsilon < 1.5 else 4.0, 1e-6))
            plan = plan_of(epsilon=epsilon, sampling=sampling)
            gate.approve(plan)
            ask_all(gate, plan)
            (guarantee,) = ledger.account().guarantees()
            assert (guarantee == BUDGET) is (epsilon < 1.5)
            assert guarantee.epsilon >= ledger.account().spent()[0].epsilon
        history = ledger.account().commitments()
    with silo_folder.ledger() as again:
        assert again.account().commitments() == history
        assert again.account().guarantees() == (guarantee,)
    found = verify(certify(silo_folder).to_file())
    assert found.guarantee == (guarantee,)
    assert f"differentially private at epsilon = {guarantee.epsilon:.6g}, delta = 2e-06" in found.text()
