"""The shuffler: what it takes and refuses, and when it releases."""

import itertools
import json
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from ringfence.errors import PlanError, ShufflerError
from ringfence.protocol import Curvature, OwnNoise, Plan, Stage
from ringfence.shuffler import shuffler as shuffler_module
from ringfence.shuffler.sealing import new_key, open_messages, public_key, seal_envelope
from ringfence.shuffler.shuffler import Receipt, Shuffler, ShufflerRefusal, Waiting
from ringfence.shuffler.store import Store
from ringfence.storage.decision_log import DecisionLog
from tests.shuffler.depositors import Depositors, Setting, deposit_all, depositors, make_shuffler, on_the_disk, release
from tests.support import rebuilt

# -- releases --


def test_when_all_silos_are_there_their_messages_come_out_once_each(setting: Setting) -> None:
    shuffler, silos = setting
    sealed = {name: silos.sealed(name) for name in silos.names}
    for name, messages in sealed.items():
        assert shuffler.deposit(silos.update(name, 0, messages)) is Receipt.STORED
    document, messages = silos.read(release(shuffler, silos))
    assert Counter(messages) == Counter(itertools.chain(*sealed.values()))
    assert (document.plan, document.round, document.silos) == (silos.plan.digest(), 0, 3)
    opened = open_messages(silos.server, silos.plan.digest(), 0, messages)
    assert Counter(message.split()[0].decode() for message in opened) == dict.fromkeys(silos.names, 2)


def test_threads_that_fetch_at_once_get_one_batch(setting: Setting) -> None:
    shuffler, silos = setting
    deposit_all(shuffler, silos)
    with ThreadPoolExecutor(8) as pool:
        got = [pool.submit(release, shuffler, silos) for _ in range(8)]
    assert len({one.result() for one in got}) == 1


def test_before_the_deadline_it_waits_for_all_and_after_it_for_the_quorum(setting: Setting, folder: Path) -> None:
    shuffler, silos = setting
    digest = silos.plan.digest()
    assert shuffler.release(digest, 0) == Waiting(0, 2)
    shuffler.deposit(silos.update(silos.names[0]))
    assert shuffler.release(digest, 0) == Waiting(1, 2)
    with Shuffler.open(folder, seconds=0.0) as late:
        assert late.release(digest, 0) == Waiting(1, 2), "one silo is not a batch, however late it is"
    shuffler.deposit(silos.update(silos.names[1]))
    assert shuffler.release(digest, 0) == Waiting(2, 2)
    with Shuffler.open(folder, seconds=0.0) as late:
        document, messages = silos.read(release(late, silos))
    assert (document.silos, len(messages)) == (2, 4)
    assert shuffler.deposit(silos.update(silos.names[2])) is ShufflerRefusal.ROUND_RELEASED


def test_the_deadline_counts_from_the_round_s_first_deposit_across_restarts(setting: Setting, folder: Path) -> None:
    shuffler, silos = setting
    shuffler.deposit(silos.update(silos.names[0]))
    shuffler.close()
    time.sleep(0.5)
    with Shuffler.open(folder, seconds=0.5) as restarted:
        restarted.deposit(silos.update(silos.names[1]))
        assert silos.read(release(restarted, silos))[0].silos == 2


def test_a_round_that_asks_some_silos_does_not_wait_for_the_others(folder: Path) -> None:
    shuffler, silos = make_shuffler(folder, silos=5, asked=3)
    with shuffler:
        for name in silos.names[1:4]:
            shuffler.deposit(silos.update(name))
        assert silos.read(release(shuffler, silos))[0].silos == 3


def test_rounds_are_mixed_each_by_itself(setting: Setting) -> None:
    shuffler, silos = setting
    for name, round in itertools.product(silos.names, (2, 0)):
        assert shuffler.deposit(silos.update(name, round)) is Receipt.STORED
    for round in (0, 2):
        messages = silos.read(release(shuffler, silos, round))[1]
        assert len(open_messages(silos.server, silos.plan.digest(), round, messages)) == 6
    assert shuffler.release(silos.plan.digest(), 1) == Waiting(0, 2)


@pytest.mark.parametrize(
    ("plan", "round"), [("0" * 64, 0), ("", 0), ("../x\0", 0), (None, 3), (None, -1), (None, 10**99)]
)
def test_there_is_no_batch_of_a_plan_or_round_that_is_not_served(
    setting: Setting, plan: str | None, round: int
) -> None:
    shuffler, silos = setting
    expected = ShufflerRefusal.ROUND_OUT_OF_RANGE if plan is None else ShufflerRefusal.UNKNOWN_PLAN
    assert shuffler.release(silos.plan.digest() if plan is None else plan, round) is expected


# -- deposits --


def test_the_same_update_again_is_there_already_and_counts_once(setting: Setting, folder: Path) -> None:
    shuffler, silos = setting
    first = silos.update(silos.names[0])
    spaced = json.dumps(json.loads(first), indent=1).encode()
    assert shuffler.deposit(first) is Receipt.STORED
    shuffler.close()
    with Shuffler.open(folder) as restarted:
        assert [restarted.deposit(content) for content in (first, spaced)] == [Receipt.ALREADY_THERE] * 2
        assert restarted.release(silos.plan.digest(), 0) == Waiting(1, 2)
        for name in silos.names[1:]:
            restarted.deposit(silos.update(name))
        assert len(silos.read(release(restarted, silos))[1]) == 6


def test_a_silo_that_sends_twice_keeps_its_first_messages(setting: Setting) -> None:
    shuffler, silos = setting
    name = silos.names[0]
    first = silos.sealed(name)
    assert shuffler.deposit(silos.update(name, 0, first)) is Receipt.STORED
    assert shuffler.deposit(silos.update(name)) is ShufflerRefusal.SECOND_DEPOSIT
    assert shuffler.deposit(silos.update(name, 0, first)) is ShufflerRefusal.SECOND_DEPOSIT, "sealed anew: other bytes"
    for other in silos.names[1:]:
        shuffler.deposit(silos.update(other))
    messages = silos.read(release(shuffler, silos))[1]
    assert len(messages) == 6
    assert set(first) <= set(messages)


def refused_updates(silos: Depositors, shuffler_key: str) -> dict[str, tuple[bytes, ShufflerRefusal]]:
    """Everything that can be wrong with an update, and nothing else wrong with it."""
    north, south, _ = silos.names
    good = silos.update(north)
    digest, sealed = silos.plan.digest(), silos.sealed(north)
    document = json.loads(good)

    def envelope(*, key: str = shuffler_key, plan: str = digest, round: int = 0, silo: str = north) -> bytes:
        return seal_envelope(key, plan, round, silo, b"".join(sealed))

    flipped = bytearray(envelope())
    flipped[100] ^= 1
    other = depositors(shuffler_key)
    return {
        "nothing": (b"", ShufflerRefusal.MALFORMED),
        "not JSON": (good[:-1], ShufflerRefusal.MALFORMED),
        "a field more": (json.dumps(document | {"note": "x"}).encode(), ShufflerRefusal.MALFORMED),
        "another kind": (json.dumps(document | {"kind": "update"}).encode(), ShufflerRefusal.MALFORMED),
        "not base64": (json.dumps(document | {"envelope": "?"}).encode(), ShufflerRefusal.MALFORMED),
        "too long": (b" " * (64 * 2**20) + good, ShufflerRefusal.MALFORMED),
        "a plan that was not added": (other.update(other.names[0]), ShufflerRefusal.UNKNOWN_PLAN),
        "a silo outside the plan": (silos.update(north, silo="stranger"), ShufflerRefusal.UNKNOWN_SILO),
        "a round after the last": (silos.update(north, 3), ShufflerRefusal.ROUND_OUT_OF_RANGE),
        "signed by another silo": (silos.update(north, key=silos.keys[south]), ShufflerRefusal.BAD_SIGNATURE),
        "a signature of nothing": (silos.update(north, signature="0" * 128), ShufflerRefusal.BAD_SIGNATURE),
        "passed off as another silo": (json.dumps(document | {"silo": south}).encode(), ShufflerRefusal.BAD_SIGNATURE),
        "replayed in another round": (json.dumps(document | {"round": 1}).encode(), ShufflerRefusal.BAD_SIGNATURE),
        "a message too few": (silos.update(north, 0, sealed[1:]), ShufflerRefusal.WRONG_SIZE),
        "a message too many": (silos.update(north, 0, [*sealed, sealed[0]]), ShufflerRefusal.WRONG_SIZE),
        "a byte too many": (silos.update(north, 0, [*sealed, b"x"]), ShufflerRefusal.WRONG_SIZE),
        "no envelope": (silos.update(north, envelope=b"x"), ShufflerRefusal.WRONG_SIZE),
        "sealed to another key": (
            silos.update(north, envelope=envelope(key=public_key(new_key()))),
            ShufflerRefusal.NOT_FOR_US,
        ),
        "sealed for another plan": (silos.update(north, envelope=envelope(plan="0" * 64)), ShufflerRefusal.NOT_FOR_US),
        "sealed for another round": (silos.update(north, envelope=envelope(round=1)), ShufflerRefusal.NOT_FOR_US),
        "another silo's envelope": (silos.update(north, envelope=envelope(silo=south)), ShufflerRefusal.NOT_FOR_US),
        "changed on the way": (silos.update(north, envelope=bytes(flipped)), ShufflerRefusal.NOT_FOR_US),
    }


def test_every_wrong_update_is_refused_for_its_own_reason_and_leaves_no_trace(setting: Setting, folder: Path) -> None:
    shuffler, silos = setting
    before = on_the_disk(folder)
    for what, (content, reason) in refused_updates(silos, shuffler.public_key).items():
        assert shuffler.deposit(content) is reason, what
    assert on_the_disk(folder) == before
    for name in silos.names:
        assert shuffler.deposit(silos.update(name)) is Receipt.STORED, "nothing that was refused stands in its way"
    assert silos.read(release(shuffler, silos))[0].silos == 3


def test_every_reason_has_its_own_sentence() -> None:
    sentences = {reason.explanation for reason in ShufflerRefusal}
    assert len(sentences) == len(ShufflerRefusal)
    assert all(sentence.endswith(".") and len(sentence) > 20 for sentence in sentences)


# -- plans --


def test_a_plan_is_added_once_however_often_and_serves_at_once(setting: Setting, folder: Path) -> None:
    shuffler, silos = setting
    second = depositors(shuffler.public_key)
    assert shuffler.deposit(second.update(second.names[0])) is ShufflerRefusal.UNKNOWN_PLAN
    with Shuffler.open(folder) as operator:
        for _ in range(3):
            operator.add(second.plan)
            operator.add(silos.plan)
        assert len(operator.status()["plans"]) == 2
    assert shuffler.deposit(second.update(second.names[0])) is Receipt.STORED


def test_a_plan_for_another_shuffler_or_for_none_is_not_added(setting: Setting) -> None:
    shuffler, silos = setting
    alone = [t.model_copy(update={"key": None, "guarantees": t.guarantees[1:]}) for t in silos.plan.silos]
    (stage,) = silos.plan.stages
    plain = rebuilt(silos.plan, stages=(stage.model_copy(update={"channel": OwnNoise()}),), silos=tuple(alone))
    elsewhere = silos.shuffle.model_copy(update={"shuffler_key": public_key(new_key())})
    twice = preceded(silos.plan, stage.model_copy(update={"channel": elsewhere}))
    for plan in (depositors(public_key(new_key())).plan, plain, twice):
        with pytest.raises(PlanError, match=f"not for this shuffler, whose key is {shuffler.public_key}"):
            shuffler.add(plan)


def preceded(plan: Plan, stage: Stage) -> Plan:
    """Return the plan with one more stage before it, in which silos add the same noise."""
    silos = tuple(terms.model_copy(update={"stages": (*terms.stages, *terms.stages)}) for terms in plan.silos)
    return rebuilt(plan, stages=(stage, *plan.stages), silos=silos)


def test_rounds_of_stages_that_do_not_go_through_the_shuffler_are_none_of_its_business(setting: Setting) -> None:
    shuffler, silos = setting
    (stage,) = silos.plan.stages
    asked = stage.model_copy(update={"query": Curvature(), "rounds": 2, "channel": OwnNoise()})
    silos = replace(silos, plan=preceded(silos.plan, asked))
    shuffler.add(silos.plan)
    taken = [[shuffler.deposit(silos.update(name, round)) for name in silos.names] for round in range(6)]
    out, stored = [ShufflerRefusal.ROUND_OUT_OF_RANGE] * 3, [Receipt.STORED] * 3
    assert taken == [out, out, stored, stored, stored, out]
    assert shuffler.release(silos.plan.digest(), 1) is ShufflerRefusal.ROUND_OUT_OF_RANGE
    assert silos.read(release(shuffler, silos, 2))[0].round == 2


def test_a_plan_whose_messages_are_too_long_to_carry_or_to_mix_is_not_added(setting: Setting) -> None:
    shuffler, _ = setting
    for shape in ({"block": 2**20, "shares": 12}, {"block": 2**20, "shares": 4, "silos": 40}):
        with pytest.raises(PlanError, match="ask for a plan with fewer weights or shares"):
            shuffler.add(depositors(shuffler.public_key, **shape).plan)
    shuffler.add(depositors(shuffler.public_key, block=2**20, shares=4).plan)


def test_there_is_a_most_of_plans(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    shuffler, silos = setting
    monkeypatch.setattr(shuffler_module, "PLANS_LIMIT", 1)
    shuffler.add(silos.plan)
    with pytest.raises(ShufflerError, match="already 1 plans here"):
        shuffler.add(depositors(shuffler.public_key).plan)


def test_the_longest_deposit_is_known_from_the_plans(setting: Setting) -> None:
    shuffler, silos = setting
    assert len(silos.update(silos.names[0])) <= shuffler.longest_deposit() < 10_000
    longer = depositors(shuffler.public_key, shares=1000)
    shuffler.add(longer.plan)
    length = len(longer.update(longer.names[0]))
    assert length <= shuffler.longest_deposit() <= length + 5000


def test_the_log_has_every_refusal_and_every_batch_and_says_nothing_of_who_deposited(tmp_path: Path) -> None:
    made, silos = make_shuffler(tmp_path / "mixer")
    made.close()
    log = DecisionLog(tmp_path)
    with Shuffler(Store(tmp_path / "mixer"), seconds=3600.0, note=log) as shuffler:
        shuffler.deposit(b"nothing")
        deposit_all(shuffler, silos)
        for _ in range(2):
            assert isinstance(shuffler.release(silos.plan.digest(), 0), bytes)
        shuffler.deposit(silos.update(silos.names[0]))
        shuffler.release("\x1b[2J", 0)
    log.close()
    text = (tmp_path / "decisions.log").read_text()
    about = {"plan": silos.plan.digest(), "round": 0}
    assert [{k: v for k, v in json.loads(line).items() if k != "time"} for line in text.splitlines()] == [
        {"decision": "refused", "reason": "malformed"},
        {"decision": "released", **about},
        {"decision": "repeated", **about},
        {"decision": "refused", "reason": "round-released", **about},
        {"decision": "refused", "reason": "unknown-plan"},
    ]
    assert not any(name in text for name in silos.names)
