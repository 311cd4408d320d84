"""The review of a plan for a silo's operator: what it would reveal, to whom and at what cost."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ringfence.accounting.calibrate import fixed_size_words
from ringfence.accounting.charges import costs, plan_events
from ringfence.accounting.events import in_version
from ringfence.accounting.filters import left
from ringfence.errors import AccountingError, visible
from ringfence.protocol import Effort, Guarantee, Plan, PublicKeys, SiloTerms, rounds_words
from ringfence.protocol.plan.guarantee import against, against_words, claimed_against, observers_of
from ringfence.protocol.plan.plan import fewest_colluders
from ringfence.protocol.plan.prospects import noise_in_weights, weight_of, weighting
from ringfence.silo.gate.limits import effort_words, largest_round
from ringfence.silo.ledger.budget import Budget, BudgetUse
from ringfence.silo.ledger.history import Account


@dataclass(frozen=True)
class Review:
    """A plan before a silo's operator.

    Costs are stated against each kind of observer. `own` is the cost of this plan, at the delta it claims for this
    silo; `total` that of everything released, all running plans and this one, at the budget's delta, valid if at most
    `colluders` other silos collude with the server; `used` what was charged so far; `remaining` the epsilons that the
    budget would leave, in the order of `total`. They are empty if the silo has no part in the plan, or its cost cannot
    be computed. `effort` is an estimate for the largest round. `objection` is why the gate would not approve it: never
    because of a record. `clamped` names rows out of bounds (`clamped_parts`), and `advice` is about repeated persons:
    both for the operator alone.

    Text by the plan's author is escaped (`errors.visible`), and every sentence is one line.
    """

    plan: Plan
    silo: str
    own: tuple[Guarantee, ...]
    total: tuple[Guarantee, ...]
    used: tuple[Guarantee, ...]
    remaining: tuple[float, ...]
    budget: Budget
    colluders: int | None
    effort: Effort
    objection: str
    clamped: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()

    def data(self) -> dict[str, Any]:
        """Return the review for machines."""
        terms = self.plan.terms(self.silo)
        return {
            "plan": self.plan.digest(),
            "silo": self.silo,
            **{name.lower(): text for name, text in self.plan.responsible.items()},
            "reveals": [] if terms is None else reveals(self.plan, terms),
            "trust": self.plan.trust,
            "colluders": self.plan.most_colluders,
            "claimed": [] if terms is None else [claim.model_dump() for claim in terms.guarantees],
            "own": [cost.model_dump() for cost in self.own],
            "used": [cost.model_dump() for cost in self.used],
            "total": [
                {**cost.model_dump(), "left": remaining}
                for cost, remaining in zip(self.total, self.remaining, strict=True)
            ],
            "budget": self.budget.as_data(),
            "round": {"seconds": self.effort.seconds, "bytes": self.effort.memory},
            "keys": None if self.plan.keys is None else self.plan.keys.model_dump(),
            "approvable": not self.objection,
            "objection": self.objection,
            "clamped": list(self.clamped),
            "advice": list(self.advice),
        }

    def text(self) -> str:
        """Return the review as text for the operator."""
        plan, terms = self.plan, self.plan.terms(self.silo)
        lines = [f"Plan {plan.digest()}", f"run {plan.run}, reviewed for silo '{visible(self.silo)}'", ""]
        if plan.responsible:
            said = (f"  {name}: {visible(text)}" for name, text in plan.responsible.items())
            lines += ["Purpose, as stated by the plan's author", "", *said, ""]
        if terms is not None:
            lines += ["What it would reveal", "", *(f"  - {line}" for line in reveals(plan, terms)), ""]
            lines += ["To whom", "", *(f"  {line}" for line in to_whom(plan, terms)), ""]
            if self.own:
                lines += ["At what cost", "", *(f"  {line}" for line in self._cost(terms)), ""]
            each = " for one row per person" if plan.unit == "person" else ""
            time = f"  A round takes {effort_words(self.effort)}, estimated cautiously{each}."
            lines += ["On this machine", "", time, ""]
            if plan.keys is not None:
                heading = "Keys to compare, through a channel other than the plan's"
                lines += [heading, "", *_keys(plan.keys, self.silo), ""]
        for found, remark in ((self.clamped, _CLAMPED), (self.advice, _ADVICE)):
            if found:
                lines += ["In your records", "", *(f"  {visible(line)}" for line in (*found, remark)), ""]
        if self.objection:
            return "\n".join([*lines, f"The gate would NOT approve it. {visible(self.objection)}"])
        return "\n".join([*lines, "The gate would approve it. Nothing is answered until you approve it."])

    def _cost(self, terms: SiloTerms) -> list[str]:
        """Return the review's sentences on what the plan and all releases cost."""
        own, total, delta = self.own[0], self.total[0], self.budget.delta
        named = claimed_against(self.plan.observers, self.plan.most_colluders)
        together = f" {against_words(total.against, self.colluders)}" if self.total[1:] else ""
        used = against(self.used, total.against)
        words = self.use().words()
        advice = fixed_size_words(plan_events(self.plan, terms), own.delta)
        return [
            f"This plan: epsilon {own.epsilon:.4g} at delta {own.delta:.2g}, for each of {terms.records} "
            f"{self.plan.unit}s {named}; it claims {terms.guarantee.epsilon:.4g}.",
            f"Used so far: epsilon {used.epsilon:.4g} at delta {delta:.2g}. With all running plans and this one: "
            f"{total.epsilon:.4g}{together}. Both are running tallies, not guarantees.",
            f"With this plan approved: {words[0].lower()}{words[1:]} All plans together stay within the budget, "
            "however they are chosen, unless it was raised after an answer.",
            *(self._further_cost(cost) for cost in self.total[1:]),
            *([advice] if advice else []),
            *_prospects(self.plan),
            *_share(self.plan, terms),
        ]

    def use(self) -> BudgetUse:
        """Return what would become of the budget if the reviewed plan were approved."""
        total = self.total[0]
        used = against(self.used, total.against).epsilon
        reserved, limit = max(0.0, total.epsilon - used), self.budget.limit(total.against)
        return BudgetUse(limit, used, reserved, self.remaining[0])

    def _further_cost(self, total: Guarantee) -> str:
        """Return the review's sentence on the cost against a further observer."""
        own = against(self.own, total.against)
        limit = against(self.budget.limits, total.against)
        return (
            f"{against_words(total.against, self.colluders).capitalize()}: epsilon {own.epsilon:.4g} for this plan, "
            f"{total.epsilon:.4g} for everything; the budget allows {limit.epsilon:.4g}."
        )


_CLAMPED = (
    "Nobody else sees this. The gate answers anyway, with the bounds in place of such numbers. If they are mistakes, "
    "correct them first. If you decline a plan because of them, its author learns that there are some."
)
_ADVICE = (
    "Nobody else sees this, and the gate answers anyway. If you decline a plan because of it, its author learns "
    "something about your records."
)


def review(
    plan: Plan, account: Account, objection: str, clamped: Sequence[str] = (), advice: Sequence[str] = ()
) -> Review:
    """Return the review of a plan by a silo with this account."""
    terms = plan.terms(account.silo)
    own: tuple[Guarantee, ...] = ()
    total: tuple[Guarantee, ...] = ()
    remaining: tuple[float, ...] = ()
    effort = Effort()
    if terms is not None:
        effort = largest_round(plan, terms)
        try:
            events = plan_events(plan, terms)
            own = costs(events, plan.observers, terms.guarantee.delta)
            together = [*account.reserved(without=plan.digest()), *in_version(account.version, events)]
            observers = observers_of(plan.observers, account.observers)
            history = account.commitments({plan.digest(): events})
            limits = [account.budget.limit(observer) for observer in observers]
            remaining = tuple(left(history, limit, answered=account.answered) for limit in limits)
            total = costs(together, observers, account.budget.delta)
        except AccountingError:  # the objection says what is wrong
            pass
    colluders = fewest_colluders([plan, *account.approved_plans])
    used, budget = account.spent(), account.budget
    private = tuple(clamped), tuple(advice)
    return Review(plan, account.silo, own, total, used, remaining, budget, colluders, effort, objection, *private)


def reveals(plan: Plan, terms: SiloTerms) -> list[str]:
    """Return, for the review, one sentence each, what leaves the silo if it answers every round."""
    lines: list[str] = []
    pairs = zip(plan.stages, terms.stages, strict=True)
    for query, group in itertools.groupby(pairs, key=lambda pair: pair[0].query):
        alike = list(group)
        lines.append(f"{query.reveals(plan, sum(stage.most_answers for stage, _ in alike))}.")
        for stage, own in alike:
            unit, records = f"{stage.section or ''} {plan.unit}".strip(), plan.records_in(stage, terms)
            said = stage.sampling.words(records=records, batch=own.batch, rounds=stage.most_answers, unit=unit)
            lines.append(said)
            if stage.most_answers < stage.rounds:
                lines.append(
                    f"Silos take turns: of {stage.rounds} rounds, this one answers at most {stage.most_answers}, and "
                    "the noise is sized for these. The gate counts them and refuses more."
                )
            noise, limits = stage.channel.noise_words(own.sigma, plan.unit), query.limits(plan)
            lines.append(f"{limits}, and {noise}." if limits else f"{noise[0].upper()}{noise[1:]}.")
        lines += dict.fromkeys(line for stage, _ in alike for line in stage.channel.further_words())
    if plan.held_out is not None:
        lines.append(
            f"Which {plan.unit}s train and which {plan.held_out:.0%} are held out depends on their numbers only and is "
            "the same for all plans: none is used as both."
        )
    total, public = rounds_words(plan), f"The number of {plan.unit}s and the schema are public."
    lines.append(f"The plan has {total}. Nothing else leaves the silo. {public}")
    return [visible(line) for line in lines]


def _prospects(plan: Plan) -> list[str]:
    """Return, for the review, what the plan can learn, compared with its noise, if that is known."""
    noise = noise_in_weights(plan)
    if noise is None or (most := weight_of(plan.domain.reach(plan.dimension), plan)) == math.inf:
        return []
    what = "so it may learn something" if noise < most else "so it can learn almost nothing"
    return [
        f"In return, the noise in each weight of the model is about {noise:.2g} or more, where weights are at most "
        f"{most:.2g}, {what}."
    ]


def _share(plan: Plan, terms: SiloTerms) -> list[str]:
    """Return the review's sentence on the silo's share in the model, if it is not by its number of records."""
    words = visible(weighting(plan))
    return [f"This silo's share in the model is {terms.weight:.2g} of 1: {words}."] if words else []


def to_whom(plan: Plan, terms: SiloTerms) -> list[str]:
    """Return, one sentence each, who sees what a reviewed plan would reveal."""
    channels = {stage.channel.name: stage.channel for stage in plan.stages}
    return [visible(line) for channel in channels.values() for line in channel.audience(plan, terms)]


def _keys(keys: PublicKeys, silo: str) -> list[str]:
    """Return the public keys in the plan, for the operator to compare in the review."""
    return [
        f"  The server's, which can read what leaves the shuffler: {keys.server}",
        f"  The shuffler's: {keys.shuffler}",
        f"  This silo's own, as `ringfence silo status` shows it: {keys.silos.get(silo, 'none')}",
    ]
