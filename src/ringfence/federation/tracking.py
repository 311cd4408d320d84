"""Following a run while it goes on: what everybody may know of each round, for experiment trackers and reports.

Only public values pass through here: who answered, the length of the noisy average, and costs computed from the plan.
No record, loss or accuracy can: a `Recorder` sees outcomes of rounds, which are made of messages that have left the
silos already.

    recorder = Recorder(plan, TensorBoard(Path("runs/first")))
    result = train(plan, silos, watch=recorder)
    recorder.end(result.statement.text())
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ringfence.accounting.charges import cost, task_event
from ringfence.accounting.events import Event
from ringfence.errors import OutputError
from ringfence.protocol.plan import Plan, SiloTerms
from ringfence.protocol.schedule import Task, task
from ringfence.server.rounds import RoundOutcome

MARKS = 40
"""In so many rounds of a run, evenly spread, the costs so far are computed: sampled batches take a while to compose."""

FOLLOWED = 8
"""Costs are computed for so many silos: those that the plan allows the most, which bound all others'."""


@dataclass(frozen=True)
class Progress:
    """What everybody may know of a round that is over.

    `update_norm` is the length of the averaged answers and `noise_norm` what their noise alone makes of it, the root
    of its mean square; None where nobody answered, or where correlated or shuffled noise has no such level. `epsilon`
    says what the answers so far have used of each followed silo's guarantee, at its delta in the plan; it is empty
    between marks. That is bookkeeping: the guarantee is the plan's, whenever you stop.
    """

    round: int
    answered: tuple[str, ...]
    refused: Mapping[str, str]
    update_norm: float | None
    noise_norm: float | None
    epsilon: Mapping[str, float]


class Tracker(Protocol):
    """Whoever wants to follow a run."""

    def begin(self, plan: Plan) -> None:
        """Take note of a run that begins or resumes."""

    def round(self, progress: Progress) -> None:
        """Take note of a round that is over. A run that resumes reports its earlier rounds again."""

    def end(self, statement: str) -> None:
        """Take note of the end, and of what the run's guarantees are."""


def marks(plan: Plan) -> frozenset[int]:
    """Return the rounds after which costs are computed: the first, the last, and some between."""
    last = plan.rounds - 1
    return frozenset(round(last * k / (MARKS - 1)) for k in range(MARKS))


class Recorder:
    """Watches a run's rounds, keeps what a report shows of them, and tells trackers.

    It is what `train` and `conduct` take as `watch`.
    """

    def __init__(self, plan: Plan, *trackers: Tracker) -> None:
        self.plan = plan
        self.rounds: list[Progress] = []
        self._trackers = trackers
        self._marks = marks(plan)
        self._terms = {terms.name: terms for terms in plan.silos}
        self._followed = sorted(plan.silos, key=lambda terms: -terms.guarantee.epsilon)[:FOLLOWED]
        self._events: dict[str, Counter[Event]] = {terms.name: Counter() for terms in self._followed}
        self._answers: Counter[tuple[str, int]] = Counter()
        self._costs: dict[tuple[frozenset[tuple[Event, int]], float], float] = {}
        for tracker in trackers:
            tracker.begin(plan)

    def __call__(self, outcome: RoundOutcome) -> None:
        """Take note of a round that is over."""
        number = self.plan.place(outcome.round).number
        work = {
            name: task(self.plan, self._terms[name], outcome.round, self._answers[name, number])
            for name in outcome.answered
        }
        for terms in self._followed:
            if terms.name in work:
                self._events[terms.name][task_event(self.plan, terms, work[terms.name])] += 1
        self._answers.update((name, number) for name in work)
        progress = Progress(
            outcome.round,
            outcome.answered,
            outcome.refused,
            outcome.update_norm,
            self._noise_norm(work),
            {terms.name: self._epsilon(terms) for terms in self._followed} if outcome.round in self._marks else {},
        )
        self.rounds.append(progress)
        for tracker in self._trackers:
            tracker.round(progress)

    def end(self, statement: str) -> None:
        """Tell trackers that the run is over."""
        for tracker in self._trackers:
            tracker.end(statement)

    def _epsilon(self, terms: SiloTerms) -> float:
        """Return what the answers of a followed silo that were used so far have cost it, at its delta in the plan."""
        events = self._events[terms.name]
        key = (frozenset(events.items()), terms.guarantee.delta)
        if key not in self._costs:  # silos on equal terms cost the same
            self._costs[key] = cost(list(events.items()), terms.guarantee)
        return self._costs[key]

    def _noise_norm(self, work: Mapping[str, Task]) -> float | None:
        """Return √(length·Σ(N/M·p_i·σ_i)²): the averaged answers are those of `server.channels.own_noise`."""
        if not work:
            return None
        share = len(self.plan.silos) / len(work)
        length = max(task.length for task in work.values())
        levels = {name: task.stage.channel.noise_level(task.sigma) for name, task in work.items()}
        known = [share * self._terms[name].weight * level for name, level in levels.items() if level is not None]
        return math.sqrt(length) * math.hypot(*known) if len(known) == len(levels) else None


class TensorBoard:
    """Writes a run into a folder that TensorBoard shows. Needs the extra `tracking`."""

    def __init__(self, folder: Path) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ModuleNotFoundError as missing:
            raise OutputError(
                f"Tracking needs '{missing.name}', which is not installed: pip install \"ringfence[tracking]\"."
            ) from None
        try:
            self._writer: Any = SummaryWriter(str(folder))
        except OSError as problem:
            raise OutputError(f"{folder} cannot be written: {problem.strerror}. Name another folder.") from None

    def begin(self, plan: Plan) -> None:
        """Write down which plan it is."""
        named = [plan.algorithm.name] if plan.steps else sorted({stage.question.name for stage in plan.stages})
        self._writer.add_text("plan", f"{plan.digest()}: {', '.join(named)}, {plan.steps or plan.rounds} rounds", 0)

    def round(self, progress: Progress) -> None:
        """Write a round's numbers."""
        self._writer.add_scalar("silos/answered", len(progress.answered), progress.round)
        self._writer.add_scalar("silos/refused", len(progress.refused), progress.round)
        if progress.update_norm is not None:
            self._writer.add_scalar("update/norm", progress.update_norm, progress.round)
        if progress.noise_norm is not None:
            self._writer.add_scalar("update/noise", progress.noise_norm, progress.round)
        for name, epsilon in progress.epsilon.items():
            self._writer.add_scalar(f"epsilon/{name}", epsilon, progress.round)
        self._writer.flush()  # a run that is stopped shows how far it came

    def end(self, statement: str) -> None:
        """Write the statement, and close the file."""
        self._writer.add_text("statement", "\n".join(f"    {line}" for line in statement.split("\n")), 0)
        self._writer.close()
