"""The loop over rounds: ask silos, average what they send, step."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ringfence.errors import TrainingError
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.messages import Answer, NoisyUpdate, Refusal, RoundRequest, SealedUpdate, unpack
from ringfence.protocol.plan import Plan
from ringfence.protocol.schedule import survey_length
from ringfence.server.algorithms import algorithm_of
from ringfence.server.shuffled import Collect, Totals, mean_gradient
from ringfence.server.survey import Findings, findings, smoothness

Ask = Callable[[RoundRequest, Sequence[str]], Mapping[str, Answer]]
"""Send a request to the named silos and return what came back; a silo that did not answer is left out."""


@dataclass(frozen=True)
class Outcome:
    """What happened in a round: who answered, who refused and why, whose answer was not usable.

    `update_norm` is the length of the averaged answers, None if there were none. `weights` is where the round asked
    for gradients, None in a survey; whoever watches the rounds gets it, and a run's history does not keep it.
    """

    round: int
    answered: tuple[str, ...]
    refused: Mapping[str, str]
    unusable: tuple[str, ...]
    update_norm: float | None = None
    weights: FloatArray | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Trained:
    """The learned weights, the history of the rounds, and what a survey found, if there was one."""

    weights: FloatArray
    history: tuple[Outcome, ...]
    findings: Findings | None = None


class Session:
    """One run of a plan, from the side of whoever steps: a server, or every silo of a peer-to-peer run.

    `asked()` and `request()` say what to send to whom next; `receive()` takes what came back. Equal answers make equal
    sessions, bit for bit. A silo that refuses for good is not asked again; a round that nobody answers changes
    nothing. `choices` decides which silos are asked where the plan leaves it open; it protects nothing, so it may be
    seeded.
    """

    def __init__(self, plan: Plan, choices: np.random.Generator) -> None:
        self.plan = plan
        self.round = 0
        self.findings: Findings | None = None
        self._digest = plan.digest()
        self._choices = choices
        self._algorithm = algorithm_of(plan)
        self._settings: Any = self._algorithm.settings(plan)
        self._state: Any = self._algorithm.init(np.zeros(plan.dimension))
        self._gone: set[str] = set()
        self._asked: list[str] | None = None
        self._history: list[Outcome] = []

    @property
    def finished(self) -> bool:
        """Whether all rounds are over."""
        return self.round >= self.plan.exchanges

    def asked(self) -> list[str]:
        """Return the silos that this round is asked of; the same ones until it is over."""
        if self._asked is None:
            self._asked = _asked(self.plan, self._gone, self._choices, everybody=self._surveys)
        return self._asked

    def request(self) -> RoundRequest:
        """Return what they are asked."""
        start = np.zeros(self.plan.dimension)
        weights = start if self._surveys else self._algorithm.query(self._settings, self._state, self._step)
        return RoundRequest.at(self._digest, self.round, weights)

    def can_use(self, silo: str, answer: Answer | None) -> bool:
        """Tell whether this round can use that answer of the silo."""
        if self.plan.shuffle is not None:
            return isinstance(answer, SealedUpdate) and _belongs(answer, self.request(), silo)
        return self._vector(silo, answer) is not None

    def receive(self, answers: Mapping[str, Answer | None], totals: Totals | None = None) -> Outcome:
        """Use what came back, and go on to the next round; None stands for bytes that were no message of ours.

        Through a shuffler the silos' answers say only who took part, and `totals` what came of it.
        """
        request, asked = self.request(), self.asked()
        updates = tuple(name for name in asked if self.can_use(name, answers.get(name)))
        refusals = {
            name: answer.reason
            for name in asked
            if isinstance(answer := answers.get(name), Refusal) and _belongs(answer, request, name)
        }
        self._gone |= {name for name, reason in refusals.items() if reason.is_final}
        weights = None if self._surveys else unpack(request.weights)
        mean = self._mean({name: answers.get(name) for name in updates}, totals)
        if mean is None:
            updates = ()
        else:
            self._use(mean, updates)
        outcome = Outcome(
            self.round,
            updates,
            {name: reason.value for name, reason in refusals.items()},
            tuple(name for name in asked if name in answers and name not in updates and name not in refusals),
            None if mean is None else float(np.linalg.norm(mean)),
            weights,
        )
        self._history.append(replace(outcome, weights=None))
        self._asked = None
        self.round += 1
        return outcome

    def result(self) -> Trained:
        """Return the model; TrainingError if nobody answered a round of gradients, or the survey where that is all."""
        first = self.plan.preliminaries if self.plan.rounds else 0
        if not any(outcome.answered for outcome in self._history[first:]):
            reasons = sorted({reason for outcome in self._history for reason in outcome.refused.values()})
            raise TrainingError(
                f"No silo answered any of the {self.plan.rounds or self.plan.exchanges} rounds "
                f"({', '.join(reasons) or 'no answer came back'}), so there is no model. Check that every silo "
                "approved this plan."
            )
        return Trained(self._algorithm.output(self._settings, self._state), tuple(self._history), self.findings)

    @property
    def _surveys(self) -> bool:
        return self.round < self.plan.preliminaries

    @property
    def _step(self) -> int:
        return self.round - self.plan.preliminaries

    def _vector(self, silo: str, answer: Answer | None) -> FloatArray | None:
        length = survey_length(self.plan) if self._surveys else self.plan.dimension
        return _usable(length, self.request(), silo, answer)

    def _mean(self, updates: Mapping[str, Answer | None], totals: Totals | None) -> FloatArray | None:
        if self.plan.shuffle is not None:
            return None if totals is None else mean_gradient(self.plan, self.plan.shuffle, totals)
        vectors = {name: self._vector(name, answer) for name, answer in updates.items()}
        return mean_update(self.plan, {name: v for name, v in vectors.items() if v is not None}) if vectors else None

    def _use(self, mean: FloatArray, answered: Sequence[str]) -> None:
        if self._surveys:
            self.findings = findings(self.plan, mean, answered)
            self._settings = self._algorithm.settings(self.plan, smoothness(self.plan, self.findings))
        else:
            project = self.plan.domain.project
            self._state = self._algorithm.step(self._settings, project, self._state, mean, self._step)


def run(
    plan: Plan,
    ask: Ask,
    *,
    choices: np.random.Generator | None = None,
    watch: Callable[[Outcome], None] = lambda outcome: None,
    collect: Collect | None = None,
) -> Trained:
    """Run the plan's algorithm over all its rounds, with a server that asks, and a shuffler to collect from if any."""
    session = Session(plan, choices or np.random.default_rng())
    while not session.finished:
        asked = session.asked()
        answers = ask(session.request(), asked) if asked else {}
        sealed = [answer for answer in answers.values() if isinstance(answer, SealedUpdate)]
        watch(session.receive(answers, collect(session.round, sealed) if collect and sealed else None))
    return session.result()


def mean_update(plan: Plan, updates: Mapping[str, FloatArray]) -> FloatArray:
    """Average the updates by the silos' public weights: (N/M)·Σ p_i·g_i over the M that answered.

    With equal weights this is the plain mean. With others it is unbiased when every silo is equally likely to
    be among those that answer.
    """
    share = len(plan.silos) / len(updates)
    weights = {terms.name: terms.weight for terms in plan.silos}
    total: FloatArray = np.sum([share * weights[name] * vector for name, vector in updates.items()], axis=0)
    return total


def _asked(plan: Plan, gone: set[str], choices: np.random.Generator, *, everybody: bool) -> list[str]:
    names = [terms.name for terms in plan.silos if terms.name not in gone]
    if everybody:
        return names
    if plan.participation.silos is not None:
        chosen = choices.choice(len(names), size=min(plan.participation.silos, len(names)), replace=False)
        return [names[i] for i in sorted(chosen)]
    if plan.participation.probability is not None:
        return [name for name in names if choices.random() < plan.participation.probability]
    return names


_LARGEST = 1e100
"""No honest number is larger, and a step from it cannot overflow; NaN and infinity fail the comparison too."""


def _belongs(answer: Answer, request: RoundRequest, silo: str) -> bool:
    return (answer.plan, answer.round, answer.silo) == (request.plan, request.round, silo)


def _usable(length: int, request: RoundRequest, silo: str, answer: Answer | None) -> FloatArray | None:
    """Return the silo's vector if it is an update of this round in the right shape; silos may be hostile too."""
    if not isinstance(answer, NoisyUpdate):
        return None
    if not _belongs(answer, request, silo):
        return None
    vector = unpack(answer.vector)
    if vector.shape != (length,) or not np.all(np.abs(vector) <= _LARGEST):
        return None
    return vector
