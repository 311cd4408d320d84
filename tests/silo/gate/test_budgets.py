"""Every kind of plan is held to its claim and to the budget: what is reserved, spent, given back and guaranteed."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ringfence.accounting import accountant
from ringfence.accounting.charges import cost, plan_events
from ringfence.errors import ApprovalError
from ringfence.evidence.verification import verify
from ringfence.protocol import Guarantee, Localized, Phase, Plan, RefusalReason
from ringfence.silo.folder import SiloFolder
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.certificate import certify
from ringfence.silo.ledger.ledger import Ledger
from ringfence.silo.ledger.summary import summarise
from ringfence.silo.operator.decisions import set_budget
from ringfence.silo.records.records import Records
from tests.support import Drawn, MakePlan, approved_by, ask, ask_all, own_terms, refusal, renoised, spent, watch_draws

PHASES = Localized(smoothness=1.0, phases=(Phase(rounds=3, penalty=0.1), Phase(rounds=2, penalty=0.8)))

KINDS: dict[str, dict[str, Any]] = {
    "full": {},
    "full, surveyed": {"survey": True, "algorithm": "accelerated"},
    "fixed, surveyed": {"survey": True, "algorithm": "accelerated", "sampling": "fixed"},
    "poisson, surveyed": {"survey": True, "algorithm": "accelerated", "sampling": "poisson"},
    "one-pass": {"sampling": "one-pass"},
    "one-pass, surveyed": {"survey": True, "algorithm": "accelerated", "sampling": "one-pass"},
    "one-pass, correlated": {"sampling": "one-pass", "correlation": 0.5},
    "phased": {"algorithm": PHASES},
    "phased, surveyed": {"algorithm": PHASES, "survey": True},
}

Make = Callable[..., Plan]


@pytest.fixture(params=KINDS)
def plan_kind(request: pytest.FixtureRequest, plan_of: MakePlan) -> Make:
    """Make a plan of one kind after the other, for silo 'clinic'."""
    return lambda **changes: plan_of(**{**KINDS[request.param], **changes})


def weaker(plan: Plan, factor: float, number: int) -> Plan:
    return renoised(plan, number=number, sigma=factor * own_terms(plan, number).sigma)


def test_a_plan_whose_noise_does_not_deliver_its_claim_in_any_stage_is_not_approved(
    gate: Gate, plan_kind: Make
) -> None:
    plan = plan_kind()
    for number, stage in enumerate(plan.stages):
        with pytest.raises(ApprovalError, match="noise gives epsilon"):
            gate.approve(weaker(plan, 0.999 if stage.query.trains else 0.9, number))
    gate.approve(plan)


def test_all_rounds_together_cost_the_claim_and_never_more_than_was_reserved(
    gate: Gate, ledger: Ledger, plan_kind: Make
) -> None:
    plan = approved_by(gate, plan_kind(epsilon=1.4))
    reserved = accountant.epsilon(ledger.account().reserved(), 1e-6)
    costs = [0.0]
    for round in range(plan.rounds):
        ask_all(gate, plan, [round])
        costs.append(spent(ledger))
    assert costs == sorted(costs)
    assert costs[-1] == reserved == accountant.epsilon(plan_events(plan, plan.silos[0]), 1e-6)
    assert 0.999 * 1.4 < spent(ledger) <= 1.4


def test_approval_reserves_all_rounds_and_ending_gives_back_those_not_asked(
    gate: Gate, ledger: Ledger, plan_kind: Make
) -> None:
    first, second = plan_kind(epsilon=1.7), plan_kind(epsilon=1.7)
    gate.approve(first)
    with pytest.raises(ApprovalError, match="more than its budget"):
        gate.approve(second)
    gate.end(first)
    assert ledger.account().reserved() == []
    gate.approve(second)


def test_ending_after_some_rounds_keeps_just_those(gate: Gate, ledger: Ledger, plan_kind: Make) -> None:
    plan = approved_by(gate, plan_kind(epsilon=1.0))
    ask_all(gate, plan, [0, 1])
    charged = ledger.account().charged()
    gate.end(plan)
    assert ledger.account().reserved() == ledger.account().charged() == charged
    assert refusal(ask(gate, plan, 2)) is RefusalReason.REVOKED
    summary = summarise(ledger.path)
    (text,) = summary["costs"]
    assert text["used"] == spent(ledger)
    assert text["reserved"] == 0.0
    assert summary["plans"][0]["rounds"] == plan.rounds


def test_a_plan_that_is_approved_again_repeats_its_answers_and_charges_nothing_for_them(
    gate: Gate, ledger: Ledger, records: Records, plan_kind: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = approved_by(gate, plan_kind())
    answers = [ask(gate, plan, round).to_bytes() for round in range(3)]
    before = ledger.account().spent()
    ledger.grant(Budget(1.9, 1e-6))
    restarted = Gate(records, ledger)
    assert refusal(ask(restarted, plan, 3)) is RefusalReason.BUDGET
    restarted.approve(plan)
    assert [ask(restarted, plan, round).to_bytes() for round in range(3)] == answers
    assert ledger.account().spent() == before
    assert len(ledger.account().plans[plan.digest()].rounds) == 3
    # The rest is new, and all rounds of both runs together cost what the plan claims: once.
    drawn = watch_draws(monkeypatch)
    ask_all(restarted, plan, range(3, plan.rounds))
    assert len(drawn) == plan.rounds - 3
    assert 0.999 < spent(ledger) <= 1.0
    assert [entry.kind for entry in ledger.entries()].count("charged") == plan.rounds


def test_one_pass_that_is_approved_again_never_uses_a_record_again(
    gate: Gate, ledger: Ledger, plan_of: MakePlan, drawn: Drawn
) -> None:
    plan = plan_of(sampling="one-pass", rounds=5)
    gate.approve(plan)
    ask_all(gate, plan, [0, 2])
    ledger.grant(Budget(1.9, 1e-6))
    gate.approve(plan)
    ask_all(gate, plan, [3, 4])
    assert np.sum([draws.participation for _, draws in drawn], axis=0).max() == 1.0


@pytest.mark.parametrize("revoke", [True, False])
def test_a_plan_that_ended_is_never_approved_again_and_its_ledger_stays_as_it_is(
    gate: Gate, ledger: Ledger, plan_of: MakePlan, revoke: bool
) -> None:
    plan = approved_by(gate, plan_of())
    answer = ask(gate, plan, 0).to_bytes()
    gate.end(plan, revoke=revoke)
    entries = ledger.entries()
    for use in (gate.check, gate.approve):
        with pytest.raises(ApprovalError, match="revoked and stays so" if revoke else "finished and stays so"):
            use(plan)
    assert ledger.entries() == entries
    again = ask(gate, plan, 0)
    assert refusal(again) is RefusalReason.REVOKED if revoke else again.to_bytes() == answer


def test_approving_a_running_plan_again_writes_nothing(gate: Gate, ledger: Ledger, plan_of: MakePlan) -> None:
    plan = approved_by(gate, plan_of())
    entries = ledger.entries()
    gate.approve(plan, note="again")
    ask_all(gate, plan, [0])
    gate.approve(plan)
    assert [entry.kind for entry in ledger.entries()[len(entries) :]] == ["charged", "released"]


def test_a_budget_is_not_raised_without_a_reason(ledger: Ledger) -> None:
    entries = ledger.entries()
    for larger in (Budget(2.1, 1e-6), Budget(2.0, 2e-6), Budget(1.0, 1e-6, anyone=3.0)):
        with pytest.raises(ApprovalError, match="say why with --note"):
            ledger.grant(larger)
    assert ledger.entries() == entries
    ledger.grant(Budget(1.0, 1e-6))
    ledger.grant(Budget(2.0, 1e-6), note="a second study")
    assert ledger.entries()[-1].body["note"] == "a second study"


def test_plans_of_all_kinds_on_one_data_set_compose_exactly(gate: Gate, ledger: Ledger, plan_of: MakePlan) -> None:
    ledger.grant(Budget(4.0, 1e-6), note="a test")
    exact = [kind for kind in KINDS if not kind.startswith(("fixed", "poisson"))]
    plans = [plan_of(epsilon=0.8, **KINDS[kind]) for kind in exact]
    for plan in plans:
        gate.approve(plan)
        ask_all(gate, plan)
    shifts = [accountant.as_one_gaussian(plan_events(plan, plan.silos[0])) or math.nan for plan in plans]
    assert accountant.as_one_gaussian(ledger.account().charged()) == pytest.approx(math.hypot(*shifts), rel=1e-9)
    assert 0.8 < spent(ledger) < 0.8 * len(plans)


def test_sampled_and_other_plans_compose_exactly_too(gate: Gate, ledger: Ledger, plan_of: MakePlan) -> None:
    plans = [plan_of(epsilon=0.6, **KINDS[kind]) for kind in ("fixed, surveyed", "one-pass, surveyed", "phased")]
    for plan in plans:
        gate.approve(plan)
        ask_all(gate, plan)
    events = [event for plan in plans for event in plan_events(plan, plan.silos[0])]
    assert spent(ledger) == pytest.approx(accountant.epsilon(events, 1e-6), rel=1e-9)
    assert 0.6 < spent(ledger) < 1.8


BUDGET = Guarantee(epsilon=2.0, delta=1e-6)


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
    plan = approved_by(gate, plan_of(epsilon=1.0, sampling=sampling, rounds=4))
    ask_all(gate, plan, [0])
    before = ledger.account().left("anyone")
    gate.end(plan)
    after = ledger.account().left("anyone")
    assert after >= before if sampling == "one-pass" else (after > before) is gives_back
    assert summarise(ledger.path)["costs"][0]["left"] == after


def test_a_budget_that_was_raised_after_an_answer_is_no_guarantee_and_the_verifier_agrees(
    silo_folder: SiloFolder, plan_of: MakePlan
) -> None:
    with silo_folder.ledger() as ledger:
        gate = Gate(silo_folder.records(), ledger)
        for epsilon, sampling in ((1.2, "full"), (1.0, "poisson"), (1.5, "full")):
            set_budget(silo_folder, Budget(2.0 if epsilon < 1.5 else 4.0, 1e-6), note="a test")
            plan = approved_by(gate, plan_of(epsilon=epsilon, sampling=sampling))
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


def test_a_budget_that_allows_less_to_any_observer_or_a_smaller_delta_does_not_cover_the_other() -> None:
    wide, narrow = Budget(1.4, 1e-6, anyone=3.0), Budget(1.4, 1e-6)
    assert wide.covers(narrow)
    assert not narrow.covers(wide)
    assert not Budget(1.4, 1e-7).covers(narrow)


def test_a_plan_that_does_not_fit_is_refused_with_the_plans_that_are_running_and_could_be_ended(
    gate: Gate, ledger: Ledger, plan_of: MakePlan
) -> None:
    running, ended = approved_by(gate, plan_of(epsilon=1.0)), approved_by(gate, plan_of(epsilon=0.5, rounds=3))
    gate.end(ended)
    too_much = plan_of(epsilon=1.9)
    with pytest.raises(ApprovalError) as problem:
        gate.check(too_much)
    assert f"--end PLAN`; running: {running.digest()[:12]})" in str(problem.value)
    ledger.grant(Budget(0.5, 1e-6))
    with pytest.raises(ApprovalError) as problem:  # the plan itself is running, and ending it would not help
        gate.check(running)
    assert "running:" not in str(problem.value)
