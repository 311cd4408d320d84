"""The plans that are audited: each of one kind of release, with noise that comes to the asked guarantee exactly."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ringfence.accounting import accountant, calibrate
from ringfence.accounting.charges import plan_events
from ringfence.accounting.events import Event, require_count, require_positive, require_probability
from ringfence.audit import shuffled_plans
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest, clear_refusals
from ringfence.protocol.algorithms import AlgorithmSpec, Localized, MinibatchSGD, MultiStage, Phase, Restart
from ringfence.protocol.channels import OwnNoise
from ringfence.protocol.domain import Box
from ringfence.protocol.guarantee import Guarantee
from ringfence.protocol.losses import Squared
from ringfence.protocol.plan import EVERYBODY, Participation, Plan, SiloTerms, Stage, StageTerms, Training
from ringfence.protocol.questions import Gradient, Question
from ringfence.protocol.sampling import Full, SamplingName
from ringfence.protocol.schema import Schema, parse_schema

SILO = "audited silo"
CANARIES = 64
CLIP = 0.25
"""A quarter of the canaries' gradients, so that a silo that does not clip is found out."""

CORRELATION = 0.5
"""θ of the correlated noise that is audited."""

SGD = MinibatchSGD(step=1.0)
DOMAIN = Box(lower=-1.0, upper=1.0)

PEER_SIZE = 14
"""How many times as large as the audited silo one is that colludes with the server."""

PERSON_ROWS = {1.0: 2, -1.0: 4}
"""How many rows a canary that is a person has, by its coin: by the rule `rows`, the first two count."""

FIRST_SHARE = 0.5
"""How much of the epsilon the first of several plans gets."""


@dataclass(frozen=True)
class AuditQuestion:
    """What is asked of a mechanism: a guarantee for all rounds together, and the size of the silo."""

    epsilon: float
    delta: float
    records: int
    rounds: int

    def __post_init__(self) -> None:
        require_positive("epsilon", self.epsilon)
        require_probability("delta", self.delta)
        require_count("records", self.records)
        require_count("rounds", self.rounds)

    @property
    def canaries(self) -> int:
        """How many records play."""
        return min(self.records, CANARIES)


_NUMBER = {"type": "numeric", "lower": -1.0, "upper": 1.0}
THREE_NUMBERS = parse_schema(
    {"columns": dict.fromkeys(("x1", "x2", "y"), _NUMBER), "intercept": 0.0, "radius": 1.0}, target="y"
)
"""The columns that most questions which one canary moves are about."""

OF_RECORDS = PlanRequest()
BY_MEAN, BY_SUM = PlanRequest(person_rule="mean"), PlanRequest(person_rule="sum")
BY_ROWS = PlanRequest(person_rule="rows", rows_per_person=min(PERSON_ROWS.values()))


def canary_schema(canaries: int, unit: PlanRequest) -> Schema:
    """One column that says which canary a record is, and its coin; and one that tells persons apart, if they play."""
    which = {"type": "categorical", "categories": [f"canary {number}" for number in range(max(2, canaries))]}
    person = {} if unit.person_rule is None else {"person": "who"}
    return parse_schema({"columns": {"which": which, "coin": _NUMBER}, "intercept": 0.0, **person}, target="coin")


def _plan(
    question: AuditQuestion,
    data: Schema,
    stages: Sequence[Stage],
    *,
    algorithm: AlgorithmSpec = SGD,
    batch: int | None = None,
    already: Sequence[tuple[Event, int]] = (),
    unit: PlanRequest = OF_RECORDS,
) -> Plan:
    """Make a plan of these stages that, after what was `already` released, comes to the question's epsilon exactly.

    Where a stage's sampling leaves it open, `batch` records take part. `unit` says what a person's rows come to.
    """
    member = Member(SILO, question.records, question.epsilon, question.delta, batch)
    batches = [member.batch_under(stage.sampling, stage.rounds) for stage in stages]

    def terms(sigma: float, epsilon: float) -> SiloTerms:
        noise = [sigma * algorithm.noise(question.records, number) for number in range(len(stages))]
        return SiloTerms(
            name=SILO,
            records=question.records,
            weight=1.0,
            guarantees=(Guarantee(epsilon=epsilon, delta=question.delta),),
            stages=tuple(StageTerms(batch=size, sigma=own) for size, own in zip(batches, noise, strict=True)),
        )

    def made(sigma: float, epsilon: float) -> Plan:
        training = Training(loss=Squared(), domain=DOMAIN, algorithm=algorithm)
        return Plan(
            run="audit",
            data=data,
            training=training,
            stages=tuple(stages),
            sums="exact",
            silos=(terms(sigma, epsilon),),
            **unit.units(data),
        )

    def events(sigma: float) -> list[tuple[Event, int]]:
        return plan_events(draft, terms(sigma, question.epsilon))

    with clear_refusals():
        draft = made(1.0, question.epsilon)
        shift = calibrate.gaussian_shift(question.epsilon, question.delta)
        start = stages[0].question.sensitivity(draft, batches[0]) * math.sqrt(draft.rounds) / shift
        sigma = calibrate.least_noise(
            events, epsilon=question.epsilon, delta=question.delta, start=start, already=already
        )
        # What this plan claims is its own cost: with others before it, less than all of them together.
        return made(sigma, accountant.epsilon(events(sigma), question.delta))


def gradient_plan(
    question: AuditQuestion,
    *,
    sampling: SamplingName = "full",
    batch: int | None = None,
    algorithm: AlgorithmSpec = SGD,
    correlation: float = 0.0,
    already: Sequence[tuple[Event, int]] = (),
    unit: PlanRequest = OF_RECORDS,
    participation: Participation = EVERYBODY,
) -> Plan:
    """Make a plan of gradients, one training stage after the other."""
    asked, channel = Gradient(clip=CLIP), OwnNoise(correlation=correlation)
    stages = [
        Stage(question=asked, rounds=rounds, sampling=rule, channel=channel, participation=participation)
        for rounds, rule in algorithm.training_stages(sampling, question.rounds)
    ]
    data = canary_schema(question.canaries, unit)
    return _plan(question, data, stages, algorithm=algorithm, batch=batch, already=already, unit=unit)


def shuffled(question: AuditQuestion, canaries: int, peers: int = 0, unit: PlanRequest = OF_RECORDS) -> list[Plan]:
    """Make the plan with the least coins that keep the guarantee, with another silo as large as the audited one.

    A peer, which tells the server all, has `PEER_SIZE` times as many records: a claim that relies on it is found out.
    """
    sizes = {SILO: 1, shuffled_plans.OTHER: 1, shuffled_plans.PEER: PEER_SIZE}
    members = [
        Member(name, size * question.records, question.epsilon, question.delta)
        for name, size in list(sizes.items())[: 2 + peers]
    ]
    request = replace(
        unit,
        run="audit",
        loss=Squared(),
        clip=CLIP,
        domain=DOMAIN,
        algorithm=SGD,
        rounds=question.rounds,
        trust="shuffler",
        colluders=peers,
        keys=shuffled_plans.private_keys(SILO).public(),
    )
    return [make_plan(canary_schema(min(question.records, canaries), unit), members, request)]


def survey(question: AuditQuestion, asked: Question, schema: Schema, *, repeated: bool) -> list[Plan]:
    """Make the plan of one question, asked once or in every round."""
    rounds = question.rounds if repeated else 1
    return [_plan(question, schema, [Stage(question=asked, rounds=rounds, sampling=Full())])]


def one_pass(question: AuditQuestion, *, correlation: float = 0.0, unit: PlanRequest = OF_RECORDS) -> list[Plan]:
    """Make the plan in which every record takes part in one round."""
    return [gradient_plan(question, sampling="one-pass", correlation=correlation, unit=unit)]


def sampled(question: AuditQuestion, sampling: SamplingName, unit: PlanRequest = OF_RECORDS) -> list[Plan]:
    """Make the plan whose batches are drawn."""
    return [gradient_plan(question, sampling=sampling, batch=_sampled_batch(question), unit=unit)]


def _sampled_batch(question: AuditQuestion) -> int:
    """Three quarters of the records: large batches show best whether a record was drawn twice into one."""
    return max(1, 3 * question.records // 4)


def _halves(rounds: int) -> list[int]:
    """Return two halves of the rounds, of which the first may be longer; a single round is one."""
    return [half for half in (rounds - rounds // 2, rounds // 2) if half]


def restarted(question: AuditQuestion) -> list[Plan]:
    """Make the plan of full batches, accelerated in stages."""
    stages = tuple(Restart(rounds=half, pace=0.0) for half in _halves(question.rounds))
    return [gradient_plan(question, algorithm=MultiStage(smoothness=1.0, stages=stages, penalty=0.1))]


def turns(question: AuditQuestion) -> list[Plan]:
    """Make the plan of full batches that lets the silo answer the question's rounds among twice as many."""
    among = replace(question, rounds=2 * question.rounds)
    return [gradient_plan(among, participation=Participation(silos=1, answers=question.rounds))]


def phased(question: AuditQuestion) -> list[Plan]:
    """Make the plan of phases on ever fewer records."""
    phases = tuple(Phase(rounds=half, penalty=0.1) for half in _halves(question.rounds))
    return [gradient_plan(question, sampling="phased", algorithm=Localized(smoothness=1.0, phases=phases))]


def several(question: AuditQuestion) -> list[Plan]:
    """Return two plans of different kinds that only together come to the question's epsilon, and to its rounds."""
    share = replace(question, rounds=max(1, question.rounds // 2))
    first = gradient_plan(replace(share, epsilon=FIRST_SHARE * question.epsilon))
    spent = plan_events(first, first.silos[0])
    return [first, gradient_plan(share, sampling="poisson", batch=_sampled_batch(question), already=spent)]
