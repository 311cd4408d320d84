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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from ringfence.audit import chosen, counted, one_canary, plans, shuffled_plans
from ringfence.audit.adversary import Observation, partition, read_gradients
from ringfence.audit.plans import (
    BY_MEAN,
    BY_ROWS,
    BY_SUM,
    CANARIES,
    CLIP,
    CORRELATION,
    OF_RECORDS,
    PERSON_ROWS,
    SILO,
    AuditQuestion,
)
from ringfence.planning.request import PlanRequest
from ringfence.protocol import sections
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.guarantee import Observer
from ringfence.protocol.plan import Plan, SiloTerms
from ringfence.protocol.questions import (
    Curvature,
    Evaluation,
    FeatureMeans,
    FeatureMoments,
    Moments,
    PreconditionedGradient,
    Question,
)
from ringfence.protocol.schedule import task
from ringfence.protocol.schema import Schema
from ringfence.protocol.sections import Section
from ringfence.silo.records import Records


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


def _nothing_to_choose(plan: Plan, stage: int) -> FloatArray:
    del stage
    return np.zeros(plan.dimension)


@dataclass(frozen=True)
class Mechanism:
    """A kind of release: the plans of one run, the records for given coins, and how a server reads the answers."""

    plans: Callable[[AuditQuestion], Sequence[Plan]]
    records: Callable[[Plan, FloatArray], Records] = _gradient_records
    read: Callable[[Plan, Sequence[FloatArray]], Observation] = _read_gradients
    argument: Callable[[Plan, int], FloatArray] = _nothing_to_choose
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
    """Rounds of a run by default: two at least for every plan of it, or noise that is reused would not show."""
    runs: int | None = None
    """Runs by default, where a run costs more than elsewhere: by the number of canaries otherwise."""

    def canaries(self, question: AuditQuestion) -> int:
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
    unit: PlanRequest = OF_RECORDS,
) -> Mechanism:
    return Mechanism(
        partial(plans.shuffled, canaries=canaries, peers=peers, unit=unit),
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


def _one_canary(
    asked: Question,
    records: Callable[[Plan, FloatArray], Records],
    argument: Callable[[Plan, int], FloatArray] = _nothing_to_choose,
    schema: Schema = plans.THREE_NUMBERS,
) -> Mechanism:
    """A question that one canary moves: asked once, or in every round where the server has an `argument` to choose."""
    repeated = argument is not _nothing_to_choose
    return Mechanism(
        partial(plans.survey, asked=asked, schema=schema, repeated=repeated),
        records,
        partial(one_canary.read, records=records, argument=argument),
        argument,
        most_canaries=1,
        not_played=_ONE_RELEASE - {"reuse-noise"} if repeated else _ONE_RELEASE,
    )


def _counted(of: counted.Counted) -> Mechanism:
    return _one_canary(of.asked, of.records, schema=of.schema)


MECHANISMS: dict[str, Mechanism] = {
    # All records in every round.
    "full": Mechanism(lambda question: [plans.gradient_plan(question)]),
    # Three quarters of the records, a fresh set each round; or every record by chance, three quarters on average.
    "fixed": Mechanism(partial(plans.sampled, sampling="fixed")),
    "poisson": Mechanism(partial(plans.sampled, sampling="poisson")),
    # Every record in one round only; the same with noise that cancels in part.
    "one-pass": Mechanism(plans.one_pass),
    "correlated": Mechanism(
        partial(plans.one_pass, correlation=CORRELATION), read=partial(_read_gradients, correlation=CORRELATION)
    ),
    # All records, of a silo that answers half of the rounds at most, whichever the server asks.
    "turns": Mechanism(plans.turns),
    # Full batches, accelerated in stages; phases on ever fewer records.
    "multi-stage": Mechanism(plans.restarted),
    "localized": Mechanism(plans.phased),
    # Full batches, then Poisson batches, on one ledger.
    "several-plans": Mechanism(plans.several, rounds=4),
    # The private estimates of means and scales, and of the features' curvature.
    "survey": _one_canary(Moments(bound="joint"), one_canary.moment_records),
    "curvature": _one_canary(Curvature(), one_canary.curvature_records),
    # How well a model predicts, with a ruler of the server's choice.
    "evaluation": _one_canary(Evaluation(), one_canary.evaluation_records, one_canary.evaluation_argument),
    # Candidates that are trained, compared and the best evaluated, for one claim: by records that train, and by one
    # that is held out.
    "choice": Mechanism(
        partial(chosen.plans, section="training"),
        chosen.training_records,
        chosen.read_training,
        chosen.argument,
        reads=lambda plan: not chosen.compares(plan),
        section="training",
        most_canaries=chosen.MOST_CANARIES,
        not_played=frozenset({"with-replacement", "ignore-persons", "forget-peer", "keep-order"}),
        rounds=2 * chosen.CANDIDATES,
    ),
    "comparison": Mechanism(
        partial(chosen.plans, section="held-out"),
        chosen.held_out_records,
        partial(one_canary.read, records=chosen.held_out_records, argument=chosen.argument),
        chosen.argument,
        reads=chosen.compares,
        section="held-out",
        most_canaries=1,
        # The whole choice is claimed, so that training, which is planned by the wrong sensitivity too, hides that.
        not_played=_ONE_RELEASE | {"wrong-sensitivity"},
        rounds=chosen.CANDIDATES,
    ),
    # Counts of cells: of columns, and of the parts of the time in which records end.
    "statistics": _counted(counted.STATISTICS),
    "survival-curve": _counted(counted.SURVIVAL_CURVE),
    # What intervals for coefficients rest on.
    "second-moments": _one_canary(
        one_canary.SECOND_MOMENTS, one_canary.second_moments_records, one_canary.second_moments_argument
    ),
    # How features vary together, along axes of the server's choice, the means of many, and gradients along axes.
    "feature-moments": _one_canary(
        FeatureMoments(), one_canary.feature_moments_records, one_canary.feature_moments_argument
    ),
    "feature-means": _one_canary(FeatureMeans(), one_canary.feature_means_records, one_canary.feature_means_argument),
    "preconditioned": _one_canary(
        PreconditionedGradient(), one_canary.preconditioned_records, one_canary.preconditioned_argument
    ),
    # Counts of which a shuffler lets out the total; with a silo that tells the server its own; and the counts of the
    # first plan for a server that colludes with the shuffler. Seals are slow: a run of c canaries takes as long
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
    # server that colludes with the shuffler, who takes part by chance, and noise that cancels in part.
    "person-mean": _counts(
        against="anyone",
        canaries=62,
        runs=120,
        not_played={"with-replacement", *_OF_OTHERS},
        records=_person_records,
        unit=BY_MEAN,
    ),
    "person-rows": Mechanism(
        partial(plans.sampled, sampling="poisson", unit=BY_ROWS), _person_records, not_played=frozenset(_OF_OTHERS)
    ),
    "person-sum": Mechanism(
        partial(plans.one_pass, correlation=CORRELATION, unit=BY_SUM),
        _person_records,
        partial(_read_gradients, correlation=CORRELATION),
        not_played=frozenset(_OF_OTHERS),
    ),
}
