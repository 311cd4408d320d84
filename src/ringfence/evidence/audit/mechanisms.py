"""What is audited: every kind of release that Ringfence ships, set up for its worst case.

*Canaries.* All records that move anything are canaries, at most `CANARIES` of them; the others are zeros. The j-th
canary has feature j equal to 1, all its other features 0, and its coin, +1 or −1, for a target. Under the squared loss
its gradient at weights w is (w_j − coin) in direction j: longer than the clip wherever |w_j| ≤ ½, and so exactly
−coin·clip after clipping. Replacing a canary by the one with the other coin moves the mean by 2·clip/batch, the most
that any record can; the other canaries move other coordinates, whose noise is independent, and do not disturb. So
every canary plays against fully known others, and many play at once.

A *survey* releases one statistic, which one canary moves at a time. With a *shuffler* canaries are gradients again, and
the claim depends on the observer (`adversary`). Where a plan protects *persons*, a canary is one with several rows, and
the coin decides how many these are too (`PERSON_ROWS`); by every rule they come to a gradient of the clip's length. (By
the rule `sum`, rounding makes it shorter by 2⁻³¹ of that. Over 1200 runs at epsilon 10, half of the root of the summed
squared shifts, which bounds how far any probability is off, is below 10⁻⁷.)
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from ringfence.evidence.audit import plans
from ringfence.evidence.audit.adversary import (
    CanaryRecords,
    Observation,
    canary_rows,
    read_counts,
    read_gradients,
    read_pair,
)
from ringfence.evidence.audit.plans import CANARIES, CORRELATION, PERSON_ROWS, AuditQuery
from ringfence.planning.request import PlanRequest
from ringfence.protocol import (
    ColumnDistributions,
    Curvature,
    Evaluation,
    FeatureMeans,
    FeatureMoments,
    FloatArray,
    Observer,
    Plan,
    PreconditionedGradient,
    Query,
    Schema,
    SecondMoments,
    Section,
    SiloTerms,
    Statistics,
    SurvivalCurve,
    pack,
    parse_schema,
)
from ringfence.protocol.plan import sections
from ringfence.protocol.schema.encoding import features_of, read_cells, target_of
from ringfence.silo.records.records import Records


def records_without_canaries(plan: Plan, terms: SiloTerms) -> Records:
    """Return records of a silo that is not audited, for any audited mechanism: their gradients are 0."""
    return Records(plan.data, np.zeros((terms.records, plan.data.width)), np.zeros(terms.records))


def _gradient_records(plan: Plan, coins: FloatArray) -> Records:
    """Return records with canaries in `canary_rows`, each in a direction of its own; all other records are zeros."""
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


def canary_pair(
    heads: tuple[float, float, float], tails: tuple[float, float, float], section: Section | None = None
) -> CanaryRecords:
    """Return a worst case of one of two records, each two features and a target, among zeros: the section's first."""

    def records(plan: Plan, coins: FloatArray) -> Records:
        """Return the worst case's records: the canary that the coin chose, among zeros."""
        count = plan.silos[0].records
        rows = np.zeros((count, 3))
        rows[sections.members(section, count, plan.held_out)[0]] = heads if coins[0] > 0 else tails
        return Records(plan.data, rows[:, :2], rows[:, 2])

    return records


def cell_pair(cells: Mapping[str, tuple[str, str, str]]) -> CanaryRecords:
    """Return a worst case of counts, from three cells of each column: the canary's for either coin, and the others'."""

    def records(plan: Plan, coins: FloatArray) -> Records:
        """Return the worst case's records: one in the coin's cells, among others that are all alike."""
        canary, others = (0 if coins[0] > 0 else 1), plan.silos[0].records - 1
        table = {name: [three[canary], *[three[2]] * others] for name, three in cells.items()}
        read = read_cells(plan.data.used, table, source="the audit")
        return Records(plan.data, features_of(plan.data, read), target_of(plan.data, read), cells=read)

    return records


CURVATURE_PAIR = canary_pair((1.0, 0.0, 0.0), (0.0, 0.0, 0.0))
"""A record of the largest norm, or of none: the eigenvalue is X²/n or 0."""

_SCORED = (1 - 2.0**-20, 0.0, 1.0), (1 - 2.0**-20, 0.0, -1.0)
EVALUATION_PAIR, COMPARISON_PAIR = canary_pair(*_SCORED), canary_pair(*_SCORED, section="held-out")
"""A score just below the bound, and the one bound or the other for a target."""

SECOND_MOMENTS_PAIR = canary_pair((1.0, 0.0, 0.5 - 2.0**-30), (1.0, 0.0, -1.0))
"""A record of the largest norm: its target just inside the unit, or far beyond the other way."""

FEATURE_MOMENTS_PAIR = canary_pair((1.0, 0.0, -1.0), (0.0, 1.0, 1.0))
"""Along the one axis with the least target, or along the other with the largest."""

FEATURE_MEANS_PAIR = canary_pair((1.0, 0.0, 1.0), (-1.0, 0.0, -1.0))
"""A record of the largest norm along an axis with the largest target, or its negative."""

PRECONDITIONED_PAIR = canary_pair((1.0, 0.0, 1.0), (1.0, 0.0, -1.0))
"""A record of the largest norm, with the one bound or the other for a target."""

STATISTICS_PAIR = cell_pair({"dose": ("1", "0", ""), "label": ("a", "c", "b"), "size": ("1", "-1", "0.5")})
"""At one end of every column or at the other."""

COLUMNS_PAIR = cell_pair({"dose": ("1", "0", "0.5"), "weight": ("0", "1", "0.5"), "size": ("1", "1", "1")})
"""At one end of both columns or at the other."""

SURVIVAL_PAIR = cell_pair({"days": ("1", "9", "3"), "died": ("yes", "no", "no")})
"""A time that ends early, by an event, or is observed to its bound without one."""

_DOSES = {
    "dose": {"type": "numeric", "lower": 0.0, "upper": 1.0, "missing": 0.0},
    "label": {"type": "categorical", "categories": ["a", "b", "c"]},
    "size": {"type": "numeric", "lower": -1.0, "upper": 1.0},
}
_CURVES = {
    "columns": {name: {"type": "numeric", "lower": 0.0, "upper": 1.0} for name in ("dose", "weight", "size")},
    "maps": [{"type": "spline", "columns": ["dose", "weight"], "knots": 3, "degree": 1, "surveyed": True}],
}
_DEATHS = {
    "days": {"type": "numeric", "lower": 0.0, "upper": 9.0},
    "died": {"type": "categorical", "categories": ["no", "yes"]},
}


@dataclass(frozen=True)
class Mechanism:
    """A kind of release: the plans of one run, the records for given coins, and how a server reads the answers."""

    plans: Callable[[AuditQuery], Sequence[Plan]]
    records: CanaryRecords = _gradient_records
    read: Callable[[Plan, Sequence[FloatArray]], Observation] = read_gradients
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

    def canaries(self, query: AuditQuery) -> int:
        """Return how many records of the audited silo are canaries of this mechanism."""
        return min(sections.size(self.section, query.records, plans.HELD_OUT), self.most_canaries)

    def reads(self, plan: Plan) -> bool:
        """Return whether a plan asks about the canaries. One that does not is asked, and charged, all the same."""
        return plan.stages[0].section == self.section


def _shuffled_mechanism(
    against: Observer,
    not_played: set[str],
    *,
    peers: int = 0,
    records: CanaryRecords = _gradient_records,
    unit: PlanRequest = plans.OF_RECORDS,
) -> Mechanism:
    """Counts of which a shuffler lets out the total.

    Seals are slow: a run of c canaries takes as long as about 20 + c numbers do, and whether guesses refute a claim
    depends on the runs more than on the canaries, so there are few of these. In a total they are too few to see that a
    record is drawn twice. The silo's own counts, drawn by the same code for the same plan, show it; 62 numbers, and the
    size of the batch, of two bytes each are one block of shares.
    """
    canaries, runs = (16, 150) if against == "server" else (62, 120)
    return Mechanism(
        partial(plans.shuffled_plans, canaries=canaries, peers=peers, unit=unit),
        records,
        read=partial(read_counts, against=against),
        most_canaries=canaries,
        not_played=frozenset(not_played),
        against=against,
        runs=runs,
    )


_OF_OTHERS = {"forget-peer", "keep-order", "forget-tries"}
"""Sabotage of what others than the audited silo do, and of what many plans cost."""

_ONE_RELEASE = frozenset({"skip-clip", "with-replacement", "reuse-noise", "ignore-persons", *_OF_OTHERS})


def _single_canary_mechanism(
    asked: Query, records: CanaryRecords, schema: Schema = plans.THREE_NUMBERS, *, repeated: bool = True
) -> Mechanism:
    """A query that one canary moves: asked in every round, where the server has an argument to choose, or once."""
    return Mechanism(
        partial(plans.query_plans, asked=asked, schema=schema, repeated=repeated),
        records,
        partial(read_pair, records=records),
        most_canaries=1,
        not_played=_ONE_RELEASE - {"reuse-noise"} if repeated else _ONE_RELEASE,
    )


MECHANISMS: dict[str, Mechanism] = {
    # All records in every round.
    "full": Mechanism(plans.gradient_plans),
    # Three quarters of the records, a fresh set each round; or every record by chance, three quarters on average.
    "fixed": Mechanism(partial(plans.gradient_plans, sampling="fixed")),
    "poisson": Mechanism(partial(plans.gradient_plans, sampling="poisson")),
    # Every record in one round only; the same with noise that cancels in part.
    "one-pass": Mechanism(partial(plans.gradient_plans, sampling="one-pass")),
    "correlated": Mechanism(
        partial(plans.gradient_plans, sampling="one-pass", correlation=CORRELATION),
        read=partial(read_gradients, correlation=CORRELATION),
    ),
    # All records, of a silo that answers half of the rounds at most, whichever the server asks.
    "turns": Mechanism(plans.turns_plans),
    # Full batches, accelerated in stages; phases on ever fewer records.
    "multi-stage": Mechanism(plans.multi_stage_plans),
    "localized": Mechanism(plans.localized_plans),
    # Full batches, then Poisson batches, on one ledger.
    "several-plans": Mechanism(plans.two_kinds_of_plans, rounds=4),
    # The private estimate of the features' curvature.
    "curvature": _single_canary_mechanism(Curvature(), CURVATURE_PAIR, repeated=False),
    # How well a model predicts, with bin edges of the server's choice.
    "evaluation": _single_canary_mechanism(Evaluation(), EVALUATION_PAIR),
    # Candidates that are trained, compared and the best evaluated, for one claim: by records that train, and by one
    # that is held out.
    "choice": Mechanism(
        partial(plans.choice_plans, section="training"),
        section="training",
        most_canaries=plans.CHOICE_CANARIES,
        not_played=frozenset({"with-replacement", "ignore-persons", "forget-peer", "keep-order"}),
        rounds=2 * plans.CANDIDATES,
    ),
    "comparison": Mechanism(
        partial(plans.choice_plans, section="held-out"),
        COMPARISON_PAIR,
        partial(read_pair, records=COMPARISON_PAIR),
        section="held-out",
        most_canaries=1,
        # The whole choice is claimed, so that training, which is planned by the wrong sensitivity too, hides that.
        not_played=_ONE_RELEASE | {"wrong-sensitivity"},
        rounds=plans.CANDIDATES,
    ),
    # Counts of cells: of columns, and of the parts of the time in which records end.
    "statistics": _single_canary_mechanism(
        Statistics(columns=("dose", "label", "size"), bins=16),
        STATISTICS_PAIR,
        parse_schema({"columns": _DOSES}, target="size"),
        repeated=False,
    ),
    "survival-curve": _single_canary_mechanism(
        SurvivalCurve(time="days", event="died", cuts=(2.0, 5.0)),
        SURVIVAL_PAIR,
        parse_schema({"columns": _DEATHS}, target="days"),
        repeated=False,
    ),
    # Between the bounds of every column.
    "column-distributions": _single_canary_mechanism(
        ColumnDistributions(bins=8), COLUMNS_PAIR, parse_schema(_CURVES, target="size")
    ),
    # What intervals for coefficients rest on.
    "second-moments": _single_canary_mechanism(SecondMoments(start=pack(np.zeros(2))), SECOND_MOMENTS_PAIR),
    # How features vary together, along axes of the server's choice, the means of many, and gradients along axes.
    "feature-moments": _single_canary_mechanism(FeatureMoments(), FEATURE_MOMENTS_PAIR),
    "feature-means": _single_canary_mechanism(FeatureMeans(), FEATURE_MEANS_PAIR),
    "preconditioned": _single_canary_mechanism(PreconditionedGradient(), PRECONDITIONED_PAIR),
    # Counts of which a shuffler lets out the total; with a silo that colludes with the server; and the counts of the
    # first plan for a server that colludes with the shuffler.
    "shuffled": _shuffled_mechanism("server", {"with-replacement", "forget-peer", "ignore-persons", "forget-tries"}),
    "shuffled-peer": _shuffled_mechanism("server", {"with-replacement", "ignore-persons", "forget-tries"}, peers=1),
    "shuffled-alone": _shuffled_mechanism("anyone", {"ignore-persons", *_OF_OTHERS}),
    # Persons with several rows, by each rule for these, and each rule with another of the ways above: counts for a
    # server that colludes with the shuffler, who takes part by chance, and noise that cancels in part.
    "person-mean": _shuffled_mechanism(
        "anyone", {"with-replacement", *_OF_OTHERS}, records=_person_records, unit=plans.BY_MEAN
    ),
    "person-rows": Mechanism(
        partial(plans.gradient_plans, sampling="poisson", unit=plans.BY_ROWS),
        _person_records,
        not_played=frozenset(_OF_OTHERS),
    ),
    "person-sum": Mechanism(
        partial(plans.gradient_plans, sampling="one-pass", correlation=CORRELATION, unit=plans.BY_SUM),
        _person_records,
        partial(read_gradients, correlation=CORRELATION),
        not_played=frozenset(_OF_OTHERS),
    ),
}
