"""A proposal in words: what the planner chose, why, and what else there was."""

import math
from typing import Any

from ringfence.foreign_text import visible
from ringfence.planning.planner import Choice
from ringfence.planning.preconditioned import tells_apart
from ringfence.planning.propose import Proposal
from ringfence.planning.widths import noise_wins, too_wide
from ringfence.protocol.guarantee import LARGE_EPSILON
from ringfence.protocol.plan import Plan
from ringfence.protocol.prospects import guessing_loss, noise_in_weights, weight_of, weighting
from ringfence.protocol.questions import Unit

PAPER_NAMES = {
    "minibatch-sgd": "noisy minibatch SGD, the paper's Algorithm 2",
    "accelerated": "accelerated noisy minibatch SGD, the paper's Algorithm 1",
    "regularised": "accelerated noisy minibatch SGD with a penalty, the paper's regularised Algorithm 1",
    "multi-stage": "multi-stage accelerated noisy minibatch SGD, the paper's multi-stage Algorithm 1",
    "preconditioned": "preconditioned descent",
    "localized": "localized accelerated noisy minibatch SGD, our own derivation",
}


def explain_proposal(proposal: Proposal) -> list[str]:
    """Return three lines: what will be run, what is proved of it, and what the steps rest on."""
    plan, choice = proposal.plan, proposal.choice
    method = choice.method if choice else plan.algorithm.name
    training = plan.training_stages[0]
    cut = "" if plan.algorithm.finds_clip else f"clip {_clip(plan):.4g}, "
    what = (
        f"{PAPER_NAMES[method]}{_axes(plan)}: {_rounds(plan.steps)} of {training.sampling.name} batches, "
        f"{plan.loss.name} loss, {plan.dimension} weights, {cut}{plan.algorithm.words(plan)}"
    )
    if counted := weighting(plan):
        what += f"; {counted}"
    if choice is None:
        return [what, "as requested; no alternatives were compared", _survey(plan)]
    others = [other for other in proposal.alternatives if other is not choice]
    compared = f"; next best: {_line(others[0])}" if others else ""
    hoped = f" (about {choice.expected:.3g} if the survey turns out as expected)" if choice.survey else ""
    uncovered = _uncovered(plan)
    bound = f"no bound covers {' or '.join(uncovered)}; without that," if uncovered else "bound:"
    if not math.isfinite(choice.bound):
        favoured = f"; best by loss bounds: {_line(others[0])}" if others else ""
        why = f"{_told(proposal)}no loss bound covers {uncovered[-1]} (privacy does not depend on one){favoured}"
        return [what, why, _survey(plan, choice.survey)]
    proved = (
        f"{bound} the clipped {choice.risk} loss{_penalty(plan)} is on average at most {choice.bound:.3g}{hoped} above "
        f"that of the best weights of norm up to {proposal.distance:.3g}{_smoothing(plan)}{_nothing(proposal)}"
        f"{compared}{_untold(proposal)}"
    )
    return [what, proved, _survey(plan, choice.survey)]


def _axes(plan: Plan) -> str:
    """Say where axes come from, for an algorithm that has some."""
    if not plan.algorithm.finds_clip:
        return ""
    return ", along axes that " + ("a survey finds" if plan.training_numbers[0] else "the schema suggests")


def _told(proposal: Proposal) -> str:
    """Say what a survey is able to tell, from which numbers, and what is done about it."""
    plan, edge = proposal.plan, proposal.edge
    if edge is None:
        return ""
    records = sum(plan.records_in(plan.stages[0], terms) for terms in plan.silos)
    facts = f"with {records:,} {plan.unit}s, {plan.data.width} features and this budget"
    better = "chosen because it gave smaller errors on public tables than the choice by loss bounds"
    if plan.training_numbers[0]:
        what = plan.algorithm.resolved
        return f"{better}; {facts}, its survey resolves {what} down to {edge:.2g} of the largest second moment; "
    return (
        f"{better}; no survey is made: {facts}, its noise would reach {edge:.2g} of the largest second moment and hide "
        "all but one direction; axes, clip and step assume features spread evenly over their bounds; "
    )


def _untold(proposal: Proposal) -> str:
    """Say so where a survey would have been needed, and its noise would have hidden what it is for."""
    if proposal.edge is None or tells_apart(proposal.edge):
        return ""
    return (
        f"; preconditioned descent is ruled out: with these {proposal.plan.unit}s and this budget, the noise of its "
        f"survey reaches {proposal.edge:.2g} of the largest possible second moment and would hide all directions"
    )


def alternatives_table(proposal: Proposal) -> tuple[list[str], list[list[Any]]]:
    """Return what was compared: header and rows, best first."""
    header = ["algorithm", "batches", "rounds", "bound", "expected", "bounds the loss on", "survey's share"]
    rows = [
        [c.method, c.sampling, c.rounds, *_bounds(c), _bounded(c, proposal.plan.unit), c.survey or "none"]
        for c in proposal.alternatives
    ]
    return header, rows


def as_data(proposal: Proposal) -> dict[str, Any]:
    """Return the explanation for machines."""
    return {
        "explanation": explain_proposal(proposal),
        "warnings": warnings(proposal),
        "alternatives": [
            {
                "algorithm": c.method,
                "sampling": c.sampling,
                "rounds": c.rounds,
                "bound": c.bound if math.isfinite(c.bound) else None,
                "expected": c.expected if math.isfinite(c.expected) else None,
                "risk": c.risk,
                "survey": c.survey,
                "chosen": c is proposal.choice,
            }
            for c in proposal.alternatives
        ],
    }


def _bounds(choice: Choice) -> tuple[Any, Any]:
    return (choice.bound, choice.expected) if math.isfinite(choice.bound) else ("none", "none")


def _bounded(choice: Choice, unit: Unit) -> str:
    return f"fresh {unit}s" if choice.risk == "population" else f"the silos' {unit}s"


def _line(choice: Choice) -> str:
    return f"{choice.method} with {choice.sampling} batches, {choice.expected:.3g} in {_rounds(choice.rounds)}"


def _rounds(count: int) -> str:
    return "1 round" if count == 1 else f"{count} rounds"


def _uncovered(plan: Plan) -> list[str]:
    """Name what the plan does and no bound speaks of."""
    found = [] if plan.algorithm.keeps_theorem_average else ["an average other than the weighted one"]
    for number, stage in enumerate(plan.stages):
        sizes = [(plan.records_in(stage, terms), terms.stages[number].batch, terms.weight) for terms in plan.silos]
        found += [
            "silos that take turns" if stage.most_answers < stage.rounds else "",
            stage.channel.uncovered(plan, stage, number),
            stage.sampling.uncovered(sizes, stage.most_answers),
            stage.question.uncovered(plan),
        ]
    return [name for name in dict.fromkeys(found) if name]


def _penalty(plan: Plan) -> str:
    return " with the lasso" if plan.lasso else ""


def _smoothing(plan: Plan) -> str:
    error = plan.loss.smoothing_error
    return f" (smoothing the loss's kink adds up to {error:.2g})" if error else ""


def _nothing(proposal: Proposal) -> str:
    """Say so where the bound is no better than what is true of the start: L·D₀, and the loss of a guess."""
    choice, plan = proposal.choice, proposal.plan
    known = min(_clip(plan) * proposal.distance, guessing_loss(plan))
    trivial = choice is not None and choice.bound >= known
    return f", which is no useful bound: a constant guess is at most {known:.3g} above" if trivial else ""


def warnings(proposal: Proposal) -> list[str]:
    """Say, before anything is spent, where a budget buys nothing, or protects nobody."""
    epsilon = max(terms.guarantee.epsilon for terms in proposal.plan.silos)
    plan = proposal.plan
    said = (buys_nothing(proposal), noise_wins(plan), too_wide(plan), protects_nobody(epsilon, plan.unit))
    return [told for told in said if told]


def buys_nothing(proposal: Proposal) -> str:
    """Say so where the noise in a weight is as large as a weight; else nothing."""
    plan = proposal.plan
    noise, size = noise_in_weights(plan), weight_of(proposal.distance, plan)
    if noise is None or noise < size:
        return ""
    return (
        f"This budget buys almost nothing: the noise in each weight is about {noise:.2g} or more, while a weight is "
        f"about {size:.2g} if the model has the expected norm ({proposal.distance:.3g}). Use fewer columns (there are "
        f"{plan.dimension} weights{_widest(plan)}), more records or a larger epsilon"
        f"{'' if plan.trust != 'nobody' else ', or trust a shuffler'}."
    )


def _widest(plan: Plan) -> str:
    """Name the column that most features come from, if it is one."""
    widths = {name: len(column.feature_names(name)) for name, column in plan.data.features.items()}
    name = max(widths, key=widths.__getitem__, default="")
    most = widths.get(name, 0)
    return f", most of them for {most} features of column '{visible(name)}'" if 2 * most > plan.data.width else ""


def protects_nobody(epsilon: float, unit: Unit) -> str:
    """Say so of an epsilon that is too large to mean anything; else nothing."""
    if epsilon <= LARGE_EPSILON:
        return ""
    return (
        f"Epsilon {epsilon:g} protects almost nobody: a guess whether a {unit} was in the data may be right every "
        "time. Most releases stay below 10."
    )


def _clip(plan: Plan) -> float:
    """Return the length that records' gradients are cut to."""
    return plan.training_stages[0].question.largest(plan)


def _survey(plan: Plan, share: float = 0.0) -> str:
    asked = [stage.question.purpose() for stage in plan.stages if stage.section != "held-out"]
    looks = "; ".join(purpose for purpose in asked if purpose)
    cost = f", for {share:.0%} of the budget in squared shift" if share else ""
    said = f"{looks}{cost}" if looks else "no record was used for these choices, and nothing is spent on them"
    return (
        said
        if plan.held_out is None
        else f"{said}; {plan.held_out:.0%} of the {plan.unit}s are held out to evaluate the model"
    )
