"""The server of a deployed run: sends requests, waits with a time limit, and resumes after a crash.

The transcript holds the whole run. `ConductedRun` is the state after reading its entries in order; the live server
changes it by writing an entry and then reading that entry, so a resumed run and one that was never interrupted are the
same.
"""

import hashlib
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ringfence.errors import MessageError, TrainingError, TranscriptError
from ringfence.protocol import Answer, Plan, Refusal, RefusalReason, SignedHead, parse_answer
from ringfence.protocol.documents.messages import MOST_HEADS, written_length
from ringfence.server.channels import Collect, Totals
from ringfence.server.rounds import RoundOutcome, RunResult, Session, collected
from ringfence.server.transcript import Answered, Asked, Closed, Mixed, RunEntry, RunHeader, Transcript, read_transcript
from ringfence.shuffler import sealing
from ringfence.transport.exchange import Exchange

WAITING_SECONDS = 5.0
"""After this long, a round reports which silos it is waiting for."""

SHORT = 0.1
"""Seconds that a silo which was silent for long is waited for at least."""


@dataclass(frozen=True)
class Quorum:
    """How many updates a round needs: a number, or a share of the silos asked, and never more than are asked.

    0 skips rounds that no silo answers.
    """

    count: int = 1
    share: float = 0.0

    def __post_init__(self) -> None:
        """Refuse a quorum that is neither a number of silos nor a share of them."""
        if self.count < 0 or not 0 <= self.share <= 1:
            raise TrainingError("A quorum is a number of silos, 0 or more, or a share of them up to 100%.")

    @classmethod
    def parse(cls, text: str) -> "Quorum":
        """Read a quorum: '2', '50%' or 'all'."""
        try:
            if text == "all":
                return cls(share=1.0)
            return cls(share=float(text[:-1]) / 100) if text.endswith("%") else cls(int(text))
        except ValueError:
            raise TrainingError(f"The quorum '{text}' is not a number like 2, a share like 50%, or all.") from None

    def of(self, asked: int, least: int = 0) -> int:
        """Return how many updates a round needs that asks that many silos, through a channel that needs `least`."""
        return min(asked, max(self.count, least, math.ceil(self.share * asked - 1e-9)))


ONE = Quorum()
"""A round needs one update."""


class ConductedRun:
    """A run's state after reading its transcript in order."""

    def __init__(self, header: RunHeader) -> None:
        """Begin a conducted run from the header of its transcript."""
        self.session = Session(header.plan, np.random.default_rng(header.seed))
        self.is_open = False
        self.answers: dict[str, Answer | None] = {}
        self.totals: Totals | None = None
        self.outcome: RoundOutcome | None = None
        self.heads: dict[str, SignedHead] = {}
        """The latest head of every silo's ledger that it sent, to be shown to it again."""

    def apply(self, entry: RunEntry) -> None:
        """Take one more entry of the transcript into account; TranscriptError if it cannot follow those before."""
        session = self.session
        if session.finished or entry.round != session.round or self.is_open == isinstance(entry, Asked):
            raise TranscriptError(
                f"The transcript's entries of round {entry.round} are out of order: it is damaged. Restore it from a "
                "backup, or start again in another folder."
            )
        if isinstance(entry, Asked):
            self._require_same(entry.silos == tuple(session.asked()) and entry.request == self.fingerprint())
            self.is_open = True
        elif isinstance(entry, Answered):
            if not self.has_update(entry.silo):  # an update stands; anything else may be bettered
                self.answers[entry.silo] = answer = _parse(entry.answer())
                self._keep_head(entry.silo, None if answer is None else answer.head)
        elif isinstance(entry, Mixed):
            self.totals = Totals.unpacked(entry.silos, entry.totals)
        else:
            self.outcome = session.receive(self.answers, self.totals)
            self._require_same(entry.answered == self.outcome.answered)
            self.is_open, self.answers, self.totals = False, {}, None

    def _keep_head(self, silo: str, head: SignedHead | None) -> None:
        """Keep a silo's latest ledger head, to be shown to it again, if the key that the plan pins signed it."""
        terms, kept = self.session.plan.terms(silo), self.heads.get(silo)
        # Unless the plan pins the silo's key nobody here can check a signature; the silo itself does.
        if (
            head is None
            or terms is None
            or (terms.key is not None and not sealing.verify(terms.key, head.signed_bytes(), head.signature))
        ):
            return
        if kept is None or kept.ledger != head.ledger or kept.number < head.number:
            self.heads[silo] = head

    def fingerprint(self) -> str:
        """Return the digest of what the conducted run's open round asks."""
        return hashlib.sha256(self.session.request().to_bytes()).hexdigest()

    def has_update(self, silo: str) -> bool:
        """Return whether the conducted run's open round holds a usable update of that silo."""
        return self.session.can_use(silo, self.answers.get(silo))

    def updates(self) -> int:
        """Return how many usable updates the conducted run's open round holds."""
        return sum(map(self.has_update, self.session.asked()))

    def _require_same(self, same: bool) -> None:
        """Refuse to continue a run whose replay differs from its transcript."""
        if not same:
            raise TranscriptError(
                f"Replaying round {self.session.round} of the transcript does not give what was recorded: another "
                "version of Ringfence or NumPy wrote it. Continue with that version, or start again in another folder."
            )


def replay(folder: Path) -> RunResult:
    """Return the model that a finished run's transcript gives, without asking any silo."""
    header, entries = read_transcript(folder)
    run = ConductedRun(header)
    for entry in entries:
        run.apply(entry)
    if not run.session.finished:
        raise TrainingError(f"The run in {folder} is still in round {run.session.round}: it has no model yet.")
    return run.session.result()


def conduct(
    plan: Plan,
    exchange: Exchange,
    folder: Path,
    *,
    seconds: float = 60.0,
    quorum: Quorum = ONE,
    patience: int = 3,
    watch: Callable[[RoundOutcome], None] = lambda outcome: None,
    waiting: Callable[[int, Sequence[str]], None] = lambda round, silos: None,
    collect: Collect | None = None,
) -> RunResult:
    """Start or continue the plan's run in the folder, and return the model.

    A round is closed when all silos asked have answered, or after `seconds` if a quorum has. Without a quorum, silent
    silos are asked again, `patience` times; then TrainingError is raised, and the same call can continue later. A silo
    that was silent for `patience` rounds in a row is still asked, but until it answers again, it is waited for no
    longer than the others took. `watch` is called with every finished round, including those of earlier calls.
    `waiting` is called once for a round that takes longer than WAITING_SECONDS, with the silos whose updates are
    missing then: none if the round waits for a third party. It is called from its own thread. A plan that trusts a
    shuffler needs `collect`, and at least its own quorum.

    A silo is shown the latest head of its ledger that it sent, so that it notices if the ledger was rolled back. A silo
    that has sent none is asked without a head, after the others and for as long: it may be of a version without heads.
    """
    if (collect is None) == any(stage.channel.is_collected for stage in plan.stages):
        raise TrainingError("Give a shuffler's address if, and only if, the plan trusts a shuffler.")
    with Transcript(folder, plan) as transcript:
        run = ConductedRun(transcript.header)
        for entry in transcript.entries():
            run.apply(entry)
            if isinstance(entry, Closed) and run.outcome is not None:
                watch(run.outcome)
        server = _Conductor(run, transcript, exchange, seconds, quorum, patience, collect)
        while not run.session.finished:
            timer = threading.Timer(WAITING_SECONDS, server.tell_missing, (run.session.round, waiting))
            timer.daemon = True
            timer.start()
            try:
                outcome = server.round()
            finally:
                timer.cancel()
                timer.join()
            watch(outcome)
        return run.session.result()


@dataclass
class _Conductor:
    """Conducts one round after the other; `conduct` says what its settings mean."""

    run: ConductedRun
    transcript: Transcript
    exchange: Exchange
    seconds: float
    quorum: Quorum
    patience: int
    collect: Collect | None

    def __post_init__(self) -> None:
        """Begin to conduct: count no silo as missing, and limit the length of answers."""
        self._missed: Counter[str] = Counter()
        self._duration = 0.0
        plan = self.run.session.plan
        # A longer answer than an honest one is not kept, or a hostile silo could fill the disk.
        self._limit = written_length(max(stage.channel.longest_answer(plan, stage) for stage in plan.stages))
        self._lock = threading.Lock()
        self._answered: set[str] = set()
        self._problem: Exception | None = None

    def round(self) -> RoundOutcome:
        """Conduct the open round to its end."""
        run, session = self.run, self.run.session
        self._answered = set()
        if not run.is_open:
            self._write(Asked(round=session.round, silos=tuple(session.asked()), request=run.fingerprint()))
        # After a restart a silo without an update is asked again, also one that refused: its operator may have acted.
        self._first_try()
        tries = 1
        while (reachable := self._missing_quorum()) is not None:
            if not reachable or tries > self.patience:
                raise TrainingError(self._stuck(tries))
            tries += 1
            self._ask(reachable, self.seconds, pause=True)
        is_collected = session.stage.channel.is_collected
        if is_collected and run.totals is None:
            self._collect_totals()
        with self._lock:  # what comes later is too late
            unmixed = is_collected and run.totals is None
            answered = () if unmixed else tuple(name for name in session.asked() if run.has_update(name))
            self._write(Closed(round=session.round, answered=answered))
        assert run.outcome is not None  # noqa: S101 (the round was closed)
        for name in run.outcome.answered:
            self._missed[name] = 0
        return run.outcome

    def tell_missing(self, round: int, waiting: Callable[[int, Sequence[str]], None]) -> None:
        """Tell which silos have given the round no update yet, if it is not over."""
        session = self.run.session
        with self._lock:
            if session.finished or session.round != round:
                return
            missing = self._missing()
        waiting(round, missing)

    def _missing(self) -> list[str]:
        """Return the silos asked in the open round that have given no usable update."""
        return [name for name in self.run.session.asked() if not self.run.has_update(name)]

    def _collect_totals(self) -> None:
        """Have the third party let out what the silos sent, and write it down.

        Where so many silos have lost the round that the rest are below the channel's quorum, it never will: the round
        is passed without a step.
        """
        run, round = self.run, self.run.session.round
        if run.updates() < run.session.stage.channel.least_answers():
            return
        with self._lock:
            answers = dict(run.answers)
        totals = collected(run.session, answers, self.collect)
        if totals is None:
            raise TrainingError(
                f"The shuffler has not released round {round}: it has the messages of fewer than "
                f"{self._needed(len(run.session.asked()))} silos. Nothing is lost: run the same command again to "
                "continue with this round."
            )
        with self._lock:
            self._write(Mixed.of(round, totals))

    def _needed(self, asked: int) -> int:
        """Return how many updates the open round needs that asks that many silos."""
        channel = self.run.session.stage.channel
        return self.quorum.of(asked, channel.least_answers() if channel.is_collected else 0)

    def _first_try(self) -> None:
        """Ask the silos once in the open round; wait less for silos that missed several rounds in a row."""
        missing = self._missing()
        prompt = [name for name in missing if self._missed[name] < max(self.patience, 1)]
        start = time.monotonic()
        if len(prompt) < len(missing):
            self._ask(missing, min(self.seconds, max(SHORT, 3 * self._duration)))
        left = [name for name in prompt if name not in self._answered]
        rest = self.seconds - (time.monotonic() - start)
        if left and rest > 0:
            self._ask(left, rest)
        if all(name in self._answered for name in prompt):
            self._duration = time.monotonic() - start if len(prompt) == len(missing) else self._duration
        for name in missing:
            self._missed[name] = 0 if name in self._answered else self._missed[name] + 1

    def _missing_quorum(self) -> list[str] | None:
        """Return None if the round may be closed, else those that it helps to ask again."""
        run, able, again = self.run, len(self.run.session.asked()), []
        for name in self._missing():
            answer = run.answers.get(name)
            if not isinstance(answer, Refusal) or answer.reason is RefusalReason.UNAVAILABLE:
                again.append(name)
            elif not answer.reason.is_final:
                able -= 1  # it lost this very round and can never answer it: the others must do
        return None if run.updates() >= self._needed(able) else again

    def _ask(self, silos: Sequence[str], seconds: float, *, pause: bool = False) -> None:
        """Send the open round's request to these silos, each known ledger head with it, and wait for answers."""
        with self._lock:
            heads = {name: self.run.heads[name] for name in silos if name in self.run.heads}
        start = time.monotonic()
        request = self.run.session.request()
        if heads:
            shown = tuple(heads.values())[:MOST_HEADS]
            self._exchange(request.model_copy(update={"heads": shown}).to_bytes(), list(heads), seconds)
        if others := [name for name in silos if name not in heads]:
            self._exchange(request.to_bytes(), others, seconds)
        took = time.monotonic() - start
        if pause and took < min(seconds, 1.0) and self._missing_quorum():  # it cannot answer now: not at once again
            time.sleep(min(seconds, 1.0) - took)

    def _exchange(self, request: bytes, silos: Sequence[str], seconds: float) -> None:
        """Exchange a conducted round's request for answers through the engine, and write down what arrives."""
        session = self.run.session
        round, asked = session.round, frozenset(session.asked())

        def arrived(silo: str, content: bytes) -> None:
            """Write down a silo's answer to the conducted round, unless it is late, unasked or a second one."""
            with self._lock:
                # Late for its round, from nobody we asked, or a second time: nothing that counts.
                if session.round != round or silo not in asked or self.run.has_update(silo) or self._problem:
                    return
                self._answered.add(silo)
                try:
                    self._write(Answered.of(round, silo, content if len(content) <= self._limit else b""))
                except Exception as problem:  # the engine's thread must not swallow it
                    self._problem = problem

        self.exchange(request, silos, arrived, seconds)
        if self._problem is not None:
            raise self._problem

    def _write(self, entry: RunEntry) -> None:
        """Append an entry to the conducted run's transcript, and apply it."""
        self.transcript.write(entry)
        self.run.apply(entry)

    def _stuck(self, tries: int) -> str:
        """Explain why the conducted round lacks its quorum, and how to continue."""
        run, asked = self.run, self.run.session.asked()
        why = "; ".join(_trouble(name, run.answers) for name in self._missing())
        often = "1 try" if tries == 1 else f"{tries} tries"
        return (
            f"Round {run.session.round} has {run.updates()} of the {self._needed(len(asked))} updates it needs, after "
            f"{often} of at most {self.seconds:g} seconds ({why}). Nothing is lost: bring these silos back and run "
            "the same command again to continue with this round; or lower the quorum (0 skips rounds without answers)."
        )


def _trouble(name: str, answers: Mapping[str, Answer | None]) -> str:
    """Describe why a silo gave the conducted round no update: silent, refusing, or not usable."""
    if name not in answers:
        return f"'{name}' did not answer"
    answer = answers[name]
    return f"'{name}' refuses: {answer.reason}" if isinstance(answer, Refusal) else f"'{name}' sent no usable answer"


def _parse(content: bytes) -> Answer | None:
    """Read a silo's answer from a conducted run's transcript; None if it is not one."""
    with suppress(MessageError):
        return parse_answer(content)
    return None


def rounds_answered(plan: Plan, history: Iterable[RoundOutcome]) -> dict[str, int]:
    """Return how many rounds of a conducted run each silo's updates were used in."""
    counts = Counter(name for outcome in history for name in outcome.answered)
    return {terms.name: counts[terms.name] for terms in plan.silos}
