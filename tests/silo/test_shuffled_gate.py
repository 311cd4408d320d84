"""The gate of a plan that trusts a shuffler: charged for both views, sealed to two keys, answered once."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringfence.errors import ApprovalError, MessageError
from ringfence.planning import accountant
from ringfence.planning.charges import plan_events
from ringfence.planning.events import BinomialRelease, as_seen_alone
from ringfence.protocol.messages import Reason, SealedUpdate, parse_answer
from ringfence.protocol.plan import Plan
from ringfence.protocol.schedule import task
from ringfence.shuffle import sealing, vector_sum
from ringfence.shuffle.local import LocalShuffler, local_shuffler
from ringfence.silo import sealed as silo_sealed
from ringfence.silo.gate import Gate
from ringfence.silo.ledger import Budget, Ledger
from ringfence.silo.records import Records
from tests.shuffle.mixed import (
    DELTA,
    NAMES,
    Federation,
    federation,
    make_mixed,
    opened_by_both,
    records_of,
    schema_of,
    shuffle_of,
)
from tests.support import ask, charged_when_drawn, refusal, watch_draws


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Federation]:
    """Three silos of 40 records."""
    with federation(tmp_path) as opened:
        yield opened


@pytest.fixture(scope="module")
def local() -> Iterator[LocalShuffler]:
    with local_shuffler(NAMES) as made:
        yield made


@pytest.fixture
def plan(local: LocalShuffler) -> Plan:
    return make_mixed(schema_of(3), local.keys, dict.fromkeys(NAMES, 40))


@pytest.fixture
def records() -> Records:
    return records_of(schema_of(3), 40, 0)


def open_ledger(folder: Path, budget: Budget) -> Ledger:
    return Ledger.create(folder / "own.ledger", silo="clinic", budget=budget)


def sealed(gate: Gate, plan: Plan, round: int, weights: float = 0.0) -> SealedUpdate:
    answer = ask(gate, plan, round, weights)
    assert isinstance(answer, SealedUpdate)
    return answer


def changed(plan: Plan, **changes: Any) -> Plan:
    """A plan with other terms for the clinic."""
    first, *others = plan.silos
    copy = plan.model_copy(update={"silos": (first.model_copy(update=changes), *others)})
    return Plan.model_validate(copy.model_dump())


def test_the_answer_is_the_counts_of_the_true_sum_and_these_draws_and_nothing_else(
    made: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = watch_draws(monkeypatch)
    weights, plan, own = 0.3, made.plan, made.records["clinic"]
    answer = sealed(made.gates["clinic"], plan, 0, weights)
    [(work, draws)] = drawn
    assert draws.rounding is not None
    # The gradient of log(1 + exp(−y⟨w, x⟩)), record by record.
    total = np.zeros(plan.dimension)
    for features, target in zip(own.features, own.targets, strict=True):
        gradient = -target * features / (1 + np.exp(target * float(features.sum()) * weights))
        total += gradient * min(1.0, plan.clip / float(np.linalg.norm(gradient)))
    shuffle = shuffle_of(plan)
    expected = vector_sum.encode(
        total,
        vectors=40,
        clip=plan.clip,
        levels=shuffle.levels,
        rounding=draws.rounding,
        coins=draws.noise.astype(np.int64),
    )
    found = opened_by_both(made.local, plan, answer)
    assert work.batch == 40
    assert found.tolist() == [*expected.tolist(), 40]
    assert np.all((draws.noise >= 0) & (draws.noise <= 40 * shuffle.coins))


def test_the_shuffler_alone_and_the_server_alone_can_read_nothing(made: Federation) -> None:
    answer = sealed(made.gates["clinic"], made.plan, 0)
    envelope = base64.b64decode(answer.envelope)
    with pytest.raises(MessageError, match="does not open"):  # the server has no part in the outer seal
        sealing.open_envelope(made.local.server, answer.plan, 0, "clinic", envelope)
    shuffler_key = made.local.shuffler._store.key
    joined = sealing.open_envelope(shuffler_key, answer.plan, 0, "clinic", envelope)
    messages = sealing.cut(joined, shuffle_of(made.plan).message_bytes + sealing.SEALED_EXTRA)
    with pytest.raises(MessageError, match="does not open"):  # nor the shuffler in the inner one
        sealing.open_messages(shuffler_key, answer.plan, 0, messages)
    assert len(sealing.open_messages(made.local.server, answer.plan, 0, messages)) == len(messages)
    assert set(SealedUpdate.model_fields) == {"kind", "plan", "round", "silo", "envelope", "signature"}


def test_the_answer_is_signed_by_the_silo_for_this_plan_and_round(made: Federation) -> None:
    answer = sealed(made.gates["clinic"], made.plan, 1)
    key = made.local.keys.silos["clinic"]
    said = (answer.plan, answer.round, answer.silo, answer.envelope)
    assert sealing.verify(key, SealedUpdate.signed_bytes(*said), answer.signature)
    for wrong in (("0" * 64, *said[1:]), (said[0], 0, *said[2:]), (*said[:2], "north", said[3]), (*said[:3], "AAAA")):
        assert not sealing.verify(key, SealedUpdate.signed_bytes(*wrong), answer.signature)


def test_answers_of_all_silos_have_one_length(made: Federation) -> None:
    answers = [answer for round in range(2) for answer in made.answers(round)]
    assert len({len(answer.envelope) for answer in answers}) == 1
    assert len(base64.b64decode(answers[0].envelope)) == shuffle_of(made.plan).envelope_bytes(made.plan.numbers)


def test_a_repeated_request_gets_the_stored_bytes_and_costs_nothing(
    made: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = watch_draws(monkeypatch)
    gate = made.gates["clinic"]
    first = sealed(gate, made.plan, 0)
    again = sealed(gate, made.plan, 0)
    assert again.to_bytes() == first.to_bytes()
    assert len(drawn) == 1
    assert refusal(ask(gate, made.plan, 0, 0.5)) is Reason.ROUND_ANSWERED


def test_the_round_is_on_the_disk_before_anything_is_drawn_and_the_answer_before_it_is_sent(
    made: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = charged_when_drawn(monkeypatch, tmp_path / "clinic.ledger")
    answers = [sealed(made.gates["clinic"], made.plan, round) for round in range(3)]
    assert seen == [1, 2, 3]
    with Ledger.open(tmp_path / "clinic.ledger") as second_reader:
        rounds = second_reader.account().plans[made.plan.digest()].rounds
    assert [rounds[round].answer for round in range(3)] == [answer.to_bytes() for answer in answers]
    stored = rounds[0].answer
    assert stored is not None
    assert isinstance(parse_answer(stored), SealedUpdate)


def test_a_round_that_was_charged_and_not_sealed_is_never_drawn_again(
    made: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    class PowerCutError(Exception):
        pass

    def cut(*_: Any) -> SealedUpdate:
        raise PowerCutError

    drawn = watch_draws(monkeypatch)
    with monkeypatch.context() as broken:
        broken.setattr(silo_sealed, "seal", cut)
        with pytest.raises(PowerCutError):
            ask(made.gates["clinic"], made.plan, 0)
    assert refusal(ask(made.gates["clinic"], made.plan, 0)) is Reason.ROUND_LOST
    assert len(drawn) == 1


def test_the_ledger_shows_what_both_views_cost(made: Federation, tmp_path: Path) -> None:
    for round in range(3):
        sealed(made.gates["clinic"], made.plan, round)
    terms = made.plan.terms("clinic")
    assert terms is not None
    with Ledger.open(tmp_path / "clinic.ledger") as second_reader:
        account = second_reader.account()
    events = plan_events(made.plan, terms)
    assert account.spent() == pytest.approx(accountant.epsilon(events, DELTA), rel=1e-9)
    assert account.spent_alone() == pytest.approx(accountant.epsilon(as_seen_alone(events), DELTA), rel=1e-9)
    assert account.spent() <= terms.epsilon < account.spent_alone()
    assert terms.alone_epsilon is not None
    assert account.spent_alone() <= terms.alone_epsilon < account.spent_alone() * (1 + 1e-5)
    assert all(isinstance(event, BinomialRelease) for event, _ in account.charged())


# -- approval --


def test_another_key_than_the_plan_s_or_none_is_refused(plan: Plan, records: Records, tmp_path: Path) -> None:
    with open_ledger(tmp_path, Budget(9.0, DELTA)) as ledger:
        for key in (None, sealing.new_key()):
            with pytest.raises(ApprovalError, match=r"signs with another key.*silo status"):
                Gate(records, ledger, key).approve(plan)
        assert not ledger.account().plans


def test_keys_that_nothing_can_be_sealed_to_are_refused_before_anything_is_charged(
    plan: Plan, local: LocalShuffler, records: Records, tmp_path: Path
) -> None:
    """The point 0 of the curve: with it everybody would agree on the same secret."""
    for field in ("server_key", "shuffler_key"):
        broken = plan.model_dump()
        broken["shuffle"][field] = "0" * 64
        folder = tmp_path / field
        folder.mkdir()
        with open_ledger(folder, Budget(9.0, DELTA)) as ledger:
            gate = Gate(records, ledger, local.silos["clinic"])
            with pytest.raises(ApprovalError, match="not an X25519 public key"):
                gate.approve(Plan.model_validate(broken))


def test_a_claim_that_the_coins_do_not_keep_is_refused_in_either_view(
    plan: Plan, local: LocalShuffler, records: Records, tmp_path: Path
) -> None:
    first = plan.silos[0]
    assert first.alone_epsilon is not None
    with open_ledger(tmp_path, Budget(9.0, DELTA)) as ledger:
        gate = Gate(records, ledger, local.silos["clinic"])
        with pytest.raises(ApprovalError, match=r"claims epsilon 0\.9 .* but its noise gives") as server:
            gate.approve(changed(plan, epsilon=0.9))
        assert "works together" not in str(server.value)
        lower = changed(plan, alone_epsilon=0.999 * first.alone_epsilon)
        with pytest.raises(ApprovalError, match=r"against a server that works together with the shuffler, but its"):
            gate.approve(lower)
        gate.approve(plan)


def test_coins_that_are_too_few_for_any_claim_are_refused(
    plan: Plan, local: LocalShuffler, records: Records, tmp_path: Path
) -> None:
    """One coin a record: 40 of the silo's own, on which nothing can be proved at so small a delta."""
    weak = plan.model_dump()
    weak["shuffle"]["coins"] = 1
    for terms in weak["silos"]:
        terms["sigma"] *= shuffle_of(plan).coins ** -0.5
        terms["alone_epsilon"] = terms["epsilon"] = 1e6
    with open_ledger(tmp_path, Budget(9.0, DELTA)) as ledger, pytest.raises(ApprovalError, match="gives epsilon inf"):
        Gate(records, ledger, local.silos["clinic"]).approve(Plan.model_validate(weak))


def test_shares_that_do_not_hide_whose_counts_are_whose_are_refused(
    plan: Plan, local: LocalShuffler, records: Records, tmp_path: Path
) -> None:
    few = plan.model_dump()
    few["shuffle"]["shares"] -= 1
    with open_ledger(tmp_path, Budget(9.0, DELTA)) as ledger:
        gate = Gate(records, ledger, local.silos["clinic"])
        with pytest.raises(ApprovalError, match="not proved to be hidden"):
            gate.approve(Plan.model_validate(few))


def test_a_budget_covers_both_views_unless_the_operator_says_otherwise(
    plan: Plan, local: LocalShuffler, records: Records, tmp_path: Path
) -> None:
    first = plan.silos[0]
    assert first.alone_epsilon is not None
    enough = (first.epsilon + first.alone_epsilon) / 2
    for number, (budget, fits) in enumerate(
        [
            (Budget(enough, DELTA), False),
            (Budget(enough, DELTA, enough), False),
            (Budget(enough, DELTA, first.alone_epsilon), True),
            (Budget(first.alone_epsilon, DELTA), True),
            (Budget(0.9, DELTA, 100.0), False),
        ]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        with open_ledger(folder, budget) as ledger:
            gate = Gate(records, ledger, local.silos["clinic"])
            if fits:
                gate.approve(plan)
                continue
            against = "works together with the shuffler, more than" if budget.epsilon > 1 else "more than its budget"
            with pytest.raises(ApprovalError, match=against):
                gate.approve(plan)
            assert not ledger.account().plans


def test_two_plans_must_fit_together_in_both_views(local: LocalShuffler, records: Records, tmp_path: Path) -> None:
    one, two = (make_mixed(schema_of(3), local.keys, dict.fromkeys(NAMES, 40), run=run) for run in ("one", "two"))
    alone = one.silos[0].alone_epsilon
    assert alone is not None
    with open_ledger(tmp_path, Budget(5.0, DELTA, 5.0)) as ledger:
        gate = Gate(records, ledger, local.silos["clinic"])
        gate.approve(one)
        ledger.grant(Budget(2.0, DELTA, 1.1 * max(alone, 2.0)))
        with pytest.raises(ApprovalError, match="works together with the shuffler"):
            gate.approve(two)
        gate.end(one)
        gate.approve(two)


def test_lowering_what_is_allowed_without_the_shuffler_stops_running_plans_until_they_are_approved_again(
    made: Federation, tmp_path: Path
) -> None:
    gate = made.gates["clinic"]
    terms = made.plan.terms("clinic")
    assert terms is not None
    assert terms.alone_epsilon is not None
    with Ledger.open(tmp_path / "clinic.ledger") as operator:
        operator.grant(Budget(100.0, DELTA, 200.0))
        sealed(gate, made.plan, 0)
        operator.grant(Budget(100.0, DELTA, 150.0))
        assert refusal(ask(gate, made.plan, 1)) is Reason.BUDGET
        operator.grant(Budget(terms.epsilon, DELTA, terms.alone_epsilon * 0.99))
        with pytest.raises(ApprovalError, match="works together with the shuffler"):
            gate.approve(made.plan)
        operator.grant(Budget(terms.epsilon, DELTA, terms.alone_epsilon))
        gate.approve(made.plan)
        sealed(gate, made.plan, 1)


def test_one_pass_answers_are_charged_as_parts_and_cost_no_more_together_than_one(tmp_path: Path) -> None:
    with federation(tmp_path, records=120, sampling="one-pass") as made:
        for round in range(3):
            sealed(made.gates["clinic"], made.plan, round)
        terms = made.plan.terms("clinic")
        assert terms is not None
        with Ledger.open(tmp_path / "clinic.ledger") as second_reader:
            account = second_reader.account()
    charged = [event for event, _ in account.charged()]
    assert sorted((event.partition, event.part) for event in charged if isinstance(event, BinomialRelease)) == [
        (made.plan.digest(), part) for part in range(3)
    ]
    assert account.spent() <= terms.epsilon
    assert task(made.plan, terms, 2, 2).batch == 40
