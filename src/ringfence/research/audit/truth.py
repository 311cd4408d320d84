"""The page "privacy truth": of every mechanism what is claimed, what a second accountant says, what an attack shows."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ringfence.accounting import accountant
from ringfence.accounting.charges import plan_events
from ringfence.accounting.events import Event, require_positive, seen_by
from ringfence.errors import AccountingError
from ringfence.evidence.audit.game import AuditReport, audit, default_runs
from ringfence.evidence.audit.mechanisms import MECHANISMS
from ringfence.evidence.audit.plans import AuditQuery
from ringfence.research.audit.second import counts, releases, second_epsilon, second_epsilon_of_counts
from ringfence.research.markdown import command

EPSILONS, DELTA, RECORDS = (0.5, 3.0, 10.0), 1e-5, 64
AGREEMENT = 0.01
"""How far, relative to each other, the two accountants may lie apart."""

GIVEN_AWAY = 0.1
"""How far below a claim that is a bound the second accountant may lie: beyond this, noise is wasted."""


@dataclass(frozen=True)
class Truth:
    """What a plan claims, and what the second accountant says of it.

    `is_bound`: the claim is proved for all neighbours, and the second accountant knows the truth of some (`second`).
    """

    mechanism: str
    query: AuditQuery
    claimed: float
    second: float
    is_bound: bool = False

    @property
    def disagreement(self) -> float:
        """The relative distance of the two."""
        return abs(self.second - self.claimed) / self.claimed

    def require_agreement(self) -> None:
        """Raise AccountingError if one of the two accountants must be wrong."""
        if self.is_bound:
            agreed = (1 - GIVEN_AWAY) * self.claimed <= self.second <= self.claimed
        else:
            agreed = self.disagreement <= AGREEMENT
        if not agreed:
            raise AccountingError(
                f"The two accountants disagree about '{self.mechanism}' at epsilon {self.query.epsilon:g}: ours "
                f"computes {self.claimed:.6g}, the second one {self.second:.6g}. At least one of them is wrong, so no "
                "claim can be made. Find out which."
            )


def truth_of(mechanism: str, query: AuditQuery) -> Truth:
    """Account for a mechanism's plans twice."""
    plans = MECHANISMS[mechanism].plans(query)
    against = MECHANISMS[mechanism].against
    events: list[tuple[Event, int]] = [event for plan in plans for event in plan_events(plan, plan.silos[0])]
    claimed = accountant.epsilon(seen_by(against, events), query.delta)
    if any(stage.channel.is_collected for plan in plans for stage in plan.stages):  # what is let out is counts
        [plan] = plans
        second = second_epsilon_of_counts(counts(plan, against), query.delta, releases(plan))
        return Truth(mechanism, query, claimed, second, is_bound=True)
    asked = filter(MECHANISMS[mechanism].reads, plans)  # a record pays for those that ask its section
    found = [release for plan in asked for release in releases(plan)]
    return Truth(mechanism, query, claimed, second_epsilon(found, query.delta))


def grid() -> Iterator[tuple[str, AuditQuery]]:
    """Yield every mechanism at every epsilon of the page."""
    for mechanism in MECHANISMS:
        for epsilon in EPSILONS:
            yield mechanism, AuditQuery(epsilon, DELTA, RECORDS, MECHANISMS[mechanism].rounds)


def reproduce_truth(
    out: Path,
    *,
    effort: float = 1.0,
    quick: bool = False,
    watch: Callable[[int, int], None] = lambda done, total: None,
) -> Path:
    """Account twice for every plan of the grid, attack it, and write privacy-truth.md into the folder `out`.

    Stops with AccountingError where the accountants disagree. `effort` times the audit's usual runs are played; `quick`
    plays few: a rehearsal.
    """
    out.mkdir(parents=True, exist_ok=True)
    wanted = list(grid())
    rows: list[tuple[Truth, AuditReport]] = []
    for mechanism, query in wanted:
        truth = truth_of(mechanism, query)
        truth.require_agreement()
        runs = 3 if quick else math.ceil(require_positive("effort", effort) * default_runs(mechanism, query))
        rows.append((truth, audit(mechanism, query, runs=runs)))
        watch(len(rows), len(wanted))
    page = out / "privacy-truth.md"
    size = "" if effort == 1 else f" --effort {effort:g}"
    page.write_text(_page(rows, command("privacy-truth", out, quick) + size))
    return page


def _page(rows: list[tuple[Truth, AuditReport]], made_by: str) -> str:
    lines = [
        "# Privacy truth: claimed, computed again, attacked",
        "",
        f"    {made_by}",
        "",
        f"Every kind of release that Ringfence ships, with {RECORDS} records or persons and two rounds of each plan, "
        f"at delta {DELTA:g}. *Claimed* is what a silo's ledger charges, for each record or person over a run, "
        "against the server that plays. *Second accountant* recomputes the epsilon from the plan alone, with "
        "separately written sensitivities and dp-accounting's composition; a difference of more "
        f"than {AGREEMENT:.0%} is an error. *Attacked* is what the [audit](../audit.md) shows through the real gate: "
        f"the true epsilon is at least this, with confidence {rows[0][1].confidence}. *Coins* is the share that an "
        "optimal attacker guessed right, and the share that the claim allows.",
        "",
        "| mechanism | claimed ε | second accountant | apart | attacked: ε ≥ | of the claim | coins | runs | refuted |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for truth, report in rows:
        verdict = "YES" if report.refuted else "no"
        lines.append(
            f"| {truth.mechanism} | {truth.claimed:.4f} | {truth.second:.4f} | {truth.disagreement:.0e} "
            f"| {report.epsilon_lower:.3f} | {report.epsilon_lower / truth.claimed:.0%} "
            f"| {report.score:.1%} of {report.score_allowed:.1%} | {report.runs} | {verdict} |"
        )
    return "\n".join(
        [
            *lines,
            "",
            "Attacks stay below the claims for two reasons: the number of runs is finite, at a confidence that is "
            "never wrong by chance in practice, and claims for sampled batches cover worse neighbours than any one "
            "pair of data sets shows.",
            "",
            "The claim for counts from a shuffler is a bound that is proved for all neighbours at once, while the "
            "second accountant composes the exact distributions of two pairs of neighbours. So the second must be "
            "below the claim, and is, by a few percent: the proof applies a binomial's steepest step, far out in its "
            "tail, everywhere. `shuffled` is the total that a shuffler releases; `shuffled-peer` is what remains of "
            "it for a server to which another silo reveals its coins and shares; `shuffled-alone` is what a server "
            "sees that colludes with the shuffler, and its claim is the plan's guarantee against anyone. Seals are "
            "slow, so fewer runs are played.",
            "",
            "`person-mean`, `person-rows` and `person-sum` protect persons, with each rule for combining a person's "
            "rows. The game replaces a person with two rows by one with four. They use the mechanisms of "
            "`shuffled-alone`, `poisson` and `correlated`, and their claims are the same as those for records.",
            "",
            "In some rows more coins are guessed than the claim allows on average. That is chance, unless *refuted* "
            "says otherwise.",
            "",
            "Coins and noise are fresh in every run.",
            "",
        ]
    )
