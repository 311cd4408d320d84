"""The loop over rounds: ask silos, average their answers, take a step."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ringfence.errors import TrainingError
from ringfence.protocol import Answer, FloatArray, Plan, Refusal, RoundRequest, SealedUpdate, Stage, unpack
from ringfence.protocol.plan.plan import StageRound
from ringfence.server.channels import RECEIVERS, Collect, Totals
from ringfence.server.queries import handler_of, requested
from ringfence.server.state import Findings, RoundAnswers, ServerState

Ask = Callable[[RoundRequest, Sequence[str]], Mapping[str, Answer]]
"""Send a request to the named silos and return what came back; a silo that did not answer is left out."""


@dataclass(frozen=True)
class RoundOutcome:
    """What happened in a round: who answered, who refused and why, whose answer was not usable.

    `update_norm` is the length of the averaged answers, None if there were none. `weights` is where a training round
    asked, and `knots` the places of its curves' knots, None in others; they are passed to `watch`, and not kept in a
    run's history.
    """

    round: int
    answered: tuple[str, ...]
    refused: Mapping[str, str]
    unusable: tuple[str, ...]
    update_norm: float | None = None
    weights: FloatArray | None = field(default=None, repr=False, compare=False)
    knots: FloatArray | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class RunResult:
    """The learned weights, the history of the rounds, the statistics that were asked for, by query, and found knots."""

    weights: FloatArray
    history: tuple[RoundOutcome, ...]
    findings: Mapping[str, Findings] = field(default_factory=dict)
    knots: FloatArray = field(default_factory=lambda: np.zeros(0))


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
            self._asked = self._choose()
        return self._asked

    def request(self) -> RoundRequest:
        """Return what the session's round asks of silos; the same until the round is over."""
        if self._request is None:
            argument = requested(self.stage.query, self._state, self.round)
            self._request = RoundRequest.at(self._digest, self.round, argument)
        return self._request

    def can_use(self, silo: str, answer: Answer | None) -> bool:
        """Return whether this round can use that answer of the silo."""
        return (
            answer is not None
            and self._is_own(answer, silo)
            and RECEIVERS[type(self.stage.channel)].is_usable(self.plan, self._place.number, answer)
        )

    def receive(self, answers: Mapping[str, Answer | None], totals: Totals | None = None) -> RoundOutcome:
        """Use what came back, and go on to the next round; None stands for bytes that were not a message of ours.

        Where answers go through a third party they say only who took part, and `totals` what came of it.
        """
        (stage, number, _), request = self._place, self.request()
        given = {name: answers[name] for name in self.asked() if name in answers}
        used = {name: answer for name, answer in given.items() if answer is not None and self.can_use(name, answer)}
        refusals = {
            name: answer.reason
            for name, answer in given.items()
            if isinstance(answer, Refusal) and self._is_own(answer, name)
        }
        self._gone |= {name for name, reason in refusals.items() if reason.is_final}
        updates: tuple[str, ...] = ()
        norm = None
        averaged = RECEIVERS[type(stage.channel)].average(stage.channel, self.plan, number, used, totals)
        if averaged is not None:
            updates, norm = tuple(used), float(np.linalg.norm(averaged[0]))
            received = RoundAnswers(number, self.round, updates, *averaged)
            self._state = handler_of(stage.query).receive(stage.query, self._state, received)
        outcome = RoundOutcome(
            self.round,
            updates,
            {name: reason.value for name, reason in refusals.items()},
            tuple(name for name in given if name not in updates and name not in refusals),
            norm,
            *self._asked_about(request),
        )
        self._history.append(replace(outcome, weights=None, knots=None))
        self._turns.update((number, name) for name in self.asked())
        self._asked = self._request = None
        self.round += 1
        return outcome

    def _asked_about(self, request: RoundRequest) -> tuple[FloatArray | None, FloatArray | None]:
        """Return the weights and the knots that a training round of the session asks about, None in other rounds."""
        if not self.stage.query.trains:
            return None, None
        knots, argument = np.split(unpack(request.argument), [self.stage.query.knots(self.plan)])
        return argument[: self.plan.dimension], knots

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
                f"No silo answered any of the {self.plan.steps or self.plan.rounds} {'training ' * training}rounds "
                f"({', '.join(reasons) or 'no answer came back'}), so there is no model. Check that every silo "
                "approved this plan."
            )
        return RunResult(self._state.model(), tuple(self._history), self._state.findings, self._state.knots)

    @property
    def _place(self) -> StageRound:
        """The stage of the session's round, and its number within it."""
        return self.plan.place(self.round)

    def _is_own(self, answer: Answer, silo: str) -> bool:
        """Return whether an answer is that silo's, to the session's request of this round."""
        return (answer.plan, answer.round, answer.silo) == (self._digest, self.round, silo)

    def _choose(self) -> list[str]:
        """Choose the silos that the session's round asks: all, some at random, or those whose turn it is."""
        names = [terms.name for terms in self.plan.silos if terms.name not in self._gone]
        stage, number, _ = self._place
        rule = stage.participation
        if rule.answers is not None:
            # Those whose turns were fewest, at random among equals: nobody is asked more often than is needed.
            order = self._choices.permutation(len(names)).tolist()
            order.sort(key=lambda i: self._turns[number, names[i]])
            left = [i for i in order if self._turns[number, names[i]] < stage.most_answers]
            return [names[i] for i in sorted(left[: rule.silos])]
        if rule.silos is not None:
            chosen = self._choices.choice(len(names), size=min(rule.silos, len(names)), replace=False)
            return [names[i] for i in sorted(chosen)]
        if rule.probability is not None:
            return [name for name in names if self._choices.random() < rule.probability]
        return names


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
