"""Splits of one data set over simulated silos, and measures of how much silos differ.

Every split returns one array of row indices per silo. Guarantee: no row is in two silos, none occurs twice
in a silo, no silo is empty, and equal generators give equal splits; unless a split's own text says otherwise,
every row is in some silo. Asking for more silos than that allows is a `TrainingError`.

Rows are distinguished by their index: a data set that contains the same record twice (insurance.csv once,
obesity.csv 24 times) may put the copies into two silos.
"""

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from ringfence.errors import TrainingError
from ringfence.protocol import FloatArray, Loss

Rows: TypeAlias = NDArray[np.int64]
Silos: TypeAlias = Sequence[tuple[FloatArray, FloatArray]]
"""Features and targets of every silo."""

EVEN_DIGITS = (0, 2, 4, 6, 8)
ODD_DIGITS = (1, 3, 5, 7, 9)
OPTIMUM_TOLERANCE = 1e-8


def iid(records: int, silos: int, choices: np.random.Generator) -> list[Rows]:
    """Deal all rows out at random; sizes differ by at most one."""
    _require_room(records, silos)
    return np.array_split(choices.permutation(records), silos)


def by_sizes(records: int, sizes: Sequence[int], choices: np.random.Generator) -> list[Rows]:
    """Deal rows out at random in the given sizes; rows beyond their sum are in no silo."""
    if not sizes or min(sizes) < 1 or sum(sizes) > records:
        raise TrainingError(
            f"The silos' sizes do not fit {records} records. Give every silo at least 1, and no more than that in "
            "total."
        )
    return _cut(choices.permutation(records), sizes)[: len(sizes)]


def by_label(labels: NDArray[Any], silos: int, choices: np.random.Generator) -> list[Rows]:
    """Give every silo its own labels: one each where there are as many silos as labels, else neighbouring ones.

    Labels are taken in sorted order; the numbers of labels differ by at most one.
    """
    _require_room(len(labels), silos)
    found = np.unique(labels)
    if silos > len(found):
        raise TrainingError(f"{silos} silos cannot each have their own label: there are {len(found)} labels.")
    return [choices.permutation(np.flatnonzero(np.isin(labels, own))) for own in np.array_split(found, silos)]


def by_sorted_target(targets: NDArray[Any], silos: int, choices: np.random.Generator) -> list[Rows]:
    """Sort by target, ties in random order: ⌈n/N⌉ rows for each of the first N−1 silos, the rest for the last.

    This is the paper's split of the insurance data. Where the first N−1 would leave nothing it is refused.
    """
    _require_room(len(targets), silos)
    size = math.ceil(len(targets) / silos)
    if size * (silos - 1) >= len(targets):
        raise TrainingError(
            f"Groups of {size} leave nothing for the last of {silos} silos. Use fewer silos for {len(targets)} records."
        )
    order = np.lexsort((choices.permutation(len(targets)), targets))
    return _cut(order, [size] * (silos - 1))


def by_pairs_of_classes(
    labels: NDArray[Any],
    choices: np.random.Generator,
    *,
    first: Sequence[int] = EVEN_DIGITS,
    second: Sequence[int] = ODD_DIGITS,
) -> list[Rows]:
    """Make one silo per pair of a class of `first` and one of `second`: the paper's 25 silos of MNIST.

    Silo (i, j) is at place i·len(second) + j. A class's rows are divided evenly, up to one, among the silos
    that use it. The released code draws with replacement, so that an image can be in five silos and in
    training and test at once; here it is in one. Rows of any other class are refused.
    """
    classes = [*first, *second]
    if len(set(classes)) != len(classes) or not set(np.unique(labels).tolist()) <= set(classes):
        raise TrainingError(
            "For pairs of classes, every label must be in exactly one of the two lists. Correct the lists."
        )
    pairs = len(first) * len(second)
    shares: list[list[Rows]] = [[] for _ in range(pairs)]
    grid = np.arange(pairs).reshape(len(first), len(second))
    for label, places in zip(classes, [*grid, *grid.T], strict=True):
        rows = choices.permutation(np.flatnonzero(labels == label))
        for place, part in zip(places, np.array_split(rows, len(places)), strict=True):
            if not len(part):
                raise TrainingError(f"Class {label} has too few records to be shared by {len(places)} silos.")
            shares[place].append(part)
    return [choices.permutation(np.concatenate(parts)) for parts in shares]


def dirichlet(
    labels: NDArray[Any], silos: int, alpha: float, choices: np.random.Generator, *, attempts: int = 1000
) -> list[Rows]:
    """For every label draw the silos' shares from Dirichlet(alpha, …, alpha), and each row's silo from the shares.

    Small alpha gives each label to few silos; as alpha grows, rows become independent of labels (i.i.d. with
    random sizes). Draws that leave a silo empty are repeated, which a small alpha may need often.
    """
    _require_room(len(labels), silos)
    if not 0.0 < alpha < math.inf:
        raise TrainingError(f"Dirichlet's alpha {alpha} must be a positive number.")
    for _ in range(attempts):
        parts: list[list[Rows]] = []
        for label in np.unique(labels):
            rows = choices.permutation(np.flatnonzero(labels == label))
            shares = choices.dirichlet(np.full(silos, alpha))
            parts.append(_cut(rows, choices.multinomial(len(rows), shares)[:-1]))
        split = [choices.permutation(np.concatenate(own)) for own in zip(*parts, strict=True)]
        if all(map(len, split)):
            return split
    raise TrainingError(
        f"{attempts} draws with alpha {alpha} all left one of {silos} silos empty. Use fewer silos or a larger alpha."
    )


def train_test(rows: Sequence[Rows], fraction: float, choices: np.random.Generator) -> tuple[list[Rows], list[Rows]]:
    """Hold out the given fraction of every silo's rows at random; return training rows and held-out rows.

    Of two rows or more at least one is held out and one is not; a silo's only row stays in training.
    """
    if not 0.0 < fraction < 1.0:
        raise TrainingError(f"The held-out fraction {fraction} must be between 0 and 1.")
    training, held_out = [], []
    for own in rows:
        cut = min(max(1, round(fraction * len(own))), len(own) - 1)
        shuffled = choices.permutation(own)
        held_out.append(shuffled[:cut])
        training.append(shuffled[cut:])
    return training, held_out


def silo_gradients(loss: Loss, silos: Silos, weights: FloatArray) -> FloatArray:
    """Return ∇F̂_i(w) of every silo as a row: the mean over its records, unclipped and without noise."""
    rows = []
    for features, targets in silos:
        residuals = loss.residuals(features @ weights.reshape(features.shape[1], -1), targets)
        rows.append((features.T @ residuals).reshape(-1) / len(targets))
    return np.stack(rows)


def heterogeneity(loss: Loss, silos: Silos, weights: FloatArray) -> float:
    """Return υ²(w) = (1/N) Σ ‖∇F̂_i(w) − ∇F̂(w)‖² at the given weights; every silo counts alike.

    The paper's υ² is the supremum over W, which points can only bound from below: over a run,
    report the largest value at the weights visited and call it an estimate. It reads exact gradients of all
    silos, so it is a diagnostic for simulations and never for release; υ² ≤ L² needs no data at all.
    """
    gradients = silo_gradients(loss, silos, weights)
    return float(np.mean(np.sum((gradients - gradients.mean(axis=0)) ** 2, axis=1)))


def heterogeneity_at_optimum(loss: Loss, silos: Silos) -> float:
    """Return υ*² = (1/N) Σ ‖∇F̂_i(w*)‖², with w* the unconstrained minimum of F̂ = (1/N) Σ F̂_i.

    It is 0 for identical silos, though 0 does not prove them identical. Like `heterogeneity` it is not
    private. Redundant features leave w* open but not the value (for strictly convex φ). Where F̂ has no
    minimum (separable classes) gradients vanish along the way out, and so does the value.
    """
    return float(np.mean(np.sum(silo_gradients(loss, silos, optimum(loss, silos)) ** 2, axis=1)))


def optimum(loss: Loss, silos: Silos) -> FloatArray:
    """Return w* with ‖∇F̂(w*)‖ < 1e-8: L-BFGS to come near, then Newton's method, as in the paper."""

    def objective(weights: FloatArray) -> tuple[float, FloatArray]:
        means = [np.mean(loss.values(x @ weights.reshape(x.shape[1], -1), y)) for x, y in silos]
        return float(np.mean(means)), silo_gradients(loss, silos, weights).mean(axis=0)

    start = np.zeros(silos[0][0].shape[1] * loss.outputs)
    weights: FloatArray = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 2000}).x
    for _ in range(100):
        gradient = objective(weights)[1]
        norm = np.linalg.norm(gradient)
        if norm < OPTIMUM_TOLERANCE:
            return weights
        direction = np.linalg.lstsq(_hessian(loss, silos, weights), gradient, rcond=1e-12)[0]
        # −H⁻¹∇F̂ descends on ‖∇F̂‖², so some step along it does; near w* that is the full step.
        steps = [weights - 0.5**halvings * direction for halvings in range(30)]
        weights = next((step for step in steps if np.linalg.norm(objective(step)[1]) < norm), steps[-1])
    raise TrainingError(
        "The minimum over all silos was not reached, perhaps because there is none (separable classes) or because "
        "features differ too much in scale. Scale the features by public bounds, or drop redundant ones."
    )


def _hessian(loss: Loss, silos: Silos, weights: FloatArray) -> FloatArray:
    """Return ∇²F̂: records' x xᵀ ⊗ ∂²φ/∂u², the latter by central differences of the residuals."""
    size = len(weights)
    total = np.zeros((size, size))
    for features, targets in silos:
        scores = features @ weights.reshape(features.shape[1], -1)
        blocks = np.empty((features.shape[1], scores.shape[1], features.shape[1], scores.shape[1]))
        for place in range(scores.shape[1]):
            shift = np.zeros_like(scores)
            shift[:, place] = 1e-5
            change = (loss.residuals(scores + shift, targets) - loss.residuals(scores - shift, targets)) / 2e-5
            for output in range(scores.shape[1]):
                blocks[:, output, :, place] = features.T @ (features * change[:, output, None]) / len(targets)
        total += blocks.reshape(size, size) / len(silos)
    return total


def _cut(rows: Rows, sizes: Sequence[int] | NDArray[np.int64]) -> list[Rows]:
    """Cut into consecutive parts of the given sizes, and one more with the rest."""
    return np.split(rows, np.cumsum(sizes))


def _require_room(records: int, silos: int) -> None:
    if not 1 <= silos <= records:
        raise TrainingError(f"{records} records cannot be split over {silos} silos. Ask for 1 to {records}.")
