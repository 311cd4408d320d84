"""The gate lets out what was approved, once, and nothing else."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringfence.errors import ApprovalError
from ringfence.planning.request import Member
from ringfence.protocol import (
    Ball,
    FloatArray,
    NoisyUpdate,
    Plan,
    RefusalReason,
    RoundRequest,
    Schema,
    parse_schema,
    unpack,
)
from ringfence.protocol.plan.plan import task
from ringfence.silo.channels.own_noise import CorrelatedRounds, grid_exponent
from ringfence.silo.gate import gate as gate_module
from ringfence.silo.gate import mechanism
from ringfence.silo.gate.gate import Gate, terms_in
from ringfence.silo.gate.mechanism import Draws, release
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.ledger import LOGGED_REFUSALS, Ledger
from ringfence.silo.queries import compute
from ringfence.silo.records.records import Records
from ringfence.storage.chain import Draft
from tests.support import (
    Drawn,
    MakePlan,
    approved_by,
    ask,
    ask_all,
    charged_when_drawn,
    clip_of,
    own_terms,
    rebuilt,
    refusal,
    vector,
)


def test_an_approved_round_is_answered_with_one_vector_of_the_plan_s_dimension(gate: Gate, plan: Plan) -> None:
    answer = ask(gate, plan, 0)
    assert isinstance(answer, NoisyUpdate)
    assert unpack(answer.vector).shape == (plan.dimension,)
    assert set(json.loads(answer.to_bytes())) == {"kind", "plan", "round", "silo", "vector"}


def test_rounds_may_be_left_out_but_never_go_back(gate: Gate, plan: Plan) -> None:
    ask_all(gate, plan, [2])
    assert refusal(ask(gate, plan, 1)) is RefusalReason.ROUND_PASSED
    ask_all(gate, plan, [4])


@pytest.mark.parametrize("revoke", [True, False])
def test_an_ended_plan_gives_no_new_answer_and_a_revoked_one_not_even_old_ones(
    gate: Gate, plan: Plan, revoke: bool
) -> None:
    first = ask(gate, plan, 0)
    gate.end(plan, revoke=revoke)
    again = ask(gate, plan, 0)
    assert refusal(again) is RefusalReason.REVOKED if revoke else again.to_bytes() == first.to_bytes()
    assert refusal(ask(gate, plan, 1)) is RefusalReason.REVOKED


OUTSIDE = [np.array([0.0, bad, 0.0, 0.0]) for bad in (np.nan, np.inf, -np.inf, 1e300, 1e9)]


@pytest.mark.parametrize(
    ("argument", "reason"),
    [
        *((argument, RefusalReason.OUTSIDE_DOMAIN) for argument in OUTSIDE),
        *((np.zeros(length), RefusalReason.MALFORMED) for length in (1, 3, 5, 100_000)),
    ],
)
@pytest.mark.parametrize("changes", [{}, {"survey": True, "algorithm": "accelerated"}], ids=["training", "survey"])
def test_an_argument_outside_the_domain_or_of_another_length_is_refused_and_costs_nothing(
    gate: Gate, ledger: Ledger, plan_of: MakePlan, argument: FloatArray, reason: RefusalReason, changes: dict[str, Any]
) -> None:
    plan = approved_by(gate, plan_of(domain=Ball(radius=10.0), **changes))
    assert refusal(gate.answer(RoundRequest.at(plan.digest(), 0, argument))) is reason
    assert ledger.account().charged() == []
    ask_all(gate, plan, [0])


def test_a_plan_about_other_records_or_under_another_schema_is_not_approved(
    gate: Gate, plan_of: MakePlan, schema: Schema
) -> None:
    for plan, says in (
        (plan_of(members=[Member("clinic", 41, 1.0, 1e-6)]), "the plan names 41 records, but there are 40"),
        (plan_of(members=[Member("bank", 40, 1.0, 1e-6)]), "no part"),
        (rebuilt(plan_of(), data=schema.model_copy(update={"radius": 1.0})), "another schema"),
    ):
        with pytest.raises(ApprovalError, match=says):
            gate.approve(plan)


@pytest.mark.parametrize(
    "changes",
    [
        *({"sampling": rule} for rule in ("full", "fixed", "poisson", "one-pass")),
        {"algorithm": "localized", "rounds": 6},
        {"algorithm": "accelerated", "sampling": "one-pass", "correlation": 0.5, "rounds": 10},
    ],
    ids=["full", "fixed", "poisson", "one-pass", "phased", "correlated"],
)
def test_the_same_draws_through_gate_and_bare_mechanism_give_the_same_bytes(
    gate: Gate, records: Records, plan_of: MakePlan, changes: dict[str, Any], drawn: Drawn
) -> None:
    plan = approved_by(gate, plan_of(**changes))
    random, memory = np.random.default_rng(3), CorrelatedRounds() if "correlation" in changes else None
    for round in range(plan.steps):
        weights = random.normal(size=plan.dimension)
        answer = vector(ask(gate, plan, round, weights))
        work, draws = drawn[round]
        assert answer.tobytes() == release(plan, work, weights, records, draws, memory).tobytes()


def test_the_mechanism_adds_the_given_noise_to_every_query_s_exact_answer(plan_of: MakePlan, records: Records) -> None:
    plan = plan_of(survey=True, algorithm="accelerated")
    random = np.random.default_rng(1)
    for round in (0, 1):
        work = task(plan, plan.silos[0], round, 0)
        grid = 2.0 ** grid_exponent(work.sigma)
        noise = grid * np.round(work.sigma / grid * random.normal(size=work.length))
        draws, weights = Draws(np.ones(40), noise), random.normal(size=4)
        answer = release(plan, work, weights, records, draws)
        assert answer.tobytes() == release(plan, work, weights, records, draws).tobytes()
        exact = compute(work.stage.query, plan, weights, records, np.ones(40), 40)
        assert exact.shape == (work.length,)
        np.testing.assert_allclose(answer - noise, exact, rtol=0, atol=grid)


def test_nobody_taking_part_releases_the_noise_alone(plan_of: MakePlan, records: Records) -> None:
    plan = plan_of(sampling="poisson")
    noise = 2.0 ** grid_exponent(own_terms(plan).sigma) * np.arange(4.0)
    work = task(plan, plan.silos[0], 0, 0)
    assert np.array_equal(release(plan, work, np.zeros(4), records, Draws(np.zeros(40), noise)), noise)


def test_the_charge_is_on_disk_before_anything_is_drawn(
    gate: Gate, ledger: Ledger, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = charged_when_drawn(monkeypatch, ledger.path)
    ask_all(gate, plan, range(3))
    assert seen == [1, 2, 3]


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
        ask_all(gate, plan, [0])
    # The noise must hide all of the one record: at least its clip.
    assert own_terms(plan).sigma > 2 * clip_of(plan)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_an_answer_that_is_not_finite_is_lost_and_stays_charged(
    bad: float, gate: Gate, ledger: Ledger, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoilt(*given: Any, **named: Any) -> Any:
        numbers = release(*given, **named)
        numbers[1] = bad
        return numbers

    with monkeypatch.context() as patched:
        patched.setattr(mechanism, "release", spoilt)
        assert refusal(ask(gate, plan, 0)) is RefusalReason.ROUND_LOST
    assert refusal(ask(gate, plan, 0)) is RefusalReason.ROUND_LOST
    kinds = [entry.kind for entry in ledger.entries()]
    assert (kinds.count("charged"), kinds.count("released")) == (1, 0)
    assert np.all(np.isfinite(vector(ask(gate, plan, 1))))


def test_a_withheld_round_of_correlated_noise_is_not_remembered(
    gate: Gate, ledger: Ledger, plan_of: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = approved_by(gate, plan_of(sampling="one-pass", correlation=0.5, rounds=4))
    memories: list[int] = []

    def watched(*given: Any, **named: Any) -> Any:
        memories.append(len(given[5].means))
        numbers = release(*given, **named)
        if len(memories) == 2:
            with Ledger.open(ledger.path) as other:
                other.grant(Budget(1.9, 1e-6))
        return numbers

    monkeypatch.setattr(mechanism, "release", watched)
    ask_all(gate, plan, [0])
    assert refusal(ask(gate, plan, 1)) is RefusalReason.BUDGET
    gate.approve(plan)
    ask_all(gate, plan, [2])
    assert memories == [0, 1, 0]


def test_a_plan_whose_feature_norm_vanishes_is_not_answered_even_if_it_was_approved(
    ledger: Ledger, plan_of: MakePlan
) -> None:
    """An answer would be 0/0."""
    tiny = {"type": "numeric", "lower": -1.0, "upper": 1.0, "scale": 1e200}
    label = {"type": "categorical", "categories": ["no", "yes"]}
    schema = parse_schema({"columns": {"a": tiny, "ill": label}, "intercept": False}, target="ill")
    plan = plan_of().model_copy(update={"data": schema})
    ledger.update(lambda _: (None, [Draft("approved", {"events": []}, plan.content)]))
    gate = Gate(Records(schema, np.full((40, 1), 1e-200), np.ones(40)), ledger)
    assert refusal(ask(gate, plan, 0)) is RefusalReason.NOT_APPROVED
    assert ledger.account().charged() == []


def test_a_plan_has_no_terms_for_a_silo_that_takes_no_part_in_it(plan_of: MakePlan) -> None:
    with pytest.raises(ApprovalError, match="Silo 'stranger' takes no part in this plan"):
        terms_in(plan_of(), "stranger")
