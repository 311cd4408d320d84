"""Private search over hyperparameters: which options may be tried, the grid of candidates, and their plans.

There is one plan per candidate and one that compares them; together they cost what one run may cost. A server sees
every message of every candidate, so all are paid for: their costs compose, and drawing the number of candidates at
random gains nothing (it helps only if losing candidates stay hidden). Squared Gaussian shifts add up, so each of k
candidates gets 1/k of μ² of the budget, which is √k times the noise. Held-out records pay for the comparison and for
the evaluation of the best candidate.
"""

from __future__ import annotations

import dataclasses
import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from ringfence.accounting.calibrate import gaussian_shift
from ringfence.accounting.charges import all_events, costs
from ringfence.accounting.profiles import gaussian_epsilon
from ringfence.errors import PlanError
from ringfence.estimates.comparison import Setting, hidden_difference, settings_text
from ringfence.estimates.evaluation import chosen_figures
from ringfence.planning.draft import EVALUATIONS, evaluation_noise, held_out_terms
from ringfence.planning.noise_warnings import (
    large_epsilon_warning,
    wide_maps_warning,
)
from ringfence.planning.propose import Proposal, propose
from ringfence.planning.query_plans import query_terms, shared_facts
from ringfence.planning.request import Member, PlanRequest, clear_refusals, require_fit
from ringfence.protocol import (
    Comparison,
    Evaluation,
    Full,
    Guarantee,
    Plan,
    Schema,
    SiloTerms,
    Stage,
    observers_of,
    rounds_words,
)

MOST_CANDIDATES = 64
"""Most candidates of one comparison (`protocol.queries.comparison`)."""

TRIED = (
    "algorithm", "average", "batch", "clip", "correlation", "distance", "lasso", "most_rounds", "person_rule", "ridge",
    "risk", "rounds", "rows_per_person", "sampling", "step", "survey",
)  # fmt: skip
"""Options that candidates may differ in: they set how a model is trained, and nothing else."""

_SHARED = {
    "epsilon delta budgets held_out unit figures": "it says what is granted and for whom, which all candidates share",
    "trust keys quorum colluders bits": "it says whom the guarantee relies on, which all share",
    "loss quantile margin dispersion cuts": "candidates are compared by their loss, which has to be the same for all",
    "curves": "candidates are compared at features that all share, those of straight lines",
    "weights available": "it says whom the model is for and who is asked, which all share",
    "purpose controller contact": "it says what the run is for, which all share",
}
_WHY_NOT = {name: why for names, why in _SHARED.items() for name in names.split()}


def grid(tried: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return all combinations of the options' values; PlanError if there are fewer than 2 or too many."""
    for name, values in tried.items():
        if any(value in values[:place] for place, value in enumerate(values)):
            raise PlanError(f"A value of '{name}' is listed twice, which would pay for the same model twice.")
    count = math.prod(len(values) for values in tried.values())
    if count < 2:
        raise PlanError(
            "That is one candidate, so there is nothing to choose from: list at least two values, or set the option "
            "itself."
        )
    if count > MOST_CANDIDATES:
        raise PlanError(
            f"That makes {count} candidates, more than the {MOST_CANDIDATES} allowed: all of them are trained and "
            "share one budget. Try fewer values or one option at a time, or choose on public or simulated data."
        )
    return [dict(zip(tried, values, strict=True)) for values in product(*tried.values())]


def flags() -> dict[str, str]:
    """Return the fields of `PlanRequest` that the command line offers, by the option's name there."""
    offered = {field.name: field.metadata.get("option") for field in dataclasses.fields(PlanRequest)}
    return {
        (option.flag.partition("/")[0] or name.replace("_", "-")): name
        for name, option in offered.items()
        if option is not None
    }


def parse_tries(options: Sequence[str]) -> dict[str, list[Any]]:
    """Read OPTION=VALUE,VALUE,... options: each a name of the command line, with values of its type.

    `auto` is the planner's own choice, where it has one.
    """
    fields, tried = flags(), {}
    for option in options:
        name, _, text = option.partition("=")
        name = name.strip().removeprefix("--")
        field = fields.get(name)
        if not text.strip() or field is None:
            known = ", ".join(sorted(flag for flag, own in fields.items() if own in TRIED))
            raise PlanError(
                f"'{option}' is not of the form OPTION=VALUE,VALUE, like clip=0.5,1,2; the options to try are {known}."
            )
        if field not in TRIED:
            raise PlanError(f"'{name}' cannot be tried: {_WHY_NOT[field]}. Give it once, as --{name}.")
        if name in tried:
            raise PlanError(f"'{name}' is given twice: list all its values at once, separated by commas.")
        tried[name] = [_value(name, field, each.strip()) for each in text.split(",")]
    return tried


def candidate_request(request: PlanRequest, settings: Mapping[str, Setting]) -> PlanRequest:
    """Return the request with a candidate's settings, by their names on the command line."""
    fields = flags()
    chosen: dict[str, Any] = {fields[name]: value for name, value in settings.items()}
    return dataclasses.replace(request, **chosen)


def _value(name: str, field: str, text: str) -> Any:
    """Read one value of an option to try in a search, by the type of the request's field."""
    kind = next(str(own.type) for own in dataclasses.fields(PlanRequest) if own.name == field)
    if text == "auto" and kind.endswith("None"):
        return None
    plain = kind.partition(" ")[0]
    try:
        if plain == "bool":
            return {"true": True, "yes": True, "false": False, "no": False}[text.lower()]
        value = {"float": float, "int": int}.get(plain, str)(text)
    except (KeyError, ValueError):
        what = {"float": "a number", "int": "a whole number", "bool": "yes or no"}[plain]
        raise PlanError(f"'{text}' is not a value of '{name}', which takes {what}.") from None
    if not text or (isinstance(value, float) and not math.isfinite(value)):
        raise PlanError(f"'{text}' is not a value of '{name}': leave it out, or name another.")
    return value


SIZES, LOSSES, EVALUATED = 0.1, 0.4, 0.5
"""Shares of the held-out records' budget (in μ²): to find a clipping bound, to compare, and to evaluate the best."""

_ATTEMPTS = 20


@dataclass(frozen=True)
class CandidateRequest:
    """One candidate: its settings, by their names for users, its request, and its members."""

    settings: Mapping[str, Setting]
    request: PlanRequest
    members: Sequence[Member]


@dataclass(frozen=True)
class SearchProposal:
    """The candidates' plans, the plan that compares them, and each silo's guarantees for all of them together.

    `share` is a candidate's Gaussian shift relative to that of a single run with the same budget.
    """

    settings: tuple[Mapping[str, Setting], ...]
    candidates: tuple[Proposal, ...]
    comparison: Plan
    promised: Mapping[str, tuple[Guarantee, ...]]
    share: float

    @property
    def plans(self) -> tuple[Plan, ...]:
        """All plans of the search, the comparison last."""
        return (*(each.plan for each in self.candidates), self.comparison)

    def explain(self) -> list[str]:
        """Return sentences about the noise that a search's candidates cost, and how they are compared."""
        count, unit = len(self.candidates), self.comparison.unit
        epsilons = [terms.guarantee.epsilon for each in self.candidates for terms in each.plan.silos]
        return [
            f"{count} candidates share the budget of one run, because anyone who sees messages sees those of all "
            f"candidates: each trains with {1 / self.share:.3g} times the noise it would have alone, at epsilon "
            f"{max(epsilons):.3g} at most. Together they take {rounds_words(*self.plans)}.",
            f"They are compared by their losses on the held-out {self.comparison.held_out:.0%} of the {unit}s, which "
            "pay only for this and for the evaluation of the best. Noise hides differences below about "
            f"{self.hidden:.2g} of the bound to which a {unit}'s difference is clipped.",
        ]

    @property
    def hidden(self) -> float:
        """The difference of two candidates' losses that noise may hide, in units of the clipping bound."""
        asked = [own.stages[1] for own in self.comparison.silos]
        total = sum(own.batch for own in asked)
        return hidden_difference(len(self.candidates), math.hypot(*(own.batch / total * own.sigma for own in asked)))

    def warnings(self) -> list[str]:
        """Return warnings about a search: wide maps, too few held-out records, or a large epsilon."""
        lines, plan, unit = [], self.candidates[0].plan, self.comparison.unit
        lines.append(wide_maps_warning(plan))
        if self.hidden > 0.5:
            lines.append(
                f"The held-out {unit}s are too few to choose with: noise hides differences of up to {self.hidden:.2g} "
                f"of the largest that a {unit} may make. Hold out more, try fewer candidates, or choose on public data."
            )
        lines.append(large_epsilon_warning(max(own[0].epsilon for own in self.promised.values()), unit))
        return [line for line in lines if line]


def propose_search(data: Schema, candidates: Sequence[CandidateRequest]) -> SearchProposal:
    """Return plans for all candidates that together cost at most the members' budgets.

    All candidates have the same silos, with the budgets of the whole search.
    """
    members = candidates[0].members
    for member in members:
        if not member.held_out:
            raise PlanError(
                f"Candidates are compared on records that did not train, but silo '{member.name}' holds none out: give "
                "a held-out share."
            )
    if any(each.request.curves for each in candidates):
        raise PlanError("Candidates have straight lines: leave --curves out, or train without a search.")
    share = 1 / math.sqrt(len(candidates))
    for _ in range(_ATTEMPTS):
        proposals = tuple(_candidate(data, each, share) for each in candidates)
        comparison = _comparison([each.plan for each in proposals], members, candidates[0].request.figures)
        plans = [*(each.plan for each in proposals), comparison]
        promised = {member.name: _promised(plans, member) for member in members}
        excess = max(_excess(promised[member.name], member) for member in members)
        if excess <= 1:
            settings = tuple(each.settings for each in candidates)
            return SearchProposal(settings, proposals, comparison, promised, share)
        share *= (1 - 1e-3) / excess  # sampled batches and shuffled sums do not compose as Gaussians do
    raise PlanError("No division of the budget among so many candidates was found: try fewer.")


def _candidate(data: Schema, candidate: CandidateRequest, share: float) -> Proposal:
    """Propose the plan of a search's candidate, with its share of the members' budgets."""

    def own(member: Member) -> Member:
        """Return a member with the candidate's share of its budget."""
        shift = share * gaussian_shift(member.epsilon, member.allowed_delta)
        return replace(member, epsilon=gaussian_epsilon(shift, member.allowed_delta), delta=member.allowed_delta)

    try:
        members = [own(member) for member in candidate.members]
        # Only the best is evaluated, by the plan that compares them, which has no place for knots of each candidate.
        return propose(data, members, replace(candidate.request, run=None, curves=0), evaluated=False)
    except PlanError as problem:
        raise PlanError(f"The candidate {settings_text(candidate.settings)} cannot be trained. {problem}") from None


def _comparison(plans: Sequence[Plan], members: Sequence[Member], figures: Sequence[str] | None) -> Plan:
    """Return the plan that compares the candidates on held-out records, and evaluates the best."""
    first, total = plans[0], sum(member.all_records for member in members)
    shifts = [gaussian_shift(member.epsilon, member.allowed_delta) * math.sqrt(EVALUATED) for member in members]
    noise = evaluation_noise([member.held_out for member in members], shifts)
    asked = (
        (Comparison(models=len(plans), part="sizes"), 1, SIZES),
        (Comparison(models=len(plans), part="losses"), 1, LOSSES),
        (Evaluation(figures=chosen_figures(first.loss, figures, noise)), EVALUATIONS, EVALUATED),
    )
    stages = tuple(Stage(query=query, rounds=rounds, sampling=Full(), section="held-out") for query, rounds, _ in asked)

    def terms(member: Member) -> SiloTerms:
        """Return a silo's terms in the plan that compares a search's candidates."""
        shift = gaussian_shift(member.epsilon, member.allowed_delta)
        own = (
            held_out_terms(first, query, member.held_out, shift * math.sqrt(part / rounds))
            for query, rounds, part in asked
        )
        return query_terms(member, total, *own)

    facts = shared_facts(first) | {"model_loss": first.loss.unsmoothed(), "held_out": first.held_out}
    with clear_refusals():
        silos = tuple(terms(member) for member in members)
        return require_fit(Plan(run=secrets.token_hex(8), stages=stages, silos=silos, **facts))


def _promised(plans: Sequence[Plan], member: Member) -> tuple[Guarantee, ...]:
    """Return the guarantee of all of a search's plans together, by observer; the first is at least the granted one."""
    observers = observers_of(*(plan.observers for plan in plans))
    found = costs(all_events(plans, member.name), observers, member.allowed_delta)
    first, *others = found
    granted = first if first.epsilon > member.epsilon else first.model_copy(update={"epsilon": member.epsilon})
    return (
        granted,
        *(one.model_copy(update={"epsilon": max(one.epsilon * (1 + 1e-6), granted.epsilon)}) for one in others),
    )


def _excess(promised: Sequence[Guarantee], member: Member) -> float:
    """Return the Gaussian shift of a search's plans divided by the granted one: 1 if they keep to it."""
    counted = promised[0]
    if counted.epsilon <= member.epsilon:
        return 1.0
    if not math.isfinite(counted.epsilon):
        return 2.0
    delta = member.allowed_delta
    return max(gaussian_shift(counted.epsilon, delta) / gaussian_shift(member.epsilon, delta), 1 + 1e-9)
