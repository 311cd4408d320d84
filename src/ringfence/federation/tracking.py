"""Tracking a run: each round's public values, for experiment trackers and reports.

These are the silos that answered, the norm of the noisy average, and costs computed from the plan. No record, loss or
accuracy can be among them: a `Recorder` sees outcomes of rounds, which are made of messages that already left silos.

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
from ringfence.errors import WHY, OutputError, os_error_as, require_extra
from ringfence.protocol import Plan, SiloTerms, Task, rounds_words
from ringfence.protocol.plan.plan import task
from ringfence.server.rounds import RoundOutcome

MARKS = 40
"""Rounds of a run, evenly spread, in which costs are computed: composing sampled batches takes a while."""

FOLLOWED = 8
"""Silos whose costs are computed: those with the largest epsilon, which bounds all others."""


@dataclass(frozen=True)
class Progress:
    """The public values of a finished round.

    `update_norm` is the norm of the averaged answers and `noise_norm` the root mean square norm of their noise; None if
    nobody answered, or for correlated or shuffled noise. `epsilon` is the cost of the answers so far to each followed
    silo, at its delta in the plan; it is empty between marks. It is a running tally: the guarantee is the plan's,
    whenever you stop.
    """

    round: int
    answered: tuple[str, ...]
    refused: Mapping[str, str]
    update_norm: float | None
    noise_norm: float | None
    epsilon: Mapping[str, float]


class Tracker(Protocol):
    """An experiment tracker that follows a run."""

    def begin(self, plan: Plan) -> None:
        """Track a run that begins or resumes."""

    def round(self, progress: Progress) -> None:
        """Track a finished round. A run that resumes reports its earlier rounds again."""

    def end(self, statement: str) -> None:
        """Track the end of the run, with the statement of its guarantees."""


def marks(plan: Plan) -> frozenset[int]:
    """Return the rounds after which a tracked run's costs are computed: the first, the last, and some between."""
    last = plan.rounds - 1
    return frozenset(round(last * k / (MARKS - 1)) for k in range(MARKS))


class Recorder:
    """Records a run's rounds for reports and trackers; `train` and `conduct` take it as `watch`."""

    def __init__(self, plan: Plan, *trackers: Tracker) -> None:
        """Begin to record a run for reports and trackers; follow the silos with the largest epsilon."""
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
        """Record a finished round for reports, and pass it to the trackers."""
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
        """Pass the statement to the run's trackers."""
        for tracker in self._trackers:
            tracker.end(statement)

    def _epsilon(self, terms: SiloTerms) -> float:
        """Return the cost of a followed silo's answers so far, at its delta in the plan."""
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
        """Open the folder for TensorBoard's event file."""
        require_extra("tracking", "Tracking", "tensorboardX", error=OutputError)
        from tensorboardX import SummaryWriter

        with os_error_as(OutputError, f"{folder} cannot be written: {WHY}. Name another folder."):
            self._writer: Any = SummaryWriter(str(folder))

    def begin(self, plan: Plan) -> None:
        """Write the plan's digest and queries for TensorBoard."""
        named = [plan.algorithm.name] if plan.steps else sorted({stage.query.name for stage in plan.stages})
        self._writer.add_text("plan", f"{plan.digest()}: {', '.join(named)}, {rounds_words(plan)}", 0)

    def round(self, progress: Progress) -> None:
        """Write a round's numbers for TensorBoard."""
        silos = {"silos/answered": len(progress.answered), "silos/refused": len(progress.refused)}
        norms = {"update/norm": progress.update_norm, "update/noise": progress.noise_norm}
        costs = {f"epsilon/{name}": epsilon for name, epsilon in progress.epsilon.items()}
        for name, value in (silos | norms | costs).items():
            if value is not None:
                self._writer.add_scalar(name, value, progress.round)
        self._writer.flush()  # a run that is stopped shows how far it came

    def end(self, statement: str) -> None:
        """Write the statement for TensorBoard, and close the file."""
        self._writer.add_text("statement", "\n".join(f"    {line}" for line in statement.split("\n")), 0)
        self._writer.close()
