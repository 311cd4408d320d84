"""A proposal in words: what the planner chose, why, and what else there was."""

from typing import Any

from ringfence.planning.planner import Choice
from ringfence.planning.prescribe import Proposal
from ringfence.protocol.algorithms import Accelerated, Localized, MinibatchSGD, MultiStage
from ringfence.protocol.plan import Plan

PAPER_NAMES = {
    "minibatch-sgd": "noisy minibatch SGD, the paper's Algorithm 2",
    "accelerated": "accelerated noisy minibatch SGD, the paper's Algorithm 1",
    "regularised": "accelerated noisy minibatch SGD with a penalty, the paper's regularised Algorithm 1",
    "multi-stage": "multi-stage accelerated noisy minibatch SGD, the paper's multi-stage Algorithm 1",
    "localized": "localized accelerated noisy minibatch SGD, our own derivation",
}


def explain_proposal(proposal: Proposal) -> list[str]:
    """Return three lines: what will be run, what is certified of it, and what the steps rest on."""
    plan, choice = proposal.plan, proposal.choice
    method = choice.method if choice else plan.algorithm.name
    what = (
        f"{PAPER_NAMES[method]}: {_rounds(plan.rounds)} of {plan.sampling} batches, {plan.loss.name} loss, "
        f"{plan.dimension} weights, clip {plan.clip:.4g}, {_steps(plan)}"
    )
    if choice is None:
        return [what, "as asked for; nothing was compared", _survey(plan)]
    others = [other for other in proposal.alternatives if other is not choice]
    compared = f"; next best: {_line(others[0])}" if others else ""
    hoped = f" ({choice.expected:.3g} if the survey finds what is counted on)" if choice.survey else ""
    uncovered = _uncovered(plan)
    certificate = f"no certificate covers {' or '.join(uncovered)}; without," if uncovered else "certificate:"
    certified = (
        f"{certificate} its {choice.risk} loss, as clipped, is on average at most {choice.certificate:.3g}{hoped} "
        f"above that of the best weights of norm up to {proposal.distance:.3g}{_smoothing(plan)}{_nothing(proposal)}"
        f"{compared}"
    )
    return [what, certified, _survey(plan)]


def alternatives_table(proposal: Proposal) -> tuple[list[str], list[list[Any]]]:
    """Return what was compared: header and rows, best first."""
    header = ["algorithm", "batches", "rounds", "certificate", "expected", "bounds the loss on", "survey's share"]
    rows = [
        [c.method, c.sampling, c.rounds, c.certificate, c.expected, _records(c), c.survey or "none"]
        for c in proposal.alternatives
    ]
    return header, rows


def as_data(proposal: Proposal) -> dict[str, Any]:
    """Return the explanation for machines."""
    return {
        "explanation": explain_proposal(proposal),
        "alternatives": [
            {
                "algorithm": c.method,
                "sampling": c.sampling,
                "rounds": c.rounds,
                "certificate": c.certificate,
                "expected": c.expected,
                "risk": c.risk,
                "survey": c.survey,
                "chosen": c is proposal.choice,
            }
            for c in proposal.alternatives
        ],
    }


def _records(choice: Choice) -> str:
    return "fresh records" if choice.risk == "population" else "the silos' records"


def _line(choice: Choice) -> str:
    return f"{choice.method} with {choice.sampling} batches, {choice.expected:.3g} in {_rounds(choice.rounds)}"


def _rounds(count: int) -> str:
    return "1 round" if count == 1 else f"{count} rounds"


def _uncovered(plan: Plan) -> list[str]:
    """Name what the plan does and no certificate speaks of."""
    spec = plan.algorithm
    weighted = spec.skip == 0 if isinstance(spec, MinibatchSGD) else spec.average == "weighted"
    one_pass = plan.sampling == "one-pass"
    return [
        name
        for name, does in (
            ("correlated noise", plan.correlation > 0),
            ("another average than the weighted one", not weighted),
            (
                "one-pass batches that leave records out",
                one_pass and any(terms.batch < terms.records // plan.rounds for terms in plan.silos),
            ),
            # The planner counts on the largest silo's batches, and on silos of one size, for want of a formula.
            ("sampled batches", plan.sampling in ("fixed", "poisson")),
            (
                "phases of silos that differ",
                plan.sampling == "phased" and len({(t.records, t.weight) for t in plan.silos}) > 1,
            ),
            (
                "silos of different sizes that take turns at the shuffler",
                plan.shuffle is not None
                and plan.participation.silos not in (None, len(plan.silos))
                and len({terms.batch for terms in plan.silos}) > 1,
            ),
            # Cut gradients of several outputs need not be the gradient of any convex loss.
            ("clipped gradients of several outputs", plan.loss.outputs > 1 and plan.clip < plan.constants.lipschitz),
        )
        if does
    ]


def _smoothing(plan: Plan) -> str:
    error = plan.loss.smoothing_error
    return f" (smoothing the loss's kink adds up to {error:.2g})" if error else ""


def _nothing(proposal: Proposal) -> str:
    """Say so where the certificate is no better than what is true of the start: L·D₀."""
    choice = proposal.choice
    trivial = choice is not None and choice.certificate >= proposal.plan.clip * proposal.distance
    return ", which promises nothing: staying at the start has as good a one" if trivial else ""


def _steps(plan: Plan) -> str:
    spec = plan.algorithm
    if isinstance(spec, MinibatchSGD):
        momentum = f", momentum {spec.momentum:.3g}" if spec.momentum else ""
        return f"step {spec.step:.4g}{momentum}"
    if isinstance(spec, Accelerated):
        penalty = f", penalty {spec.penalty:.3g}" if spec.penalty else ""
        # The server's rule: υ ≥ 2β, or β of the whole objective where it is strongly convex.
        convexity = plan.ridge + spec.penalty
        pace = max(spec.pace, (1.0 if convexity else 2.0) * (spec.smoothness + convexity))
        return f"pace {'at most ' if plan.survey else ''}{pace:.4g}{penalty}"
    if isinstance(spec, MultiStage):
        return "stages of " + ", ".join(str(stage.rounds) for stage in spec.stages)
    if isinstance(spec, Localized):
        return "phases of " + ", ".join(str(phase.rounds) for phase in spec.phases)
    raise TypeError(spec)


def _survey(plan: Plan) -> str:
    if plan.survey is None:
        return "no record was looked at to choose any of this, and nothing is spent on it"
    return (
        "a first, budgeted query asks every silo for the largest eigenvalue of its features' second-moment matrix, "
        "so that the steps need not assume the worst; it takes a round of its own and is part of the silos' epsilon"
    )
