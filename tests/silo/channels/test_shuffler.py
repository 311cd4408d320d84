"""The gate of a plan that trusts a shuffler: charged for both views, sealed to two keys, answered once."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringfence.accounting import accountant
from ringfence.accounting.charges import plan_events
from ringfence.accounting.events import BinomialRelease, seen_by
from ringfence.errors import ApprovalError, MessageError
from ringfence.federation.local_shuffler import LocalShuffler, local_shuffler
from ringfence.protocol import Guarantee, Observer, Plan, SealedUpdate, StageTerms, against_words
from ringfence.protocol.channels.shuffler import SEALED_EXTRA
from ringfence.protocol.plan.plan import task
from ringfence.shuffler import sealing, vector_sum
from ringfence.silo.channels.shuffler import Coins
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.ledger import Ledger
from ringfence.silo.records.records import Records
from tests.shuffler.shuffled_federation import (
    DELTA,
    NAMES,
    Federation,
    federation,
    make_shuffled_plan,
    numbers_of,
    opened_by_both,
    records_of,
    schema_of,
    shuffle_of,
)
from tests.support import ask, clip_of, rebuilt, restaged, spent, watch_draws


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
    return make_shuffled_plan(schema_of(3), local.keys, dict.fromkeys(NAMES, 40))


@pytest.fixture
def records() -> Records:
    return records_of(schema_of(3), 40, 0)


def open_ledger(folder: Path, budget: Budget) -> Ledger:
    return Ledger.create(folder / "own.ledger", silo="clinic", budget=budget)


def sealed(gate: Gate, plan: Plan, round: int, weights: float = 0.0) -> SealedUpdate:
    answer = ask(gate, plan, round, weights)
    assert isinstance(answer, SealedUpdate)
    return answer


def claiming(plan: Plan, observer: Observer, epsilon: float) -> Plan:
    """A plan that claims another epsilon for the clinic, against one observer."""
    first, *others = plan.silos
    claims = tuple(
        claim.model_copy(update={"epsilon": epsilon}) if claim.against == observer else claim
        for claim in first.guarantees
    )
    return rebuilt(plan, silos=(first.model_copy(update={"guarantees": claims}), *others))


def with_channel(plan: Plan, **changes: Any) -> Plan:
    """A plan with other parameters of its channel."""
    return restaged(plan, channel=shuffle_of(plan).model_copy(update=changes))


def test_the_answer_is_the_counts_of_the_true_sum_and_these_draws_and_nothing_else(
    made: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = watch_draws(monkeypatch)
    weights, plan, own = 0.3, made.plan, made.records["clinic"]
    answer = sealed(made.gates["clinic"], plan, 0, weights)
    [(work, draws)] = drawn
    assert isinstance(draws.noise, Coins)
    # The gradient of log(1 + exp(−y⟨w, x⟩)), record by record.
    total = np.zeros(plan.dimension)
    for features, target in zip(own.features, own.targets, strict=True):
        gradient = -target * features / (1 + np.exp(target * float(features.sum()) * weights))
        total += gradient * min(1.0, clip_of(plan) / float(np.linalg.norm(gradient)))
    shuffle = shuffle_of(plan)
    expected = vector_sum.encode_sum(
        total,
        vectors=40,
        clip=clip_of(plan),
        levels=shuffle.levels,
        rounding=draws.noise.rounding,
        coins=draws.noise.heads,
    )
    found = opened_by_both(made.local, plan, answer)
    assert work.batch == 40
    assert found.tolist() == [*expected.tolist(), 40]
    assert np.all((draws.noise.heads >= 0) & (draws.noise.heads <= 40 * shuffle.coins))
    assert np.all((draws.noise.rounding >= 0) & (draws.noise.rounding < 1))


def test_the_shuffler_alone_and_the_server_alone_can_read_nothing(made: Federation) -> None:
    answer = sealed(made.gates["clinic"], made.plan, 0)
    envelope = base64.b64decode(answer.envelope)
    with pytest.raises(MessageError, match="does not open"):  # the server has no part in the outer seal
        sealing.open_envelope(made.local.server, answer.plan, 0, "clinic", envelope)
    shuffler_key = made.local.shuffler._store.key
    joined = sealing.open_envelope(shuffler_key, answer.plan, 0, "clinic", envelope)
    messages = sealing.split_messages(joined, shuffle_of(made.plan).message_bytes + SEALED_EXTRA)
    with pytest.raises(MessageError, match="does not open"):  # nor the shuffler in the inner one
        sealing.open_messages(shuffler_key, answer.plan, 0, messages)
    assert len(sealing.open_messages(made.local.server, answer.plan, 0, messages)) == len(messages)
    assert set(SealedUpdate.model_fields) == {"kind", "plan", "round", "silo", "envelope", "signature", "head"}


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
    assert len(base64.b64decode(answers[0].envelope)) == shuffle_of(made.plan).envelope_bytes(numbers_of(made.plan))


def test_the_ledger_shows_what_both_views_cost(made: Federation, tmp_path: Path) -> None:
    for round in range(3):
        sealed(made.gates["clinic"], made.plan, round)
    terms = made.plan.terms("clinic")
    assert terms is not None
    with Ledger.open(tmp_path / "clinic.ledger") as second_reader:
        shuffled, alone = spent(second_reader, "server"), spent(second_reader, "anyone")
        charged = second_reader.account().charged()
    events = plan_events(made.plan, terms)
    assert shuffled == pytest.approx(accountant.epsilon(events, DELTA), rel=1e-9)
    assert alone == pytest.approx(accountant.epsilon(seen_by("anyone", events), DELTA), rel=1e-9)
    assert shuffled <= terms.against("server").epsilon < alone
    assert alone <= terms.against("anyone").epsilon < alone * (1 + 1e-5)
    assert all(isinstance(event, BinomialRelease) for event, _ in charged)


# -- approval --


def test_another_key_than_the_plan_s_or_none_is_refused(plan: Plan, records: Records, tmp_path: Path) -> None:
    with open_ledger(tmp_path, Budget(9.0, DELTA)) as ledger:
        for key in (None, sealing.new_key()):
            with pytest.raises(ApprovalError, match=r"names another key.*silo status"):
                Gate(records, ledger, key).approve(plan)
        assert not ledger.account().plans


def test_keys_that_nothing_can_be_sealed_to_are_refused_before_anything_is_charged(
    plan: Plan, local: LocalShuffler, records: Records, tmp_path: Path
) -> None:
    """The point 0 of the curve: with it everybody would agree on the same secret."""
    for field in ("server_key", "shuffler_key"):
        folder = tmp_path / field
        folder.mkdir()
        with open_ledger(folder, Budget(9.0, DELTA)) as ledger:
            gate = Gate(records, ledger, local.silos["clinic"])
            with pytest.raises(ApprovalError, match="not a valid key"):
                gate.approve(with_channel(plan, **{field: "0" * 64}))


def test_a_claim_that_the_coins_do_not_keep_is_refused_in_either_view(
    plan: Plan, local: LocalShuffler, records: Records, tmp_path: Path
) -> None:
    alone = plan.silos[0].against("anyone").epsilon
    with open_ledger(tmp_path, Budget(9.0, DELTA)) as ledger:
        gate = Gate(records, ledger, local.silos["clinic"])
        with pytest.raises(ApprovalError, match=r"claims epsilon 0\.9 .* but its noise gives") as server:
            gate.approve(claiming(plan, "server", 0.9))
        assert against_words("server", 1) in str(server.value)
        with pytest.raises(ApprovalError, match=f"{against_words('anyone')}, but its noise gives"):
            gate.approve(claiming(plan, "anyone", 0.999 * alone))
        gate.approve(plan)


def test_coins_that_are_too_few_for_any_claim_are_refused(
    plan: Plan, local: LocalShuffler, records: Records, tmp_path: Path
) -> None:
    """One coin a record: 40 of the silo's own, on which nothing can be proved at so small a delta."""
    channel = shuffle_of(plan).model_copy(update={"coins": 1})
    own = StageTerms(batch=40, sigma=channel.sigma(clip_of(plan), 40))
    claims = tuple(Guarantee(epsilon=1e6, delta=DELTA, against=observer) for observer in plan.observers)
    silos = tuple(terms.model_copy(update={"guarantees": claims, "stages": (own,)}) for terms in plan.silos)
    weak = rebuilt(plan, stages=(plan.stages[0].model_copy(update={"channel": channel}),), silos=silos)
    with open_ledger(tmp_path, Budget(9.0, DELTA)) as ledger, pytest.raises(ApprovalError, match="gives epsilon inf"):
        Gate(records, ledger, local.silos["clinic"]).approve(weak)


def test_shares_that_do_not_hide_whose_counts_are_whose_are_refused(
    plan: Plan, local: LocalShuffler, records: Records, tmp_path: Path
) -> None:
    few = with_channel(plan, shares=shuffle_of(plan).shares - 1)
    with open_ledger(tmp_path, Budget(9.0, DELTA)) as ledger:
        gate = Gate(records, ledger, local.silos["clinic"])
        with pytest.raises(ApprovalError, match="not proved to stay hidden"):
            gate.approve(few)


def test_a_budget_covers_both_views_unless_the_operator_says_otherwise(
    plan: Plan, local: LocalShuffler, records: Records, tmp_path: Path
) -> None:
    server, anyone = (plan.silos[0].against(observer).epsilon for observer in plan.observers)
    enough = (server + anyone) / 2
    for number, (budget, fits) in enumerate(
        [
            (Budget(enough, DELTA), False),
            (Budget(enough, DELTA, anyone=enough), False),
            (Budget(enough, DELTA, anyone=anyone), True),
            (Budget(anyone, DELTA), True),
            (Budget(0.9, DELTA, anyone=100.0), False),
        ]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        with open_ledger(folder, budget) as ledger:
            gate = Gate(records, ledger, local.silos["clinic"])
            if fits:
                gate.approve(plan)
                continue
            against = against_words("anyone" if budget.epsilon > 1 else "server")
            with pytest.raises(ApprovalError, match=f"{against}, more than its budget"):
                gate.approve(plan)
            assert not ledger.account().plans


def test_one_pass_answers_are_charged_as_parts_and_cost_no_more_together_than_one(tmp_path: Path) -> None:
    with federation(tmp_path, records=120, sampling="one-pass") as made:
        for round in range(3):
            sealed(made.gates["clinic"], made.plan, round)
        terms = made.plan.terms("clinic")
        assert terms is not None
        with Ledger.open(tmp_path / "clinic.ledger") as second_reader:
            shuffled = spent(second_reader, "server")
            charged = [event for event, _ in second_reader.account().charged()]
    assert sorted((event.partition, event.part) for event in charged if isinstance(event, BinomialRelease)) == [
        (made.plan.digest(), part) for part in range(3)
    ]
    assert shuffled <= terms.against("server").epsilon
    assert task(made.plan, terms, 2, 2).batch == 40
