"""A proposal in words: the choice, its reason, and the alternatives."""

import math
from typing import Any

from ringfence.planning.algorithm_choice import AlgorithmChoice
from ringfence.planning.curves import COLUMNS_SHARE
from ringfence.planning.defaults import survey_resolves
from ringfence.planning.noise_warnings import plan_warnings
from ringfence.planning.propose import Proposal
from ringfence.protocol import Plan, rounds_words
from ringfence.protocol.plan.prospects import guessing_loss, weighting

PAPER_NAMES = {
    "minibatch-sgd": "noisy minibatch SGD, the paper's Algorithm 2",
    "accelerated": "accelerated noisy minibatch SGD, the paper's Algorithm 1",
    "regularised": "accelerated noisy minibatch SGD with a penalty, the paper's regularised Algorithm 1",
    "multi-stage": "multi-stage accelerated noisy minibatch SGD, the paper's multi-stage Algorithm 1",
    "preconditioned": "preconditioned descent",
    "localized": "localized accelerated noisy minibatch SGD, our own derivation",
}


def explain_proposal(proposal: Proposal) -> list[str]:
    """Return three lines: the algorithm, its loss bound, and what the choice is based on."""
    plan, choice = proposal.plan, proposal.choice
    method = choice.method if choice else plan.algorithm.name
    training = plan.training_stages[0]
    clip = "" if plan.algorithm.finds_clip else f"clip {_clip(plan):.4g}, "
    what = (
        f"{PAPER_NAMES[method]}{_axes(plan)}: {rounds_words(plan)}; {training.sampling.name} batches, "
        f"{plan.loss.name} loss, {plan.dimension} weights, {clip}{plan.algorithm.words(plan)}"
    )
    if counted := weighting(plan):
        what += f"; {counted}"
    if choice is None:
        return [what, "as requested; no alternatives were compared", _survey(plan)]
    others = [_line(other) for other in proposal.alternatives if other is not choice]
    uncovered = _uncovered(plan)
    if not math.isfinite(choice.bound):
        why = f"{_survey_clause(proposal)}no loss bound covers {uncovered[-1]} (privacy does not depend on one)"
        favoured = f"; best by loss bounds: {others[0]}" if others else ""
        return [what, why + favoured, _survey(plan, choice.survey)]
    compared = f"; next best: {others[0]}" if others else ""
    hoped = f" (about {choice.expected:.3g} if the survey turns out as expected)" if choice.survey else ""
    bound = f"no bound covers {' or '.join(uncovered)}; without that," if uncovered else "bound:"
    penalised = " with the lasso" if plan.lasso else ""
    error = plan.loss.smoothing_error
    smoothed = f" (smoothing the loss's kink adds up to {error:.2g})" if error else ""
    proved = (
        f"{bound} the clipped {choice.risk} loss{penalised} is on average at most {choice.bound:.3g}{hoped} above "
        f"that of the best weights of norm up to {proposal.distance:.3g}{smoothed}{_no_useful_bound(proposal)}"
        f"{compared}{_no_survey_clause(proposal)}"
    )
    return [what, proved, _survey(plan, choice.survey)]


def _axes(plan: Plan) -> str:
    """Return a clause about the origin of the axes, for the explanation of preconditioned descent."""
    if not plan.algorithm.finds_clip:
        return ""
    return ", along axes that " + ("a survey finds" if plan.training_numbers[0] else "the schema suggests")


def _survey_clause(proposal: Proposal) -> str:
    """Return a clause about the resolution of the survey, or why there is none."""
    plan, resolution = proposal.plan, proposal.survey_resolution
    if resolution is None:
        return ""
    records = sum(plan.records_in(plan.stages[0], terms) for terms in plan.silos)
    facts = f"with {records:,} {plan.unit}s, {plan.data.without_open_curves().width} features and this budget"
    better = "chosen because it gave smaller errors on public tables than the choice by loss bounds"
    if plan.training_numbers[0]:
        what = plan.algorithm.resolved
        return f"{better}; {facts}, its survey resolves {what} down to {resolution:.2g} of the largest second moment; "
    return (
        f"{better}; no survey is made: {facts}, its noise would reach {resolution:.2g} of the largest second moment "
        "and hide all but one direction; axes, clip and step assume features spread evenly over their bounds; "
    )


def _no_survey_clause(proposal: Proposal) -> str:
    """Return a clause that preconditioned descent is ruled out, if its survey would be too noisy."""
    if survey_resolves(proposal.survey_resolution):
        return ""
    return (
        f"; preconditioned descent is ruled out: with these {proposal.plan.unit}s and this budget, the noise of its "
        f"survey reaches {proposal.survey_resolution:.2g} of the largest possible second moment and would hide "
        "all directions"
    )


def alternatives_table(proposal: Proposal) -> tuple[list[str], list[list[Any]]]:
    """Return the header and rows of the alternatives, best first. Steps are training rounds."""
    header = ["algorithm", "batches", "steps", "bound", "expected", "bounds the loss on", "survey's share"]
    unit = proposal.plan.unit
    about = {"population": f"fresh {unit}s", "empirical": f"the silos' {unit}s"}
    rows = [
        [c.method, c.sampling, c.rounds, *bounds, about[c.risk], c.survey or "none"]
        for c in proposal.alternatives
        for bounds in [(c.bound, c.expected) if math.isfinite(c.bound) else ("none", "none")]
    ]
    return header, rows


def as_data(proposal: Proposal) -> dict[str, Any]:
    """Return a proposal's explanation, warnings and alternatives as plain data; `steps` are training rounds."""
    return {
        "explanation": explain_proposal(proposal),
        "warnings": plan_warnings(proposal),
        "alternatives": [
            {
                "algorithm": c.method,
                "sampling": c.sampling,
                "steps": c.rounds,
                "bound": c.bound if math.isfinite(c.bound) else None,
                "expected": c.expected if math.isfinite(c.expected) else None,
                "risk": c.risk,
                "survey": c.survey,
                "chosen": c is proposal.choice,
            }
            for c in proposal.alternatives
        ],
    }


def _line(choice: AlgorithmChoice) -> str:
    """Describe an algorithm and its expected bound, for the explanation of a proposal."""
    steps = f"{choice.rounds} step{'' if choice.rounds == 1 else 's'}"
    return f"{choice.method} with {choice.sampling} batches, {choice.expected:.3g} in {steps}"


def _uncovered(plan: Plan) -> list[str]:
    """Return the features of the plan that no loss bound covers, for the explanation of a proposal."""
    found = [] if plan.algorithm.keeps_theorem_average else ["an average other than the weighted one"]
    for number, stage in enumerate(plan.stages):
        sizes = [(plan.records_in(stage, terms), terms.stages[number].batch, terms.weight) for terms in plan.silos]
        found += [
            "silos that take turns" if stage.most_answers < stage.rounds else "",
            stage.channel.uncovered(plan, stage, number),
            stage.sampling.uncovered(sizes, stage.most_answers),
            stage.query.uncovered(plan),
        ]
    return [name for name in dict.fromkeys(found) if name]


def _no_useful_bound(proposal: Proposal) -> str:
    """Return a clause if the bound is no better than the start: L·D₀, or the loss of a constant guess."""
    choice, plan = proposal.choice, proposal.plan
    known = min(_clip(plan) * proposal.distance, guessing_loss(plan))
    trivial = choice is not None and choice.bound >= known
    return f", which is no useful bound: a constant guess is at most {known:.3g} above" if trivial else ""


def _clip(plan: Plan) -> float:
    """Return the clipping norm of records' gradients, for the explanation of a proposal."""
    return plan.training_stages[0].query.largest(plan)


def _survey(plan: Plan, share: float = 0.0) -> str:
    """Explain what a proposal's choices are based on: its surveys and their cost, and the held-out records."""
    asked = [stage.query.purpose for stage in plan.stages if stage.section != "held-out"]
    looks = "; ".join(purpose for purpose in asked if purpose)
    share += COLUMNS_SHARE if plan.data.open_curves and share else 0.0
    cost = f", for {share:.0%} of the budget in squared shift" if share else ""
    said = f"{looks}{cost}" if looks else "no record was used for these choices, and nothing is spent on them"
    if plan.held_out is None:
        return said
    return f"{said}; {plan.held_out:.0%} of the {plan.unit}s are held out to evaluate the model"
