"""What a plan's noise leaves to be learned, from public numbers alone."""

import itertools
import math

import numpy as np

from ringfence.protocol.plan import Plan


def noise_in_weights(plan: Plan) -> float | None:
    """Return about how much noise a weight of the model has at least, as a standard deviation; None if nobody can say.

    The gradient's average over all rounds carries noise of variance v = Σ p_i²/Σ_r σ_ir⁻² in each number, whatever the
    algorithm makes of it. A weight turns a gradient's error into its own by its curvature; those add up to at most β
    over the features, so on average a weight's is at most β/width, and its noise at least √v·width/β. Where gradients
    are cut, β is that of cut ones, if the loss knows it: by a log link the loss alone curves up to e^b times as much.
    """
    if not plan.training_numbers:
        return None
    clip = plan.stages[plan.training_numbers[0]].question.record_norm(plan)
    reach = plan.domain.reach(plan.dimension)
    smoothness = plan.loss.smoothness_on(plan.data, reach, math.inf if clip is None else clip)
    if not 0 < smoothness < math.inf:
        return None
    return math.sqrt(noise_variance(plan)) * plan.data.width / smoothness


def noise_variance(plan: Plan) -> float:
    """Return that of the noise in each number of the gradient's average over all rounds: Σ p_i²/Σ_r σ_ir⁻²."""
    return math.fsum(
        terms.weight**2
        / math.fsum(
            plan.stages[number].most_answers / terms.stages[number].sigma ** 2 for number in plan.training_numbers
        )
        for terms in plan.silos
    )


def weight_of(norm: float, plan: Plan) -> float:
    """Return how large a weight is, as a root mean square, if all of them have that norm."""
    return norm / math.sqrt(plan.dimension)


def guessing_loss(plan: Plan) -> float:
    """Return the largest loss of a record at weights of 0, which is that of a guess: ln 2 for two classes."""
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
    """Say, as a sentence without its end, whom the model is for where silos do not count by records; else nothing.

    Names the silo that counts least for its records.
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
    """Tell whether no value is larger than one at a smaller `by`, but for rounding."""
    ordered = [value for _, value in sorted(zip(by, values, strict=True))]
    return all(later <= 1.001 * earlier for earlier, later in itertools.pairwise(ordered))
