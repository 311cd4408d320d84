"""How useful a plan's model can be despite the noise, from public numbers alone."""

import itertools
import math

import numpy as np

from ringfence.protocol.plan.plan import Plan


def noise_in_weights(plan: Plan) -> float | None:
    """Return the approximate least standard deviation of the noise in a weight of the model; None if unknown.

    The gradient's average over all rounds carries noise of variance v = Σ p_i²/Σ_r σ_ir⁻² in each number, whatever the
    algorithm makes of it. A weight turns a gradient's error into its own by its curvature; those add up to at most β
    over the features, so on average a weight's is at most β/width, and its noise at least √v·width/β. Where gradients
    are clipped, β is that of the clipped loss, if the loss knows it: with a log link the unclipped curvature is up to
    e^b times as large."""
    if not plan.training_numbers:
        return None
    clip = plan.stages[plan.training_numbers[0]].query.record_norm(plan)
    reach = plan.domain.reach(plan.dimension)
    smoothness = plan.loss.smoothness_on(plan.data, reach, math.inf if clip is None else clip)
    if not 0 < smoothness < math.inf:
        return None
    return math.sqrt(noise_variance(plan)) * plan.data.width / smoothness


def noise_variance(plan: Plan) -> float:
    """Return the noise variance of each coordinate of the gradient averaged over all rounds: Σ p_i²/Σ_r σ_ir⁻²."""
    return math.fsum(
        terms.weight**2
        / math.fsum(
            plan.stages[number].most_answers / terms.stages[number].sigma ** 2 for number in plan.training_numbers
        )
        for terms in plan.silos
    )


def weight_of(norm: float, plan: Plan) -> float:
    """Return the root mean square of the weights of a plan's model if their vector has that norm."""
    return norm / math.sqrt(plan.dimension)


def guessing_loss(plan: Plan) -> float:
    """Return the largest loss of a record at zero weights, that of guessing: ln 2 for two classes."""
    bound = plan.data.target_bound
    kinds = {
        "label": [-1.0, 1.0],
        "class": [0.0],
        "number": [-bound, bound],
        "numbers": [[bound] + [0.0] * (plan.loss.outputs - 1)],
        "time": [[bound, 0.0], [bound, 1.0]],
    }
    targets = np.array(kinds[plan.loss.target_kind])
    return float(np.max(plan.loss.values(np.zeros((len(targets), plan.loss.outputs)), targets)))


def weighting(plan: Plan) -> str:
    """Describe how silos are weighted if not by records, and name the silo with the least weight for its records.

    Empty if they are weighted by records.
    """
    if not plan.training_numbers:
        return ""
    number = plan.training_numbers[0]
    records = [plan.records_in(plan.stages[number], terms) for terms in plan.silos]
    shares = [own / sum(records) for own in records]
    if all(math.isclose(own.weight, share, rel_tol=1e-6) for own, share in zip(plan.silos, shares, strict=True)):
        return ""
    noises = [terms.stages[number].sigma for terms in plan.silos]
    raised = [own.weight / share for own, share in zip(plan.silos, shares, strict=True)]
    by_noise = [own.weight * noise**2 for own, noise in zip(plan.silos, noises, strict=True)]
    if max(by_noise) < 1.01 * min(by_noise):  # as near as noise is calibrated
        how = "the noise in their answers"
    elif _falls(raised, noises):
        how = f"the noise in their answers as well as by their {plan.unit}s"
    else:
        how = "shares of their own"
    least = min(range(len(raised)), key=raised.__getitem__)
    return (
        f"silos are weighted by {how}: the model is best for {plan.unit}s weighted that way, and least suited to "
        f"'{plan.silos[least].name}', which has {shares[least]:.2g} of all and weighs {plan.silos[least].weight:.2g}"
    )


def _falls(values: list[float], by: list[float]) -> bool:
    """Return whether silos' weights fall as `by` grows, up to rounding, for a plan's prospects."""
    ordered = [value for _, value in sorted(zip(by, values, strict=True))]
    return all(later <= 1.001 * earlier for earlier, later in itertools.pairwise(ordered))
