"""How long the server waits, for whom, when it stops, and how it goes on."""

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringfence.errors import TrainingError
from ringfence.protocol import RefusalReason, RoundRequest
from ringfence.server import conduct as conduct_module
from ringfence.server.conduct import Quorum, conduct, replay
from ringfence.server.transcript import Answered, read_transcript
from tests.server.local import Local, Silos
from tests.server.quadratics import make_plan, refuse, update

NAMES = ("s0", "s1", "s2")


def three(**changes: Any) -> Any:
    return make_plan((0.25, 0.25, 0.5), **changes)


def answering(*names: str) -> Silos:
    def silos(request: RoundRequest) -> dict[str, bytes]:
        random = np.random.default_rng(request.round)
        return {name: update(request, name, random.normal(size=2)).to_bytes() for name in names}

    return silos


def refusing(reason: RefusalReason) -> Silos:
    return lambda request: {name: refuse(request, name, reason).to_bytes() for name in NAMES}


def by_round(pick: Callable[[int], Silos]) -> Silos:
    return lambda request: pick(request.round)(request)


def test_a_quorum_is_a_number_or_a_share_and_never_more_than_are_asked() -> None:
    assert [Quorum.parse(text).of(5) for text in ("0", "1", "7", "50%", "all", "0%", "60%", "100%")] == [
        0, 1, 5, 3, 5, 1, 3, 5,
    ]  # fmt: skip
    for text in ("-1", "half", "120%", "nan%", "", "%"):
        with pytest.raises(TrainingError, match=r"[Qq]uorum"):
            Quorum.parse(text)


def test_when_all_answer_every_round_is_asked_once(tmp_path: Path) -> None:
    exchange = Local(answering(*NAMES))
    conduct(three(), exchange, tmp_path, seconds=9.0)
    assert [(round, silos) for round, silos, _ in exchange.calls] == [(round, NAMES) for round in range(5)]
    assert all(8 < seconds <= 9 for _, _, seconds in exchange.calls)


def test_a_round_with_a_quorum_is_closed_without_the_silent_ones(tmp_path: Path) -> None:
    trained = conduct(three(), Local(answering("s0", "s1")), tmp_path, seconds=0.01, quorum=Quorum(2))
    assert [outcome.answered for outcome in trained.history] == [("s0", "s1")] * 5


def test_a_silo_that_missed_its_rounds_is_still_asked_and_hardly_waited_for_until_it_answers(tmp_path: Path) -> None:
    exchange = Local(by_round(lambda round: answering(*(NAMES if round in (0, 7, 8) else NAMES[:2]))))
    conduct(three(rounds=10), exchange, tmp_path, seconds=9.0, patience=2)
    waits = {round: seconds for round, asked, seconds in exchange.calls if "s2" in asked}
    assert set(waits) == set(range(10))
    assert {round for round, seconds in waits.items() if seconds < 1} == {3, 4, 5, 6, 7}


def test_without_a_quorum_the_silent_ones_are_asked_again_and_then_the_run_stops_until_it_is_resumed(
    tmp_path: Path,
) -> None:
    plan = three()
    exchange = Local(answering("s1"))
    with pytest.raises(TrainingError, match=r"Round 0 has 1 of the 2 updates.*'s0' did not answer.*same command"):
        conduct(plan, exchange, tmp_path, seconds=0.01, quorum=Quorum(2), patience=2)
    assert [silos for _, silos, _ in exchange.calls] == [NAMES, ("s0", "s2"), ("s0", "s2")]
    later = Local(answering(*NAMES))
    trained = conduct(plan, later, tmp_path, seconds=0.01, quorum=Quorum(2))
    assert [silos for _, silos, _ in later.calls] == [("s0", "s2"), *[NAMES] * 4]
    assert trained.history[0].answered == NAMES
    assert trained.weights.tobytes() == replay(tmp_path).weights.tobytes()


def test_silos_that_have_not_approved_stop_the_run_at_once_and_it_goes_on_when_they_have(tmp_path: Path) -> None:
    plan, exchange = three(), Local(refusing(RefusalReason.NOT_APPROVED))
    with pytest.raises(TrainingError, match="'s0' refuses: not-approved"):
        conduct(plan, exchange, tmp_path, seconds=9.0)
    assert len(exchange.calls) == 1
    trained = conduct(plan, Local(answering(*NAMES)), tmp_path, seconds=9.0)
    assert all(outcome.answered == NAMES for outcome in trained.history)


def test_a_quorum_of_zero_gives_the_model_so_far_when_everybody_has_left(tmp_path: Path) -> None:
    plan = three()
    leaving = by_round(lambda round: answering(*NAMES) if round < 2 else refusing(RefusalReason.REVOKED))
    with pytest.raises(TrainingError, match="revoked"):
        conduct(plan, Local(leaving), tmp_path, seconds=9.0)
    exchange = Local(leaving)
    trained = conduct(plan, exchange, tmp_path, seconds=9.0, quorum=Quorum(0))
    assert [outcome.answered for outcome in trained.history] == [NAMES, NAMES, (), (), ()]
    assert exchange.rounds() == [2], "who left for good is not asked again"


def test_a_round_that_every_silo_lost_in_a_crash_is_passed_over(tmp_path: Path) -> None:
    exchange = Local(by_round(lambda round: refusing(RefusalReason.ROUND_LOST) if round == 1 else answering(*NAMES)))
    trained = conduct(three(), exchange, tmp_path, seconds=9.0, quorum=Quorum.parse("all"))
    assert [bool(outcome.answered) for outcome in trained.history] == [True, False, True, True, True]
    assert exchange.rounds() == [0, 1, 2, 3, 4]


def test_a_silo_that_cannot_write_its_ledger_now_is_asked_again_where_it_is_needed(tmp_path: Path) -> None:
    tries = iter([refusing(RefusalReason.UNAVAILABLE)] * 2 + [answering(*NAMES)] * 6)
    trained = conduct(three(rounds=2), Local(by_round(lambda _: next(tries))), tmp_path, seconds=0.05)
    assert [outcome.answered for outcome in trained.history] == [NAMES, NAMES]


def test_strangers_late_answers_and_second_answers_count_for_nothing(tmp_path: Path) -> None:
    """An engine may hand over anything, at any time."""
    late: list[Callable[[str, bytes], None]] = []

    class Loose(Local):
        def __call__(
            self, request: bytes, silos: Sequence[str], arrived: Callable[[str, bytes], None], seconds: float
        ) -> None:
            asked = RoundRequest.from_bytes(request)
            for earlier in late:
                earlier("s2", update(asked, "s2", np.full(2, 1e9)).to_bytes())
            super().__call__(request, silos, arrived, seconds)
            arrived("stranger", update(asked, "stranger", np.full(2, 1e9)).to_bytes())
            arrived("s0", update(asked, "s0", np.full(2, 1e9)).to_bytes())
            late.append(arrived)

    plan = three()
    trained = conduct(plan, Loose(answering("s0", "s1")), tmp_path / "loose", seconds=0.01)
    clean = conduct(plan, Local(answering("s0", "s1")), tmp_path / "clean", seconds=0.01)
    assert trained.weights.tobytes() == clean.weights.tobytes()
    _, entries = read_transcript(tmp_path / "loose")
    assert {entry.silo for entry in entries if isinstance(entry, Answered)} == {"s0", "s1"}


def test_the_watch_sees_every_round_once_also_those_of_an_earlier_call(tmp_path: Path) -> None:
    plan = three()
    with pytest.raises(KeyboardInterrupt):
        conduct(plan, Local(answering(*NAMES), stop_after=8), tmp_path, seconds=0.01)
    seen: list[int] = []
    conduct(plan, Local(answering(*NAMES)), tmp_path, seconds=0.01, watch=lambda outcome: seen.append(outcome.round))
    assert seen == list(range(5))


def test_a_problem_in_an_engines_thread_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Swallowing(Local):
        def __call__(
            self, request: bytes, silos: Sequence[str], arrived: Callable[[str, bytes], None], seconds: float
        ) -> None:
            with contextlib.suppress(OSError):
                super().__call__(request, silos, arrived, seconds)

    monkeypatch.setattr(Answered, "of", lambda *_: (_ for _ in ()).throw(OSError("gone")))
    start = time.monotonic()
    with pytest.raises(OSError, match="gone"):
        conduct(three(), Swallowing(answering(*NAMES)), tmp_path, seconds=60)
    assert time.monotonic() - start < 30


def test_waiting_is_called_once_for_a_long_round_with_the_silos_that_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conduct_module, "WAITING_SECONDS", 0.0)
    shown: list[tuple[int, tuple[str, ...]]] = []
    received = threading.Event()

    def waiting(round: int, silos: Sequence[str]) -> None:
        shown.append((round, tuple(silos)))
        received.set()

    def exchange(request: bytes, silos: Sequence[str], arrived: Callable[[str, bytes], None], seconds: float) -> None:
        asked = RoundRequest.from_bytes(request)
        answers = answering(*NAMES)(asked)
        assert received.wait(60)
        for name in silos:
            arrived(name, answers[name])

    conduct(three(), exchange, tmp_path, seconds=9.0, waiting=waiting)
    assert shown[0] == (0, NAMES)
    assert len({round for round, _ in shown}) == len(shown)


def test_waiting_is_not_called_for_a_short_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conduct_module, "WAITING_SECONDS", 3600.0)
    shown: list[int] = []
    conduct(three(), Local(answering(*NAMES)), tmp_path, waiting=lambda round, _: shown.append(round))
    assert shown == []
