"""The loop over rounds: ask silos, average their answers, take a step."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ringfence.errors import TrainingError
from ringfence.protocol import Answer, FloatArray, Plan, Refusal, RoundRequest, SealedUpdate, Stage, unpack
from ringfence.protocol.plan.plan import StageRound
from ringfence.server.channels import RECEIVERS, Collect, Totals
from ringfence.server.queries import handler_of
from ringfence.server.state import Findings, RoundAnswers, ServerState

Ask = Callable[[RoundRequest, Sequence[str]], Mapping[str, Answer]]
"""Send a request to the named silos and return what came back; a silo that did not answer is left out."""


@dataclass(frozen=True)
class RoundOutcome:
    """What happened in a round: who answered, who refused and why, whose answer was not usable.

    `update_norm` is the length of the averaged answers, None if there were none. `weights` is where a training round
    asked, None in others; it is passed to `watch`, and not kept in a run's history.
    """

    round: int
    answered: tuple[str, ...]
    refused: Mapping[str, str]
    unusable: tuple[str, ...]
    update_norm: float | None = None
    weights: FloatArray | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class RunResult:
    """The learned weights, the history of the rounds, and the statistics that were asked for, by query."""

    weights: FloatArray
    history: tuple[RoundOutcome, ...]
    findings: Mapping[str, Findings] = field(default_factory=dict)


class Session:
    """One run of a plan, as seen by the party that takes the steps: a server, or every silo of a peer-to-peer run.

    `asked()` and `request()` say what to send to whom next; `receive()` takes what came back. Equal answers make equal
    sessions, bit for bit. A silo that refuses for good is not asked again; a round without answers changes nothing.
    `choices` decides which silos are asked where the plan leaves it open; it protects nothing, so it may be seeded.
    `candidates` are the weights of models that the plan compares, if it does.
    """

    def __init__(self, plan: Plan, choices: np.random.Generator, candidates: Sequence[FloatArray] = ()) -> None:
        """Begin a session of the server: round 0 of a plan, with the algorithm's first state."""
        self.plan = plan
        self.round = 0
        self._digest = plan.digest()
        self._choices = choices
        self._state = ServerState.initial(plan, candidates)
        self._gone: set[str] = set()
        self._turns: Counter[tuple[int, str]] = Counter()  # how often each silo was asked in a stage
        self._asked: list[str] | None = None
        self._request: RoundRequest | None = None
        self._history: list[RoundOutcome] = []

    @property
    def finished(self) -> bool:
        """Whether all rounds of the session are over."""
        return self.round >= self.plan.rounds

    @property
    def stage(self) -> Stage:
        """The stage that the session's round belongs to."""
        return self._place.stage

    def asked(self) -> list[str]:
        """Return the silos that the session's round is asked of; the same ones until it is over."""
        if self._asked is None:
            self._asked = _asked(self.plan, self._place, self._gone, self._turns, self._choices)
        return self._asked

    def request(self) -> RoundRequest:
        """Return what the session's round asks of silos; the same until the round is over."""
        if self._request is None:
            query = self.stage.query
            argument = handler_of(query).argument(query, self._state, self._step)
            self._request = RoundRequest.at(self._digest, self.round, argument)
        return self._request

    def can_use(self, silo: str, answer: Answer | None) -> bool:
        """Tell whether this round can use that answer of the silo."""
        request, channel = self.request(), self.stage.channel
        return (
            answer is not None
            and _belongs(answer, request, silo)
            and RECEIVERS[type(channel)].is_usable(channel, self.plan, self._place.number, request, answer)
        )

    def receive(self, answers: Mapping[str, Answer | None], totals: Totals | None = None) -> RoundOutcome:
        """Use what came back, and go on to the next round; None stands for bytes that were not a message of ours.

        Where answers go through a third party they say only who took part, and `totals` what came of it.
        """
        request, asked = self.request(), self.asked()
        used = {
            name: answer for name in asked if (answer := answers.get(name)) is not None and self.can_use(name, answer)
        }
        refusals = {
            name: answer.reason
            for name in asked
            if isinstance(answer := answers.get(name), Refusal) and _belongs(answer, request, name)
        }
        self._gone |= {name for name, reason in refusals.items() if reason.is_final}
        weights = unpack(request.argument)[: self.plan.dimension] if self.stage.query.trains else None
        mean = self._receive(used, totals)
        updates = () if mean is None else tuple(used)
        outcome = RoundOutcome(
            self.round,
            updates,
            {name: reason.value for name, reason in refusals.items()},
            tuple(name for name in asked if name in answers and name not in updates and name not in refusals),
            None if mean is None else float(np.linalg.norm(mean)),
            weights,
        )
        self._history.append(replace(outcome, weights=None))
        self._turns.update((self._place.number, name) for name in asked)
        self._asked = self._request = None
        self.round += 1
        return outcome

    def result(self) -> RunResult:
        """Return the model; TrainingError if no training round was answered, or no round at all if the plan trains
        nothing."""
        training = self.plan.steps > 0
        if not any(
            outcome.answered and (self.plan.place(outcome.round).stage.query.trains or not training)
            for outcome in self._history
        ):
            reasons = sorted({reason for outcome in self._history for reason in outcome.refused.values()})
            raise TrainingError(
                f"No silo answered any of the {self.plan.steps or self.plan.rounds} rounds "
                f"({', '.join(reasons) or 'no answer came back'}), so there is no model. Check that every silo "
                "approved this plan."
            )
        return RunResult(self._state.model(), tuple(self._history), self._state.findings)

    @property
    def _place(self) -> StageRound:
        """The stage of the session's round, and its number within it."""
        return self.plan.place(self.round)

    @property
    def _step(self) -> int:
        """How many rounds of training stages came before the session's round."""
        before = self.plan.stages[: self._place.number]
        return sum(stage.rounds for stage in before if stage.query.trains) + self._place.round

    def _receive(self, used: Mapping[str, Answer], totals: Totals | None) -> FloatArray | None:
        """Give the round's used answers to the stage's query, and return their mean; None if there is none."""
        (stage, number, round), step = self._place, self._step
        mean = RECEIVERS[type(stage.channel)].mean(stage.channel, self.plan, number, used, totals)
        if mean is not None:
            each = RECEIVERS[type(stage.channel)].each(stage.channel, used)
            answers = RoundAnswers(number, round, step, tuple(used), mean, each)
            self._state = handler_of(stage.query).receive(stage.query, self._state, answers)
        return mean


def run(
    plan: Plan,
    ask: Ask,
    *,
    choices: np.random.Generator | None = None,
    watch: Callable[[RoundOutcome], None] = lambda outcome: None,
    collect: Collect | None = None,
    candidates: Sequence[FloatArray] = (),
) -> RunResult:
    """Run all rounds of the plan, with a server that asks, and a third party to collect from if a channel has one."""
    session = Session(plan, choices or np.random.default_rng(), candidates)
    while not session.finished:
        asked = session.asked()
        answers = ask(session.request(), asked) if asked else {}
        watch(session.receive(answers, collected(session, answers, collect)))
    return session.result()


def collected(session: Session, answers: Mapping[str, Answer | None], collect: Collect | None) -> Totals | None:
    """Collect the totals of the round's answers from the third party, if there is one."""
    sealed = [answer for answer in answers.values() if isinstance(answer, SealedUpdate)]
    if collect is None or not sealed or not session.stage.channel.is_collected:
        return None
    return collect(session.round, sealed)


def _asked(
    plan: Plan, place: StageRound, gone: set[str], turns: Counter[tuple[int, str]], choices: np.random.Generator
) -> list[str]:
    """Choose the silos that a round asks: all, some at random, or those whose turn it is."""
    names = [terms.name for terms in plan.silos if terms.name not in gone]
    stage = place.stage
    if stage.participation.answers is not None and stage.participation.silos is not None:
        # Those whose turns were fewest, at random among equals: nobody is asked more often than is needed.
        order = choices.permutation(len(names)).tolist()
        order.sort(key=lambda i: turns[place.number, names[i]])
        left = [i for i in order if turns[place.number, names[i]] < stage.most_answers]
        return [names[i] for i in sorted(left[: stage.participation.silos])]
    if stage.participation.silos is not None:
        chosen = choices.choice(len(names), size=min(stage.participation.silos, len(names)), replace=False)
        return [names[i] for i in sorted(chosen)]
    if stage.participation.probability is not None:
        return [name for name in names if choices.random() < stage.participation.probability]
    return names


def _belongs(answer: Answer, request: RoundRequest, silo: str) -> bool:
    """Return whether an answer is that silo's, to the session's request of this round."""
    return (answer.plan, answer.round, answer.silo) == (request.plan, request.round, silo)
