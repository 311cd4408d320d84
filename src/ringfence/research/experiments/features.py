"""`ringfence reproduce features`: ten digits from public features of images, trusting nobody or a shuffler.

A model of pixels is what a linear model is worst at. Here every image becomes public numbers first: a scattering
transform, in which nothing is learnt, and its principal components in 5,000 public images, which no silo holds and
which are not the test set. What is trained on them is the planner's default plan for a `vector` column; nothing is
chosen by looking at private records or at test images.
"""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from ringfence.planning.propose import propose_for
from ringfence.planning.request import PlanRequest
from ringfence.protocol import Categorical, FloatArray, Plan, Schema, Softmax, Vector
from ringfence.protocol.schema.encoding import encode_features
from ringfence.research import datasets
from ringfence.research.experiments import personal
from ringfence.research.experiments.features_page import (
    ALIKE,
    EPSILONS,
    GATES,
    NAME,
    NO_EPSILON,
    NONE,
    SKEWED,
    write_page,
)
from ringfence.research.experiments.sweeps import SweepPart, Watch, run_parts, sorted_by
from ringfence.research.experiments.trust import NOBODY, SHUFFLER, stand_in_keys
from ringfence.research.markdown import command
from ringfence.simulation import trials
from ringfence.simulation.cells import Cell, Row, cells
from ringfence.sources.cells import ArrayCells
from ringfence.sources.features import PublicComponents, Scattering
from ringfence.storage.cache import cache_folder

DIGITS, SILOS, DELTA, POWER = 10, 10, 1e-5, 0.9
RUNS = 10
CHUNK = 5000
"""Images whose scattering features are held at once."""

Part = tuple[FloatArray, FloatArray]


@dataclass(frozen=True)
class Size:
    """How many images are public, in all silos together, and tested; and how many numbers each becomes."""

    public: int
    private: int
    tested: int
    components: int
    transform: Scattering


FULL = Size(5000, 55_000, 10_000, 200, Scattering(side=28, scales=2, angles=8, groups=27))
QUICK = Size(400, 2000, 500, 20, Scattering(side=28, scales=2, angles=2, groups=3))


@dataclass(frozen=True, eq=False, repr=False)
class Problem:
    """Encoded images and their digits: those that silos divide, and those that test."""

    schema: Schema
    private: Part
    test: Part


def reproduce(
    out: Path, *, data_dir: Path | None = None, quick: bool = False, watch: Watch = lambda done, total: None
) -> Path:
    """Run all cells that `out` does not hold yet, and write cells.csv, a figure and index.md beside them."""
    part = SweepPart(partial(_task, quick, data_dir), wanted(quick=quick), ("panel", "trusted", "epsilon"))
    (rows,) = run_parts(NAME, [part], out, quick=quick, watch=watch).values()
    ordered = sorted_by(rows, ("panel", "trusted", "epsilon", "trial"))
    return write_page(ordered, out, size=_words(QUICK if quick else FULL), line=command(NAME, out, quick))


def wanted(*, quick: bool) -> list[Cell]:
    """Return the cells: simulated runs of every panel, one run through real gates, and a fit without privacy."""
    panels, epsilons = ((ALIKE,), EPSILONS[-1:]) if quick else ((ALIKE, SKEWED), EPSILONS)
    private = cells({"panel": panels, "trusted": (NOBODY, SHUFFLER), "epsilon": epsilons}, 2 if quick else RUNS)
    gates = cells({"panel": (ALIKE,), "trusted": (GATES,), "epsilon": epsilons[-1:]}, 1)
    return [*private, *gates, *cells({"panel": (ALIKE,), "trusted": (NONE,), "epsilon": (NO_EPSILON,)}, 1)]


def _words(size: Size) -> str:
    return (
        f"{size.private:,} of MNIST's 60,000 training images are in {SILOS} silos, {size.public:,} others are public, "
        f"and {size.tested:,} of the official test images serve as the test set. A scattering transform "
        f"(`{size.transform.name}`: {size.transform.channels} channels, normalised in {size.transform.groups} groups "
        f"to mean 0 and variance 1 in every image) turns each image into {size.transform.length:,} numbers, which are "
        f"projected on the {size.components} leading principal components of the public images, divided by the "
        f"power {POWER:g} of their public standard deviation and clipped to the median public norm."
    )


def _task(quick: bool, data_dir: Path | None, block: list[Cell]) -> list[Row]:
    """Run one plan with the noise of every trial."""
    problem = build(QUICK if quick else FULL, data_dir)
    panel, trusted, epsilon = str(block[0]["panel"]), str(block[0]["trusted"]), float(block[0]["epsilon"])
    silos = divided(problem.private, panel)
    if trusted == NONE:
        return [_row(problem, NO_EPSILON, fitted(problem.private), 0)]
    if trusted == GATES:
        whole = personal.Problem(problem.schema, Softmax(classes=DIGITS), silos, silos, error, DELTA)
        return [_row(problem, *personal.federation(whole, epsilon), plan_for(problem, silos, trusted, epsilon).steps)]
    plan = plan_for(problem, silos, trusted, epsilon)
    charged = max(terms.guarantees[0].epsilon for terms in plan.silos)
    learned = trials.simulated_weights(plan, silos, [int(cell["trial"]) for cell in block])
    return [_row(problem, charged, weights, plan.steps) for weights in learned]


def _row(problem: Problem, charged: float, weights: FloatArray, rounds: int) -> Row:
    features, digits = problem.test
    scores = features @ weights.reshape(features.shape[1], -1)
    return {"true_epsilon": charged, "rounds": rounds, "error": error(scores, digits)}


def error(scores: FloatArray, digits: FloatArray) -> float:
    """Return the share of images that are taken for another digit."""
    return float(np.mean(np.argmax(scores, axis=1) != digits))


def plan_for(problem: Problem, silos: Sequence[Part], trusted: str, epsilon: float) -> Plan:
    """Return the planner's default plan."""
    sizes = {f"silo{number}": len(digits) for number, (_, digits) in enumerate(silos)}
    request = PlanRequest(epsilon=epsilon, delta=DELTA, held_out=0.0, run=NAME, curves=0)
    if trusted == SHUFFLER:
        request = PlanRequest(
            epsilon=epsilon, delta=DELTA, held_out=0.0, run=NAME, trust="shuffler", keys=stand_in_keys(list(sizes))
        )
    return propose_for(request, problem.schema, sizes).plan


def divided(private: Part, panel: str) -> list[Part]:
    """Deal images out at random; or give silo i half of digit i's images, and half of the next digit's."""
    features, digits = private
    order = np.random.default_rng(1).permutation(len(digits))
    if panel == ALIKE:
        return [(features[own], digits[own]) for own in np.array_split(order, SILOS)]
    halves = {digit: np.array_split(order[digits[order] == digit], 2) for digit in range(DIGITS)}
    rows = [np.concatenate([halves[i][0], halves[(i + 1) % DIGITS][1]]) for i in range(SILOS)]
    return [(features[own], digits[own]) for own in rows]


def fitted(private: Part, *, ridge: float = 1e-6) -> FloatArray:
    """Return what softmax regression fits to all private images in one place, without privacy."""
    features, digits = private
    loss, width = Softmax(classes=DIGITS), features.shape[1]

    def objective(weights: FloatArray) -> tuple[float, FloatArray]:
        scores = features @ weights.reshape(width, -1)
        slope = features.T @ loss.residuals(scores, digits) / len(digits)
        value = float(np.mean(loss.values(scores, digits))) + ridge / 2 * float(weights @ weights)
        return value, slope.reshape(-1) + ridge * weights

    found: FloatArray = minimize(
        objective, np.zeros(width * DIGITS), jac=True, method="L-BFGS-B", options={"maxiter": 300}
    ).x
    return found


@lru_cache(maxsize=1)
def build(size: Size, data_dir: Path | None) -> Problem:
    """Return the published images' problem."""
    return problem_of(size, datasets.load_mnist(data_dir))


def problem_of(size: Size, mnist: datasets.Mnist) -> Problem:
    """Choose the public images, and turn all others into their components.

    These are kept in the user's cache, by the extractor's definition and the published images' checksums.
    """
    order = np.random.default_rng(0).permutation(len(mnist.training.images))
    public, private = np.sort(order[: size.public]), np.sort(order[size.public : size.public + size.private])
    held, digest = _components(size, mnist, public, private)
    name = f"{size.transform.name}, {size.components} public components"
    schema = Schema(
        columns={
            "digit": Categorical(categories=tuple(map(str, range(DIGITS)))),
            "image": Vector(length=size.components, norm=1.0, extractor=name, digest=digest),
        },
        target="digit",
    )
    features = encode_features(schema, {"image": ArrayCells(held)}, source="MNIST")
    digits = np.concatenate([mnist.training.labels[private], mnist.test.labels[: size.tested]]).astype(np.float64)
    cut = len(private)
    return Problem(schema, (features[:cut], digits[:cut]), (features[cut:], digits[cut:]))


def _components(
    size: Size, mnist: datasets.Mnist, public: NDArray[np.int64], private: NDArray[np.int64]
) -> tuple[NDArray[np.float32], str]:
    """Return the private and then the tested images' components, and the digest of the map."""
    known = hashlib.sha256(repr((size, size.transform.digest, POWER, *(f.sha256 for f in datasets.MNIST))).encode())
    kept = cache_folder() / "features" / f"{known.hexdigest()[:32]}.npz"
    if kept.is_file():
        with np.load(kept) as found:
            return found["numbers"], str(found["digest"])
    images = mnist.training.images
    turn = PublicComponents.fit(_scattered(size, images[public]), size.components, of=size.transform.name, power=POWER)
    wanted_images = (images[private], mnist.test.images[: size.tested])
    chunks = [part[at : at + CHUNK] for part in wanted_images for at in range(0, len(part), CHUNK)]
    numbers = np.concatenate([turn(_scattered(size, chunk)) for chunk in chunks])
    with suppress(OSError):  # what cannot be kept is computed again
        kept.parent.mkdir(parents=True, exist_ok=True)
        with kept.with_suffix(".part").open("wb") as file:
            np.savez(file, numbers=numbers, digest=np.array(turn.digest))
        kept.with_suffix(".part").replace(kept)
    return numbers, turn.digest


def _scattered(size: Size, images: NDArray[np.uint8]) -> NDArray[np.float32]:
    return size.transform(images / np.float32(255))
