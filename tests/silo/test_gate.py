"""The gate lets out what was approved, once, and nothing else."""

import ast
import json
import threading
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from ringfence.accounting import accountant
from ringfence.accounting.charges import plan_events
from ringfence.errors import ApprovalError
from ringfence.planning.request import Member
from ringfence.protocol.channels import Channel
from ringfence.protocol.domain import Ball
from ringfence.protocol.messages import Answer, NoisyUpdate, Refusal, RefusalReason, RoundRequest, unpack
from ringfence.protocol.questions import Question
from ringfence.protocol.sampling import Sampling, SamplingName
from ringfence.protocol.schema import Schema
from ringfence.silo import gate as gate_module
from ringfence.silo import mechanism
from ringfence.silo.budget import Budget
from ringfence.silo.gate import Gate
from ringfence.silo.ledger import LOGGED_REFUSALS, Ledger
from ringfence.silo.records import Records
from tests.support import (
    MakePlan,
    ask,
    charged_when_drawn,
    clip_of,
    own_terms,
    rebuilt,
    refusal,
    renoised,
    spent,
    watch_draws,
)


def test_an_approved_round_is_answered_with_one_vector_of_the_plan_s_dimension(gate: Gate, plan_of: MakePlan) -> None:
    plan = plan_of()
    gate.approve(plan)
    answer = ask(gate, plan, 0)
    assert isinstance(answer, NoisyUpdate)
    assert unpack(answer.vector).shape == (plan.dimension,)
    assert set(json.loads(answer.to_bytes())) == {"kind", "plan", "round", "silo", "vector"}


def test_nothing_is_answered_without_approval(gate: Gate, ledger: Ledger, plan_of: MakePlan) -> None:
    assert refusal(ask(gate, plan_of(), 0)) is RefusalReason.NOT_APPROVED
    assert ledger.account().charged() == []


def test_a_repeated_request_gets_the_stored_bytes_and_costs_nothing(
    gate: Gate, ledger: Ledger, plan_of: MakePlan
) -> None:
    plan = plan_of()
    gate.approve(plan)
    first = ask(gate, plan, 0, 0.1)
    before = ledger.account().spent()
    for _ in range(3):
        assert ask(gate, plan, 0, 0.1).to_bytes() == first.to_bytes()
    assert ledger.account().spent() == before


def test_other_weights_for_an_answered_round_are_refused_and_cost_nothing(
    gate: Gate, ledger: Ledger, plan_of: MakePlan
) -> None:
    plan = plan_of()
    gate.approve(plan)
    ask(gate, plan, 0, 0.1)
    before = ledger.account().spent()
    assert refusal(ask(gate, plan, 0, 0.2)) is RefusalReason.ROUND_ANSWERED
    assert ledger.account().spent() == before


def test_each_round_draws_fresh_noise(gate: Gate, plan_of: MakePlan) -> None:
    plan = plan_of(rounds=4)
    gate.approve(plan)
    answers = [ask(gate, plan, round) for round in range(4)]
    assert len({answer.vector for answer in answers if isinstance(answer, NoisyUpdate)}) == 4


def test_rounds_may_be_left_out_but_never_go_back(gate: Gate, plan_of: MakePlan) -> None:
    plan = plan_of()
    gate.approve(plan)
    assert isinstance(ask(gate, plan, 2), NoisyUpdate)
    assert refusal(ask(gate, plan, 1)) is RefusalReason.ROUND_PASSED
    assert isinstance(ask(gate, plan, 4), NoisyUpdate)


def test_there_is_no_round_beyond_the_plan(gate: Gate, plan_of: MakePlan) -> None:
    plan = plan_of(rounds=5)
    gate.approve(plan)
    assert refusal(ask(gate, plan, 5)) is RefusalReason.ROUND_OUT_OF_RANGE


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300, 1e9])
def test_weights_outside_the_domain_are_refused_and_cost_nothing(
    gate: Gate, ledger: Ledger, plan_of: MakePlan, bad: float
) -> None:
    plan = plan_of(domain=Ball(radius=10.0))
    gate.approve(plan)
    weights = np.zeros(plan.dimension)
    weights[1] = bad
    assert refusal(ask(gate, plan, 0, weights)) is RefusalReason.OUTSIDE_DOMAIN
    assert ledger.account().charged() == []
    assert isinstance(ask(gate, plan, 0), NoisyUpdate)


@pytest.mark.parametrize("length", [1, 3, 5, 100_000])
def test_weights_of_another_length_are_refused_and_cost_nothing(
    gate: Gate, ledger: Ledger, plan_of: MakePlan, length: int
) -> None:
    plan = plan_of()
    gate.approve(plan)
    assert refusal(gate.answer(RoundRequest.at(plan.digest(), 0, np.zeros(length)))) is RefusalReason.MALFORMED
    assert ledger.account().charged() == []


def test_a_revoked_plan_answers_nothing_not_even_what_it_answered_before(gate: Gate, plan_of: MakePlan) -> None:
    plan = plan_of()
    gate.approve(plan)
    ask(gate, plan, 0)
    gate.end(plan, revoke=True)
    assert refusal(ask(gate, plan, 0)) is RefusalReason.REVOKED
    assert refusal(ask(gate, plan, 1)) is RefusalReason.REVOKED


def test_a_finished_plan_repeats_its_answers_and_gives_no_new_ones(gate: Gate, plan_of: MakePlan) -> None:
    plan = plan_of()
    gate.approve(plan)
    first = ask(gate, plan, 0)
    gate.end(plan)
    assert ask(gate, plan, 0).to_bytes() == first.to_bytes()
    assert refusal(ask(gate, plan, 1)) is RefusalReason.REVOKED


def test_a_plan_whose_noise_does_not_deliver_its_claim_is_not_approved(gate: Gate, plan_of: MakePlan) -> None:
    plan = plan_of(epsilon=1.0)
    with pytest.raises(ApprovalError, match="noise gives epsilon"):
        gate.approve(renoised(plan, sigma=0.999 * own_terms(plan).sigma))
    gate.approve(plan)


def test_a_plan_beyond_the_budget_is_not_approved(gate: Gate, ledger: Ledger, plan_of: MakePlan) -> None:
    with pytest.raises(ApprovalError, match="more than its budget"):
        gate.approve(plan_of(epsilon=2.5))
    assert ledger.account().plans == {}


def test_several_plans_on_one_data_set_compose_exactly(gate: Gate, ledger: Ledger, plan_of: MakePlan) -> None:
    first, second = plan_of(epsilon=1.0), plan_of(epsilon=1.0, sampling="fixed")
    gate.approve(first)
    gate.approve(second)
    for plan in (first, second):
        for round in range(plan.steps):
            assert isinstance(ask(gate, plan, round), NoisyUpdate)
    events = [event for plan in (first, second) for event in plan_events(plan, plan.silos[0])]
    total = spent(ledger)
    assert total == pytest.approx(accountant.epsilon(events, 1e-6), rel=1e-9)
    assert 1.0 < total < 2.0  # less than the sum of the two


def test_approval_reserves_so_that_two_plans_cannot_promise_the_same_budget(gate: Gate, plan_of: MakePlan) -> None:
    gate.approve(plan_of(epsilon=1.5))
    with pytest.raises(ApprovalError, match="more than its budget"):
        gate.approve(plan_of(epsilon=1.5))


def test_ending_a_plan_gives_back_what_it_did_not_use(gate: Gate, plan_of: MakePlan) -> None:
    unused = plan_of(epsilon=1.5)
    gate.approve(unused)
    gate.end(unused)
    gate.approve(plan_of(epsilon=1.9))


def test_a_lowered_budget_stops_plans_approved_under_the_larger_one(
    gate: Gate, ledger: Ledger, plan_of: MakePlan
) -> None:
    plan = plan_of(epsilon=1.5)
    gate.approve(plan)
    ledger.grant(Budget(1.0, 1e-6))
    assert refusal(ask(gate, plan, 0)) is RefusalReason.BUDGET
    assert ledger.account().charged() == []


def test_a_budget_raised_spent_and_lowered_again_answers_nothing_more(
    gate: Gate, ledger: Ledger, plan_of: MakePlan
) -> None:
    """The first plan fits the small budget by itself, but not beside what the second one spent meanwhile."""
    ledger.grant(Budget(1.0, 1e-6))
    first = plan_of(epsilon=0.9)
    gate.approve(first)
    ledger.grant(Budget(5.0, 1e-6))
    second = plan_of(epsilon=4.0)
    gate.approve(second)
    for round in range(second.rounds):
        assert isinstance(ask(gate, second, round), NoisyUpdate)
    gate.end(second)
    ledger.grant(Budget(1.0, 1e-6))
    before = ledger.account().spent()
    assert refusal(ask(gate, first, 0)) is RefusalReason.BUDGET
    assert ledger.account().spent() == before
    with pytest.raises(ApprovalError, match="more than its budget"):
        gate.approve(first)


def test_a_raised_budget_leaves_running_plans_alone_and_a_lowered_one_that_still_suffices_asks_again(
    gate: Gate, ledger: Ledger, plan_of: MakePlan
) -> None:
    plan = plan_of(epsilon=0.5)
    gate.approve(plan)
    ledger.grant(Budget(3.0, 1e-6))
    assert isinstance(ask(gate, plan, 0), NoisyUpdate)
    ledger.grant(Budget(1.0, 1e-6))
    assert refusal(ask(gate, plan, 1)) is RefusalReason.BUDGET
    gate.approve(plan)
    assert isinstance(ask(gate, plan, 1), NoisyUpdate)


def test_a_plan_about_other_records_is_not_approved(gate: Gate, plan_of: MakePlan) -> None:
    with pytest.raises(ApprovalError, match="the plan names 41 records, but there are 40"):
        gate.approve(plan_of(members=[Member("clinic", 41, 1.0, 1e-6)]))
    with pytest.raises(ApprovalError, match="no part"):
        gate.approve(plan_of(members=[Member("bank", 40, 1.0, 1e-6)]))


def test_a_plan_under_another_schema_is_not_approved(gate: Gate, plan_of: MakePlan, schema: Schema) -> None:
    plan = plan_of()
    with pytest.raises(ApprovalError, match="another schema"):
        gate.approve(rebuilt(plan, data=schema.model_copy(update={"radius": 1.0})))


def test_records_changed_since_the_approval_are_not_released_from(
    gate: Gate, ledger: Ledger, records: Records, plan_of: MakePlan
) -> None:
    plan = plan_of()
    gate.approve(plan)
    fewer = Gate(records.take(np.arange(30)), ledger)
    assert refusal(ask(fewer, plan, 0)) is RefusalReason.NOT_APPROVED
    assert ledger.account().charged() == []


@pytest.mark.parametrize("sampling", ["full", "fixed", "poisson", "one-pass"])
def test_the_same_draws_through_gate_and_bare_mechanism_give_the_same_bytes(
    gate: Gate, records: Records, plan_of: MakePlan, sampling: SamplingName, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = watch_draws(monkeypatch)
    plan = plan_of(sampling=sampling)
    gate.approve(plan)
    random = np.random.default_rng(3)
    for round in range(plan.steps):
        weights = random.normal(size=plan.dimension)
        answer = ask(gate, plan, round, weights)
        assert isinstance(answer, NoisyUpdate)
        work, draws = drawn[round]
        bare = mechanism.release(plan, work, weights, records, draws)
        assert unpack(answer.vector).tobytes() == bare.tobytes()


def test_the_charge_is_on_disk_before_anything_is_drawn(
    gate: Gate, ledger: Ledger, plan_of: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = charged_when_drawn(monkeypatch, ledger.path)
    plan = plan_of(rounds=3)
    gate.approve(plan)
    for round in range(3):
        ask(gate, plan, round)
    assert seen == [1, 2, 3]


def test_many_callers_at_once_get_one_answer_per_round(gate: Gate, ledger: Ledger, plan_of: MakePlan) -> None:
    plan = plan_of(rounds=3)
    gate.approve(plan)
    answers: list[Answer] = []
    threads = [
        threading.Thread(target=lambda r=round: answers.append(ask(gate, plan, r)))
        for round in range(3)
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    updates = {(a.round, a.vector) for a in answers if isinstance(a, NoisyUpdate)}
    charged = ledger.account().plans[plan.digest()].rounds
    assert {round for round, _ in updates} == set(charged)
    assert len(updates) == len(charged)
    assert all(refusal(a) is RefusalReason.ROUND_PASSED for a in answers if isinstance(a, Refusal))


def test_two_gates_on_one_ledger_never_answer_a_round_twice(
    gate: Gate, ledger: Ledger, records: Records, plan_of: MakePlan
) -> None:
    plan = plan_of()
    gate.approve(plan)
    with Ledger.open(ledger.path) as other_ledger:
        other = Gate(records, other_ledger)
        first = ask(gate, plan, 0)
        assert ask(other, plan, 0).to_bytes() == first.to_bytes()
        second = ask(other, plan, 1)
        assert ask(gate, plan, 1).to_bytes() == second.to_bytes()
    assert len(ledger.account().plans[plan.digest()].rounds) == 2


def test_refusals_are_logged_with_their_reason_up_to_a_limit(
    gate: Gate, ledger: Ledger, plan_of: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert LOGGED_REFUSALS >= 1000
    monkeypatch.setattr(gate_module, "LOGGED_REFUSALS", 5)
    for round in range(8):
        ask(gate, plan_of(), round)
    logged = [entry for entry in ledger.entries() if entry.kind == "refused"]
    assert [entry.body["reason"] for entry in logged] == ["not-approved"] * 5


def test_a_silo_with_one_record_is_protected_like_any_other(
    tmp_path: Path, records: Records, plan_of: MakePlan
) -> None:
    plan = plan_of(members=[Member("hermit", 1, 1.0, 1e-6)])
    with Ledger.create(tmp_path / "hermit.ledger", silo="hermit", budget=Budget(1.0, 1e-6)) as ledger:
        gate = Gate(records.take(np.array([0])), ledger)
        gate.approve(plan)
        assert isinstance(ask(gate, plan, 0), NoisyUpdate)
    # The noise must hide all of the one record: at least its clip.
    assert own_terms(plan).sigma > 2 * clip_of(plan)


KINDS = [kind for union in (Question, Channel, Sampling) for kind in get_args(get_args(union)[0])]
CLASSES = {kind.__name__ for kind in KINDS}
NAMES = {str(kind.model_fields["name"].default) for kind in KINDS}


def named_in(path: Path) -> set[str]:
    """Return which questions, channels and rules a file imports or names, as a class or as text."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Name | ast.Attribute):
            found |= CLASSES & {node.id if isinstance(node, ast.Name) else node.attr}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= NAMES & {node.value}
        elif isinstance(node, ast.Import | ast.ImportFrom):
            parts = f"{getattr(node, 'module', '')}.{'.'.join(alias.name for alias in node.names)}".replace("_", "-")
            found |= (CLASSES | NAMES) & set(parts.split("."))
    return found


def test_the_gate_and_what_stands_beside_it_name_no_question_no_channel_and_no_sampling_rule() -> None:
    """Whatever a plan may ask in later versions, a gate charges, releases and stores it by the same few lines."""
    assert {"Gradient", "OwnNoise", "Poisson"} <= CLASSES
    assert {"moments", "own-noise", "shuffler", "one-pass"} <= NAMES
    room = Path(gate_module.__file__).parent
    assert named_in(room / "sampling.py") >= {"Poisson", "OnePass"}  # which draws by each rule
    assert named_in(room / "channels" / "own_noise.py") >= {"OwnNoise"}
    assert {path.name for path in room.glob("*.py") if named_in(path)} == {"sampling.py"}


def test_one_pass_uses_every_record_at_most_once_and_wastes_none_on_missed_rounds(
    gate: Gate, ledger: Ledger, plan_of: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = watch_draws(monkeypatch)
    plan = plan_of(sampling="one-pass", rounds=5)
    gate.approve(plan)
    for round in (0, 2, 4):
        ask(gate, plan, round)
    used = [draws.participation for _, draws in drawn]
    assert np.sum(used, axis=0).max() == 1.0
    assert [participation.sum() for participation in used] == [8.0, 8.0, 8.0]
    once = accountant.epsilon(plan_events(plan, plan.silos[0]), 1e-6)
    assert spent(ledger) == pytest.approx(once)
