"""What a plan's noise leaves to be learned, from public numbers alone."""

import math

import numpy as np

from ringfence.protocol.plan import Plan


def noise_in_weights(plan: Plan) -> float | None:
    """Return about how much noise a weight of the model has at least, as a standard deviation; None if nobody can say.

    The gradient's average over all rounds carries noise of variance v = Σ p_i²/Σ_r σ_ir⁻² in each number, whatever the
    algorithm makes of it. A weight turns a gradient's error into its own by its curvature; those add up to at most β
    over the features, so on average a weight's is at most β/width, and its noise at least √v·width/β.
    """
    if not plan.training_numbers:
        return None
    smoothness = plan.constants.smoothness - plan.ridge
    if not 0 < smoothness < math.inf:
        return None
    variance = math.fsum(
        terms.weight**2
        / math.fsum(plan.stages[number].rounds / terms.stages[number].sigma ** 2 for number in plan.training_numbers)
        for terms in plan.silos
    )
    return math.sqrt(variance) * plan.data.width / smoothness


def weight_of(norm: float, plan: Plan) -> float:
    """Return how large a weight is, as a root mean square, if all of them have that norm."""
    return norm / math.sqrt(plan.dimension)


def guessing_loss(plan: Plan) -> float:
    """Return the largest loss of a record at weights of 0, which is that of a guess: ln 2 for two classes."""
    bound = plan.data.target_bound
    targets = np.array({"label": [-1.0, 1.0], "class": [0.0], "number": [-bound, bound]}[plan.loss.target_kind])
    return float(np.max(plan.loss.values(np.zeros((len(targets), plan.loss.outputs)), targets)))
