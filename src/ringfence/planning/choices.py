"""Plans of a choice: one per candidate, and one that compares them, which together cost what one run may cost.

A server sees every message of every candidate, so all of them are paid for: their costs compose, and nothing is gained
by drawing at random how many are tried (which hides losing candidates where nobody sees them). Squared Gaussian shifts
add up, so each of k candidates gets 1/k of the squared shift that the budget allows, which is √k times the noise.
Records that are held out train nothing; they pay for the comparison, and for the evaluation of the best.
"""

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ringfence.accounting.calibrate import gaussian_shift
from ringfence.accounting.charges import all_events, costs
from ringfence.accounting.profiles import gaussian_epsilon
from ringfence.errors import PlanError
from ringfence.metrics.choice import Setting, shown_settings
from ringfence.metrics.comparison import hidden
from ringfence.planning.draft import EVALUATIONS, held_out_terms
from ringfence.planning.explain import buys_nothing, protects_nobody
from ringfence.planning.one_question import facts_of
from ringfence.planning.propose import Proposal, propose
from ringfence.planning.request import Member, PlanRequest, clear_refusals, require_fit
from ringfence.planning.widths import noise_wins, too_wide
from ringfence.protocol.guarantee import Guarantee, observers_of
from ringfence.protocol.plan import Plan, SiloTerms, Stage
from ringfence.protocol.questions import Comparison, Evaluation
from ringfence.protocol.sampling import Full
from ringfence.protocol.schema import Schema

SIZES, LOSSES, EVALUATED = 0.1, 0.4, 0.5
"""How the held-out records' budget is divided, in squared shift: to find a cut, to compare, to evaluate the best."""

_ATTEMPTS = 20


@dataclass(frozen=True)
class CandidatePlan:
    """One candidate: its settings, as a user names them, what it asks for with these, and of whom."""

    settings: Mapping[str, Setting]
    request: PlanRequest
    members: Sequence[Member]


@dataclass(frozen=True)
class ChoiceProposal:
    """The candidates' plans, in their order, the plan that compares them, and what each silo is promised for all.

    `settings` are the candidates'. `share` is how much of the Gaussian shift that a run alone could have had each
    candidate gets.
    """

    settings: tuple[Mapping[str, Setting], ...]
    candidates: tuple[Proposal, ...]
    comparison: Plan
    promised: Mapping[str, tuple[Guarantee, ...]]
    share: float

    @property
    def plans(self) -> tuple[Plan, ...]:
        """All plans, the comparison last."""
        return (*(each.plan for each in self.candidates), self.comparison)

    def explain(self) -> list[str]:
        """Say what the choice costs in noise, and how it is made."""
        count, unit = len(self.candidates), self.comparison.unit
        epsilons = [terms.guarantee.epsilon for each in self.candidates for terms in each.plan.silos]
        return [
            f"{count} candidates share the budget of one run, because anyone who sees messages sees those of all "
            f"candidates: each trains with {1 / self.share:.3g} times the noise it would have alone, at epsilon "
            f"{max(epsilons):.3g} at most.",
            f"They are compared by their losses on the held-out {self.comparison.held_out:.0%} of the {unit}s, which "
            "pay only for this and for the evaluation of the best. Noise hides differences below about "
            f"{self.hidden:.2g} of the bound to which a {unit}'s difference is clipped.",
        ]

    @property
    def hidden(self) -> float:
        """The difference of two candidates' losses that noise may hide, as a part of what a record's are cut at."""
        asked = [own.stages[1] for own in self.comparison.silos]
        total = sum(own.batch for own in asked)
        return hidden(len(self.candidates), math.hypot(*(own.batch / total * own.sigma for own in asked)))

    def warnings(self) -> list[str]:
        """Say, before anything is spent, where so many candidates leave each too little."""
        told = [found for each in self.candidates if (found := buys_nothing(each))]
        few = (
            f"Of {len(self.candidates)} candidates, {len(told)} would learn almost nothing. Try fewer: "
            f"alone, a candidate has {self.share:.3g} times the noise. {told[0]}"
            if told
            else ""
        )
        epsilon = max(promised[0].epsilon for promised in self.promised.values())
        blind = (
            f"The held-out {self.comparison.unit}s are too few to choose with: noise hides differences of up to "
            f"{self.hidden:.2g} of the largest that a {self.comparison.unit} may make. Hold out more, try fewer "
            "candidates, or choose on public data."
            if self.hidden > 0.5
            else ""
        )
        loud, wide = noise_wins(self.candidates[0].plan), too_wide(self.candidates[0].plan)
        return [line for line in (few, loud, wide, blind, protects_nobody(epsilon, self.comparison.unit)) if line]


def propose_choice(data: Schema, candidates: Sequence[CandidatePlan]) -> ChoiceProposal:
    """Return plans for all candidates that together cost what their members grant.

    Each candidate's members are the same silos, with the budgets of the whole choice.
    """
    members = candidates[0].members
    for member in members:
        if not member.held_out:
            raise PlanError(
                f"Candidates are compared on records that did not train, but silo '{member.name}' holds none out: give "
                "a held-out share."
            )
    share = 1 / math.sqrt(len(candidates))
    for _ in range(_ATTEMPTS):
        proposals = tuple(_candidate(data, each, share) for each in candidates)
        comparison = _comparison([each.plan for each in proposals], members)
        plans = [*(each.plan for each in proposals), comparison]
        promised = {member.name: _promised(plans, member) for member in members}
        excess = max(_excess(promised[member.name], member) for member in members)
        if excess <= 1:
            settings = tuple(each.settings for each in candidates)
            return ChoiceProposal(settings, proposals, comparison, promised, share)
        share *= (1 - 1e-3) / excess  # batches that are sampled, or counted, do not compose as Gaussians do
    raise PlanError("No division of the budget among so many candidates was found: try fewer.")


def _candidate(data: Schema, candidate: CandidatePlan, share: float) -> Proposal:
    def own(member: Member) -> Member:
        shift = share * gaussian_shift(member.epsilon, member.allowed_delta)
        return replace(member, epsilon=gaussian_epsilon(shift, member.allowed_delta), delta=member.allowed_delta)

    try:
        members = [own(member) for member in candidate.members]
        # The best alone is evaluated, by the plan that compares them.
        return propose(data, members, replace(candidate.request, run=None), evaluated=False)
    except PlanError as problem:
        raise PlanError(f"The candidate {shown_settings(candidate.settings)} cannot be trained. {problem}") from None


def _comparison(plans: Sequence[Plan], members: Sequence[Member]) -> Plan:
    """Return the plan that asks held-out records which candidate is best, and how good it is."""
    first, total = plans[0], sum(member.all_records for member in members)
    asked = (
        (Comparison(models=len(plans), part="sizes"), 1, SIZES),
        (Comparison(models=len(plans), part="losses"), 1, LOSSES),
        (Evaluation(), EVALUATIONS, EVALUATED),
    )
    stages = tuple(
        Stage(question=question, rounds=rounds, sampling=Full(), section="held-out") for question, rounds, _ in asked
    )

    def terms(member: Member) -> SiloTerms:
        shift = gaussian_shift(member.epsilon, member.allowed_delta)
        own = tuple(
            held_out_terms(first, question, member.held_out, shift * math.sqrt(part / rounds))
            for question, rounds, part in asked
        )
        return SiloTerms(
            name=member.name,
            records=member.all_records,
            weight=member.all_records / total,
            guarantees=(Guarantee(epsilon=member.epsilon, delta=member.allowed_delta),),
            stages=own,
        )

    facts = facts_of(first) | {"model_loss": first.loss.unsmoothed(), "held_out": first.held_out}
    with clear_refusals():
        silos = tuple(terms(member) for member in members)
        return require_fit(Plan(run=secrets.token_hex(8), stages=stages, sums="exact", silos=silos, **facts))


def _promised(plans: Sequence[Plan], member: Member) -> tuple[Guarantee, ...]:
    """Return what all plans come to, against each observer: what was granted, against the one that counts."""
    observers = observers_of(*(plan.observers for plan in plans))
    found = costs(all_events(plans, member.name), observers, member.allowed_delta)
    first, *others = found
    granted = first if first.epsilon > member.epsilon else first.model_copy(update={"epsilon": member.epsilon})
    return (
        granted,
        *(one.model_copy(update={"epsilon": max(one.epsilon * (1 + 1e-6), granted.epsilon)}) for one in others),
    )


def _excess(promised: Sequence[Guarantee], member: Member) -> float:
    """Return how many times the shift that was granted the plans come to: 1 if they keep to it."""
    counted = promised[0]
    if counted.epsilon <= member.epsilon:
        return 1.0
    if not math.isfinite(counted.epsilon):
        return 2.0
    delta = member.allowed_delta
    return max(gaussian_shift(counted.epsilon, delta) / gaussian_shift(member.epsilon, delta), 1 + 1e-9)
