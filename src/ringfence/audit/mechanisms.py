"""What is audited: every kind of release that Ringfence ships, set up for its worst case.

*Canaries.* All records that move anything are canaries, at most `CANARIES` of them; the others are zeros. The j-th
canary has feature j equal to 1, all its other features 0, and its coin, +1 or −1, for a target. Under the squared loss
its gradient at weights w is (w_j − coin) in direction j: longer than the clip wherever |w_j| ≤ ½, and so exactly
−coin·clip after clipping. Replacing a canary by the one with the other coin moves the mean by 2·clip/batch, the most
that any record can; the other canaries move other coordinates, whose noise is independent, and do not disturb. So
every canary plays against fully known others, and many play at once.

A *survey* releases one statistic, which one canary moves at a time. With a *shuffler* canaries are gradients again, and
the claim depends on who looks (`shuffled`). Where a plan protects *persons*, a canary is one with several rows, and the
coin decides how many these are too (`PERSON_ROWS`); by every rule they come to a gradient of the clip's length. (By the
rule `sum`, rounding makes it shorter by 2⁻³¹ of that. Over 1200 runs at epsilon 10, half of the root of the summed
squared shifts, which bounds how far any probability is off, is below 10⁻⁷.)
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ringfence.accounting import accountant, calibrate
from ringfence.accounting.charges import plan_events
from ringfence.accounting.events import Event, require_count, require_positive, require_probability
from ringfence.audit import chosen, counted, one_canary, shuffled_plans
from ringfence.audit.adversary import Observation, partition, read_gradients
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest, clear_refusals
from ringfence.protocol import sections
from ringfence.protocol.algorithms import AlgorithmSpec, Localized, MinibatchSGD, MultiStage, Phase, Restart
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.channels import OwnNoise
from ringfence.protocol.domain import Box
from ringfence.protocol.guarantee import Guarantee, Observer
from ringfence.protocol.losses import Squared
from ringfence.protocol.plan import Plan, SiloTerms, Stage, StageTerms, Training
from ringfence.protocol.questions import Curvature, Evaluation, Gradient, Moments, SecondMoments
from ringfence.protocol.sampling import Full, SamplingName
from ringfence.protocol.schedule import task
from ringfence.protocol.schema import Schema, parse_schema
from ringfence.protocol.sections import Section
from ringfence.silo.records import Records

SILO = "audited silo"
CANARIES = 64
CLIP = 0.25
"""A quarter of the canaries' gradients, so that a silo that does not clip is found out."""

CORRELATION = 0.5
"""θ of the correlated noise that is audited."""

SGD = MinibatchSGD(step=1.0)
DOMAIN = Box(lower=-1.0, upper=1.0)

PEER_SIZE = 14
"""How many times as large as the audited silo one is that works together with the server."""

PERSON_ROWS = {1.0: 2, -1.0: 4}
"""How many rows a canary that is a person has, by its coin: by the rule `rows`, the first two count."""

FIRST_SHARE = 0.5
"""How much of the epsilon the first of several plans gets."""


@dataclass(frozen=True)
class Question:
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


_OF_RECORDS = PlanRequest()
_BY_MEAN, _BY_SUM = PlanRequest(person_rule="mean"), PlanRequest(person_rule="sum")
_BY_ROWS = PlanRequest(person_rule="rows", rows_per_person=min(PERSON_ROWS.values()))


def _canary_schema(canaries: int, unit: PlanRequest) -> Schema:
    """One column that says which canary a record is, and its coin; and one that tells persons apart, if they play."""
    which = {"type": "categorical", "categories": [f"canary {number}" for number in range(max(2, canaries))]}
    person = {} if unit.person_rule is None else {"person": "who"}
    return parse_schema({"columns": {"which": which, "coin": _NUMBER}, "intercept": 0.0, **person}, target="coin")


def _plan(
    question: Question,
    data: Schema,
    stages: Sequence[Stage],
    *,
    algorithm: AlgorithmSpec = SGD,
    batch: int | None = None,
    already: Sequence[tuple[Event, int]] = (),
    unit: PlanRequest = _OF_RECORDS,
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


def _gradient_plan(
    question: Question,
    *,
    sampling: SamplingName = "full",
    batch: int | None = None,
    algorithm: AlgorithmSpec = SGD,
    correlation: float = 0.0,
    already: Sequence[tuple[Event, int]] = (),
    unit: PlanRequest = _OF_RECORDS,
) -> Plan:
    asked, channel = Gradient(clip=CLIP), OwnNoise(correlation=correlation)
    stages = [
        Stage(question=asked, rounds=rounds, sampling=rule, channel=channel)
        for rounds, rule in algorithm.training_stages(sampling, question.rounds)
    ]
    data = _canary_schema(question.canaries, unit)
    return _plan(question, data, stages, algorithm=algorithm, batch=batch, already=already, unit=unit)


def _shuffled_plan(question: Question, canaries: int, peers: int = 0, unit: PlanRequest = _OF_RECORDS) -> list[Plan]:
    """Make the plan with the least coins that keep the guarantee, with another silo as large as the audited one.

    A peer, which tells the server all, has `PEER_SIZE` times as many records: a claim that counts on it shows.
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
    return [make_plan(_canary_schema(min(question.records, canaries), unit), members, request)]


def _choice(question: Question, *, section: Section) -> list[Plan]:
    """Return the plans of a choice that together come to the question's epsilon, with a schema for these canaries."""
    canaries = min(sections.size(section, question.records, chosen.HELD_OUT), chosen.MOST_CANARIES)
    schema = _canary_schema(canaries, _OF_RECORDS) if section == "training" else _survey_schema()
    rounds = max(1, question.rounds // chosen.CANDIDATES)
    request = PlanRequest(loss=Squared(), clip=CLIP, domain=DOMAIN, algorithm=SGD, rounds=rounds)
    return chosen.plans(schema, Member(SILO, question.records, question.epsilon, question.delta), request)


def _survey_schema() -> Schema:
    columns = dict.fromkeys(("x1", "x2", "y"), _NUMBER)
    return parse_schema({"columns": columns, "intercept": 0.0, "radius": 1.0}, target="y")


def _survey_plan(
    question: Question, *, asked: Curvature | Evaluation | Moments | SecondMoments, repeated: bool = False
) -> list[Plan]:
    rounds = question.rounds if repeated else 1
    return [_plan(question, _survey_schema(), [Stage(question=asked, rounds=rounds, sampling=Full())])]


def _statistics_plan(question: Question) -> list[Plan]:
    return [_plan(question, counted.SCHEMA, [Stage(question=counted.ASKED, rounds=1, sampling=Full())])]


def _one_pass(question: Question, *, correlation: float = 0.0, unit: PlanRequest = _OF_RECORDS) -> list[Plan]:
    return [_gradient_plan(question, sampling="one-pass", correlation=correlation, unit=unit)]


def _sampled(question: Question, sampling: SamplingName, unit: PlanRequest = _OF_RECORDS) -> list[Plan]:
    return [_gradient_plan(question, sampling=sampling, batch=_sampled_batch(question), unit=unit)]


def _sampled_batch(question: Question) -> int:
    """Three quarters of the records: large batches show best whether a record was drawn twice into one."""
    return max(1, 3 * question.records // 4)


def _halves(rounds: int) -> list[int]:
    """Return two halves of the rounds, of which the first may be longer; a single round is one."""
    return [half for half in (rounds - rounds // 2, rounds // 2) if half]


def _stages(question: Question) -> list[Plan]:
    stages = tuple(Restart(rounds=half, pace=0.0) for half in _halves(question.rounds))
    return [_gradient_plan(question, algorithm=MultiStage(smoothness=1.0, stages=stages, penalty=0.1))]


def _phases(question: Question) -> list[Plan]:
    phases = tuple(Phase(rounds=half, penalty=0.1) for half in _halves(question.rounds))
    return [_gradient_plan(question, sampling="phased", algorithm=Localized(smoothness=1.0, phases=phases))]


def _several(question: Question) -> list[Plan]:
    """Return two plans of different kinds that only together come to the question's epsilon, and to its rounds."""
    share = replace(question, rounds=max(1, question.rounds // 2))
    first = _gradient_plan(replace(share, epsilon=FIRST_SHARE * question.epsilon))
    spent = plan_events(first, first.silos[0])
    return [first, _gradient_plan(share, sampling="poisson", batch=_sampled_batch(question), already=spent)]


def canary_rows(plan: Plan) -> list[int]:
    """Return the rows in which a gradient plan's canaries stand: those that take part first, where that is known."""
    terms = plan.silos[0]
    divided = task(plan, terms, 0, 0).part is not None
    rows = partition(plan, SILO, terms.records) if divided else range(terms.records)
    return list(rows)[: plan.data.width]


def no_canaries(plan: Plan, terms: SiloTerms) -> Records:
    """Return records of a silo that is not audited: their gradients are 0."""
    return Records(plan.data, np.zeros((terms.records, plan.data.width)), np.zeros(terms.records))


def _gradient_records(plan: Plan, coins: FloatArray) -> Records:
    records, rows = plan.silos[0].records, canary_rows(plan)
    features, targets = np.zeros((records, plan.data.width)), np.zeros(records)
    features[rows, np.arange(len(rows))] = 1.0
    targets[rows] = coins
    return Records(plan.data, features, targets)


def _person_records(plan: Plan, coins: FloatArray) -> Records:
    """Every canary's row several times over, with other persons' in between; all others have the fewest rows."""
    once = _gradient_records(plan, coins)
    often = np.where(once.targets == -1.0, PERSON_ROWS[-1.0], PERSON_ROWS[1.0])
    of_row = np.concatenate([np.flatnonzero(often > turn) for turn in range(max(often))])
    return Records(plan.data, once.features[of_row], once.targets[of_row], of_row=of_row)


def _read_gradients(plan: Plan, answers: Sequence[FloatArray], *, correlation: float = 0.0) -> Observation:
    return read_gradients(plan, plan.silos[0], np.array(answers), canary_rows(plan), clip=CLIP, correlation=correlation)


@dataclass(frozen=True)
class Mechanism:
    """A kind of release: the plans of one run, the records for given coins, and how a server reads the answers."""

    plans: Callable[[Question], Sequence[Plan]]
    records: Callable[[Plan, FloatArray], Records] = _gradient_records
    read: Callable[[Plan, Sequence[FloatArray]], Observation] = _read_gradients
    argument: Callable[[Plan, int], FloatArray] = lambda plan, stage: np.zeros(plan.dimension)
    """What the server asks about first in a stage, by its number."""
    reads: Callable[[Plan], bool] = lambda plan: True
    """Whether a plan asks about the canaries. One that does not is asked all the same, and the ledger charges it."""
    section: Section | None = None
    """Which section of the records the canaries are in, where plans divide them."""
    most_canaries: int = CANARIES
    """How many records play at most."""
    not_played: frozenset[str] = frozenset({"forget-peer", "keep-order", "ignore-persons", "forget-tries"})
    """Sabotage that is not played here: it means nothing, or another mechanism shows it far better."""
    against: Observer = "anyone"
    """Who looks: the claim is the one against them."""
    rounds: int = 2
    """Rounds of a run if nobody says: two at least for every plan of it, or noise that is reused would not show."""
    runs: int | None = None
    """Runs if nobody says, where a run costs more than elsewhere: by the number of canaries otherwise."""

    def canaries(self, question: Question) -> int:
        """Return how many records play."""
        return min(sections.size(self.section, question.records, chosen.HELD_OUT), self.most_canaries)


def _read_counts(plan: Plan, answers: Sequence[FloatArray], *, against: Observer) -> Observation:
    return shuffled_plans.read_counts(
        plan, np.array(answers), canaries=len(canary_rows(plan)), clip=CLIP, against=against
    )


def _counts(
    *,
    against: Observer,
    canaries: int,
    runs: int,
    not_played: set[str],
    peers: int = 0,
    records: Callable[[Plan, FloatArray], Records] = _gradient_records,
    unit: PlanRequest = _OF_RECORDS,
) -> Mechanism:
    return Mechanism(
        partial(_shuffled_plan, canaries=canaries, peers=peers, unit=unit),
        records,
        read=partial(_read_counts, against=against),
        most_canaries=canaries,
        not_played=frozenset(not_played),
        against=against,
        runs=runs,
    )


_OF_OTHERS = {"forget-peer", "keep-order", "forget-tries"}
"""Sabotage of what others than the audited silo do, and of what many plans cost."""

_ONE_RELEASE = frozenset({"skip-clip", "with-replacement", "reuse-noise", "ignore-persons", *_OF_OTHERS})

MECHANISMS: dict[str, Mechanism] = {
    # All records in every round.
    "full": Mechanism(lambda question: [_gradient_plan(question)]),
    # Three quarters of the records, a fresh set each round; or every record by chance, three quarters on average.
    "fixed": Mechanism(partial(_sampled, sampling="fixed")),
    "poisson": Mechanism(partial(_sampled, sampling="poisson")),
    # Every record in one round only; the same with noise that cancels in part.
    "one-pass": Mechanism(_one_pass),
    "correlated": Mechanism(
        partial(_one_pass, correlation=CORRELATION), read=partial(_read_gradients, correlation=CORRELATION)
    ),
    # Full batches, accelerated in stages; phases on ever fewer records.
    "multi-stage": Mechanism(_stages),
    "localized": Mechanism(_phases),
    # Full batches, then Poisson batches, on one ledger.
    "several-plans": Mechanism(_several, rounds=4),
    # The private estimates of means and scales, and of the features' curvature.
    "survey": Mechanism(
        partial(_survey_plan, asked=Moments(bound="joint")),
        one_canary.moment_records,
        one_canary.read_moments,
        most_canaries=1,
        not_played=_ONE_RELEASE,
    ),
    "curvature": Mechanism(
        partial(_survey_plan, asked=Curvature()),
        one_canary.curvature_records,
        one_canary.read_curvature,
        most_canaries=1,
        not_played=_ONE_RELEASE,
    ),
    # How well a model predicts, with a ruler of the server's choice.
    "evaluation": Mechanism(
        partial(_survey_plan, asked=Evaluation(), repeated=True),
        one_canary.evaluation_records,
        one_canary.read_evaluation,
        one_canary.evaluation_argument,
        most_canaries=1,
        not_played=_ONE_RELEASE - {"reuse-noise"},
    ),
    # Candidates that are trained, compared and the best evaluated, for one claim: by records that train, and by one
    # that is held out.
    "choice": Mechanism(
        partial(_choice, section="training"),
        chosen.training_records,
        partial(chosen.read_training, clip=CLIP),
        chosen.argument,
        reads=lambda plan: not chosen.compares(plan),
        section="training",
        most_canaries=chosen.MOST_CANARIES,
        not_played=frozenset({"with-replacement", "ignore-persons", "forget-peer", "keep-order"}),
        rounds=2 * chosen.CANDIDATES,
    ),
    "comparison": Mechanism(
        partial(_choice, section="held-out"),
        chosen.held_out_records,
        chosen.read_held_out,
        chosen.argument,
        reads=chosen.compares,
        section="held-out",
        most_canaries=1,
        # The whole choice is claimed, so that training, which is planned by the wrong sensitivity too, hides that.
        not_played=_ONE_RELEASE | {"wrong-sensitivity"},
        rounds=chosen.CANDIDATES,
    ),
    # Counts of cells.
    "statistics": Mechanism(_statistics_plan, counted.records, counted.read, most_canaries=1, not_played=_ONE_RELEASE),
    # What intervals for coefficients rest on.
    "second-moments": Mechanism(
        partial(_survey_plan, asked=one_canary.SECOND_MOMENTS, repeated=True),
        one_canary.second_moments_records,
        one_canary.read_second_moments,
        one_canary.second_moments_argument,
        most_canaries=1,
        not_played=_ONE_RELEASE - {"reuse-noise"},
    ),
    # Counts of which a shuffler lets out the total; with a silo that tells the server its own; and the counts of the
    # first plan for a server that works together with the shuffler. Seals are slow: a run of c canaries takes as long
    # as about 20 + c numbers do, and whether guesses refute a claim depends on the runs more than on the canaries, so
    # there are few of these. They are too few to see in a total that a record is drawn twice. The silo's own counts,
    # drawn by the same code for the same plan, show it; 62 numbers, and the size of the batch, of two bytes each are
    # one block of shares.
    "shuffled": _counts(
        against="server",
        canaries=16,
        runs=150,
        not_played={"with-replacement", "forget-peer", "ignore-persons", "forget-tries"},
    ),
    "shuffled-peer": _counts(
        against="server",
        canaries=16,
        runs=150,
        not_played={"with-replacement", "ignore-persons", "forget-tries"},
        peers=1,
    ),
    "shuffled-alone": _counts(against="anyone", canaries=62, runs=120, not_played={"ignore-persons", *_OF_OTHERS}),
    # Persons with several rows, by each rule for these, and each rule with another of the ways above: counts for a
    # server that works together with the shuffler, who takes part by chance, and noise that cancels in part.
    "person-mean": _counts(
        against="anyone",
        canaries=62,
        runs=120,
        not_played={"with-replacement", *_OF_OTHERS},
        records=_person_records,
        unit=_BY_MEAN,
    ),
    "person-rows": Mechanism(
        partial(_sampled, sampling="poisson", unit=_BY_ROWS), _person_records, not_played=frozenset(_OF_OTHERS)
    ),
    "person-sum": Mechanism(
        partial(_one_pass, correlation=CORRELATION, unit=_BY_SUM),
        _person_records,
        partial(_read_gradients, correlation=CORRELATION),
        not_played=frozenset(_OF_OTHERS),
    ),
}
