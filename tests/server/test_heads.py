"""The server keeps the latest head of every silo's ledger, and shows it to the silos that sent one."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringfence.errors import TrainingError
from ringfence.protocol import Head, RefusalReason, RoundRequest, SignedHead
from ringfence.server.conduct import ConductedRun, Quorum, conduct, replay
from ringfence.server.transcript import Answered, Asked, read_transcript
from ringfence.shuffler.sealing import new_key, sign
from tests.server.local import Local
from tests.server.quadratics import make_plan, refuse, update

NAMES = ("s0", "s1", "s2")


def head(silo: str, number: int, key: bytes | None = None) -> SignedHead:
    made = Head(ledger=f"{NAMES.index(silo)}" * 64, number=number, hash="f" * 64)
    return SignedHead(**made.model_dump(), signature=sign(key or new_key(), made.signed_bytes()))


class Silos:
    """Silos that send heads, or none; and what they were asked."""

    def __init__(self, heads: Callable[[str, int], SignedHead | None]) -> None:
        self.heads = heads
        self.asked: list[tuple[int, tuple[str, ...], tuple[tuple[str, int], ...]]] = []

    def __call__(self, content: bytes, silos: Sequence[str], arrived: Callable[[str, bytes], None], _: float) -> None:
        request = RoundRequest.from_bytes(content)
        shown = tuple((each.ledger[0], each.number) for each in request.heads or ())
        self.asked.append((request.round, tuple(silos), shown))
        assert b"heads" in content if shown else b"heads" not in content
        for name in silos:
            answer = update(request, name, np.full(2, float(request.round)))
            given = answer.model_copy(update={"head": self.heads(name, request.round)})
            arrived(name, given.to_bytes())


def three(**changes: Any) -> Any:
    return make_plan((0.25, 0.25, 0.5), **changes)


def test_after_its_first_answer_every_silo_is_shown_its_latest_head(tmp_path: Path) -> None:
    silos = Silos(lambda name, round: head(name, 10 * round + 4))
    conduct(three(rounds=3), silos, tmp_path)
    assert silos.asked == [
        (0, NAMES, ()),
        (1, NAMES, (("0", 4), ("1", 4), ("2", 4))),
        (2, NAMES, (("0", 14), ("1", 14), ("2", 14))),
    ]


def test_silos_that_send_no_head_are_asked_as_before_and_all_are_asked_once(tmp_path: Path) -> None:
    silos = Silos(lambda name, round: None if name == "s1" else head(name, round + 1))
    trained = conduct(three(rounds=2), silos, tmp_path)
    assert silos.asked == [(0, NAMES, ()), (1, ("s0", "s2"), (("0", 1), ("2", 1))), (1, ("s1",), ())]
    assert [outcome.answered for outcome in trained.history] == [NAMES, NAMES]


def test_an_older_head_does_not_take_a_later_one_s_place(tmp_path: Path) -> None:
    silos = Silos(lambda name, round: head(name, 9 - round))
    conduct(three(rounds=3), silos, tmp_path)
    assert [shown[0] for _, _, shown in silos.asked[1:]] == [("0", 9), ("0", 9)]


def test_heads_change_neither_the_model_nor_the_recorded_request(tmp_path: Path) -> None:
    plan = three()
    with_heads = conduct(plan, Silos(lambda name, round: head(name, round + 1)), tmp_path / "with")
    without = conduct(plan, Silos(lambda name, round: None), tmp_path / "without")
    assert with_heads.weights.tobytes() == without.weights.tobytes() == replay(tmp_path / "with").weights.tobytes()
    asked, before = (
        [entry.request for entry in read_transcript(tmp_path / run)[1] if isinstance(entry, Asked)]
        for run in ("with", "without")
    )
    assert asked == before


def test_a_resumed_run_shows_what_the_transcript_holds(tmp_path: Path) -> None:
    plan, silos = three(), Silos(lambda name, round: head(name, round + 1))

    def answers(request: RoundRequest) -> Mapping[str, bytes]:
        made = (update(request, name, np.ones(2)).model_copy(update={"head": head(name, 7)}) for name in NAMES)
        return {answer.silo: answer.to_bytes() for answer in made}

    with pytest.raises(KeyboardInterrupt):
        conduct(plan, Local(answers, stop_after=4), tmp_path)
    conduct(plan, silos, tmp_path)
    assert silos.asked[0] == (1, ("s1", "s2"), (("1", 7), ("2", 7)))


def test_a_refusal_s_head_counts_and_a_silo_that_has_forgotten_is_reported_and_not_asked_again(tmp_path: Path) -> None:
    def answers(request: RoundRequest) -> Mapping[str, bytes]:
        given = {name: update(request, name, np.ones(2)).to_bytes() for name in NAMES[1:]}
        refused = refuse(request, "s0", RefusalReason.FORGOTTEN if request.round else RefusalReason.ROUND_PASSED)
        return {**given, "s0": refused.model_copy(update={"head": head("s0", 3)}).to_bytes()}

    exchange = Local(answers)
    trained = conduct(three(rounds=4), exchange, tmp_path, quorum=Quorum(2))
    assert [dict(outcome.refused) for outcome in trained.history[:3]] == [
        {"s0": "round-passed"}, {"s0": "forgotten"}, {},
    ]  # fmt: skip
    assert [asked for round, asked, _ in exchange.calls if round == 1] == [("s0",), ("s1", "s2")]
    with pytest.raises(TrainingError, match="'s0' refuses: forgotten"):
        conduct(three(rounds=4, records=11), Local(answers), tmp_path / "all", quorum=Quorum.parse("all"), seconds=0.01)


def test_where_the_plan_pins_a_silo_s_key_only_what_that_key_signed_is_kept(tmp_path: Path) -> None:
    from ringfence.shuffler.sealing import verifying_key

    key, plan = new_key(), three()
    pinned = plan.model_copy(
        update={"silos": tuple(each.model_copy(update={"key": verifying_key(key)}) for each in plan.silos)}
    )
    conduct(plan, Silos(lambda name, round: head(name, 2, key if name == "s0" else None)), tmp_path)
    header, entries = read_transcript(tmp_path)
    run = ConductedRun(header.model_copy(update={"plan": pinned}))
    for entry in entries:
        if isinstance(entry, Answered) and entry.round == 0:
            run.is_open = True
            run.apply(entry)
    assert set(run.heads) == {"s0"}
