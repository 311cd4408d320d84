"""The trained model: weights, their plan and guarantees, and predictions with probabilities and intervals."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from pydantic import Field, model_validator

from ringfence.errors import WHY, MessageError, OutputError, PlanError, os_error_as, require_extra
from ringfence.estimates.comparison import Choice
from ringfence.estimates.intervals import critical_value
from ringfence.estimates.metrics import CLIPPED, EvaluationReport
from ringfence.model.export import LinearFunction, csv_text
from ringfence.model.statement import SiloGuarantee, Statement
from ringfence.protocol import EmbeddedPlan, FloatArray, Plan, Public, Schema, pack, unpack
from ringfence.protocol.documents.messages import Vector
from ringfence.protocol.losses.targets import shifted, split_targets
from ringfence.protocol.schema.encoding import encode_features, encode_offsets
from ringfence.sources import read_table
from ringfence.sources.cells import Table, as_cells
from ringfence.storage.files import LARGE_LIMIT, read_file

Columns = Mapping[str, list[str] | list[float]]
"""Predicted columns of a table's rows, by name."""

Predictions: TypeAlias = list[str] | list[float] | list[list[float]]
"""The prediction for every row: a class, a number, or a number for each of several targets."""

LOWER, UPPER = "lower", "upper"
"""The columns of the ends of a prediction interval."""


class Predictor(Public):
    """Weights of the plan's scaled features, and predictions with them."""

    plan: EmbeddedPlan
    weights: Vector
    knots: Vector | None = None
    """The knots of the plan's open curves, as a survey placed them."""

    @model_validator(mode="after")
    def _fits_its_plan(self) -> "Predictor":
        """Refuse a model's weights that are not finite, or do not have its plan's dimension."""
        weights = unpack(self.weights)
        if weights.shape != (self.plan.dimension,) or not np.all(np.isfinite(weights)):
            raise ValueError("the weights do not have the plan's dimension, or are not finite")
        if self.knots is not None:
            self.plan.data.placed(unpack(self.knots))
        return self

    @cached_property
    def data(self) -> Schema:
        """The schema that encodes rows for the model: the plan's, with the knots that were found."""
        data = self.plan.data
        return data.placed(data.even_knots_together if self.knots is None else unpack(self.knots))

    @property
    def placed_plan(self) -> Plan:
        """The plan of the model, with the schema that encodes its rows."""
        return self.plan.model_copy(update={"data": self.data}) if self.plan.data.open_curves else self.plan

    @property
    @abstractmethod
    def error_spread(self) -> float | None:
        """The root mean squared error of predictions, in the target's units, if the document has one."""

    @property
    def coefficients(self) -> FloatArray:
        """The predictor's weights as a matrix: one row per feature of the schema, one column per output."""
        return self.plan.loss.matrix(unpack(self.weights), self.data.width)

    def by_size(self) -> list[tuple[str, str, float]]:
        """Return every weight of a scaled feature, with the feature's and the output's names, the largest first."""
        data, loss = self.data, self.plan.loss
        outputs = loss.output_names(data.targets, data.target_column.classes, data.target_scaling[0])
        rows = []
        for place, (name, weights) in enumerate(zip(data.feature_names, self.coefficients, strict=True), 1):
            is_shared = loss.shares_slopes and place < data.width  # all outputs have the same one
            named = [(self._target, weights[0])] if is_shared else zip(outputs, weights, strict=True)
            rows += [(name, output, float(weight)) for output, weight in named]
        return sorted(rows, key=lambda row: -abs(row[2]))

    def linear(self) -> LinearFunction:
        """Return the model as plain coefficients in the table's own units, to use or export elsewhere."""
        return LinearFunction.of(self.data, self.plan.loss, self.coefficients)

    def scores(self, features: FloatArray, offsets: FloatArray | None = None) -> FloatArray:
        """Return the model's linear scores of encoded features, with the rows' offsets if the schema names any."""
        scores: FloatArray = features @ self.coefficients
        return scores if offsets is None else scores + offsets[:, None]

    def predict_encoded(self, features: FloatArray, offsets: FloatArray | None = None) -> FloatArray:
        """Return predictions in the encoding of the target: scaled number, ±1, or class index."""
        return self.plan.loss.predictions(self.scores(features, offsets))

    def predict(self, table: Table, *, source: str = "the table") -> Predictions:
        """Predict the target of every row of a table of text cells, in the target's own units; of several, a list."""
        return self._in_target_units(self._scored(table, source))

    def predict_csv(self, path: Path) -> Predictions:
        """Predict the target of every row of a table's file; the target's column need not be there."""
        return self.predict(read_table(path), source=path.name)

    def predict_columns(
        self,
        table: Table,
        *,
        source: str = "the table",
        probabilities: bool = False,
        coverage: float | None = None,
        upper: "Predictor | None" = None,
    ) -> Columns:
        """Predict every row's target, with each class's probability, or an interval, if they are asked for.

        For the squared loss, an interval assumes Gaussian errors with the RMSE of the private evaluation. Two quantile
        models, this one and `upper`, give an interval whose coverage is the difference of their quantiles.
        """
        scores = self._scored(table, source)
        columns = self._prediction_columns(scores)
        if probabilities:
            columns |= self._probabilities(scores)
        if upper is not None:
            if coverage is not None:
                raise PlanError("The coverage of two quantile models follows from their quantiles: remove --interval.")
            columns |= self._quantile_interval(upper, table, source)
        elif coverage is not None:
            reach = self._half_width(coverage)
            middle = self.in_units(self.plan.loss.predictions(scores))
            columns |= {LOWER: (middle - reach).tolist(), UPPER: (middle + reach).tolist()}
        return columns

    def in_units(self, scaled: FloatArray) -> FloatArray:
        """Return scaled numeric targets in the target's own units; of several, a column each."""
        unit, offset = np.array(self.data.target_scalings).T
        result: FloatArray = scaled * unit + offset
        return result

    def evaluate(self, features: FloatArray, targets: FloatArray) -> dict[str, float]:
        """Return accuracy, or the root mean squared error in the target's units, for encoded targets, clamped or not.

        Not private by itself.
        """
        return measured(self.plan, shifted(self.scores(features), targets), targets)

    @property
    def _target(self) -> str:
        """The name of the column that a model predicts."""
        return self.data.target or ""

    def _scored(self, table: Table, source: str) -> FloatArray:
        """Return the scores of a table of text cells, as the schema encodes it."""
        features = encode_features(self.data, table, source=source)
        return self.scores(features, encode_offsets(self.data, table, source=source))

    def _prediction_columns(self, scores: FloatArray) -> dict[str, list[str] | list[float]]:
        """Return a column of predictions for every target."""
        if self.plan.loss.target_kind != "numbers":
            return {self._target: self._in_target_units(scores)}  # type: ignore[dict-item]
        found = self.in_units(self.plan.loss.predictions(scores))
        return dict(zip(self.data.targets, found.T.tolist(), strict=True))

    def _in_target_units(self, scores: FloatArray) -> Predictions:
        """Return a model's predictions from scores: numbers in the target's units, or names of classes."""
        found = self.plan.loss.predictions(scores)
        column = self.data.target_column
        if column.is_number:
            return self.in_units(found).tolist()  # type: ignore[no-any-return]
        indices = found if self.plan.loss.target_kind == "class" else (found + 1.0) / 2.0
        return [column.classes[int(index)] for index in indices]

    def _probabilities(self, scores: FloatArray) -> dict[str, list[float]]:
        """Return the columns of predicted probabilities, one per class."""
        column, loss = self.data.target_column, self.plan.loss
        if not loss.has_probabilities:
            raise PlanError(
                f"A model of the {loss.name} loss gives no probabilities: remove --probabilities, or train with a "
                "loss that has them (logistic, softmax, ordinal)."
            )
        names = [f"{self._target}={category}" for category in column.classes]
        return dict(zip(names, loss.probabilities(scores).T.tolist(), strict=True))

    def _half_width(self, coverage: float) -> float:
        """Return half the length of a prediction interval with Gaussian errors."""
        if not 0.0 < coverage < 1.0:
            raise PlanError(f"The coverage of an interval must be between 0 and 1, such as 0.9, not {coverage:g}.")
        if self.plan.loss.target_kind == "numbers":
            raise PlanError(
                "Intervals are for a single target, but this model predicts several: train one model per target."
            )
        if not self.plan.loss.is_squared_error:
            raise PlanError(
                f"A model of the {self.plan.loss.name} loss does not estimate how far off its predictions are: train "
                "two models with --loss pinball, at a low and a high --quantile, and name the second with --upper."
            )
        if self.error_spread is None:
            raise PlanError(
                "This model has no private RMSE to compute an interval from: train it with held-out records, and with "
                "enough of them, or a large enough epsilon, for a usable evaluation."
            )
        return critical_value(coverage) * self.error_spread

    def _quantile_interval(self, upper: "Predictor", table: Table, source: str) -> dict[str, list[float]]:
        """Return the interval columns between predictions of a lower and an upper quantile's model."""
        if self.data != upper.data:
            raise PlanError("The two models were trained with different schemas or targets: name two that share both.")
        low, high = self.plan.loss.aimed_share, upper.plan.loss.aimed_share
        if low is None or high is None or not low < high:
            raise PlanError(
                "An interval from two models needs two with the pinball loss, the first at the lower quantile: train "
                "them with --loss pinball --quantile 0.05 and --quantile 0.95, for example."
            )
        ends = np.stack([self.in_units(one.plan.loss.predictions(one._scored(table, source))) for one in (self, upper)])
        ends.sort(axis=0)  # noise may let them cross
        return {LOWER: ends[0].tolist(), UPPER: ends[1].tolist()}


OWN_KIND = b'"ringfence-own-model"'
"""What stands in a silo's own model, and in no federation's (`personal`)."""


class Model(Predictor):
    """A linear model in the plan's scaled features. It is as public as the messages it was computed from.

    It is saved as JSON: loading one runs no code.
    """

    kind: Literal["ringfence-model"] = "ringfence-model"
    format: Literal[1] = 1
    rounds: Mapping[str, int] = Field(default_factory=dict)
    """How many rounds each silo answered."""
    guarantees: Mapping[str, SiloGuarantee] = Field(default_factory=dict)
    """What each silo's ledger showed when the run had ended; none where the maker of the model saw no ledger."""
    evaluation: EvaluationReport | None = None
    """How good it is, as the plan's last stage asked the held-out records: private, with intervals."""
    choice: Choice | None = None
    """Which candidates it was chosen from, if it was: the guarantees are then of all of them together."""

    @classmethod
    def of(
        cls,
        plan: Plan,
        weights: FloatArray,
        rounds: Mapping[str, int],
        *,
        knots: FloatArray | None = None,
        **others: Any,
    ) -> "Model":
        """Make a model of learned weights and of the knots of its curves; `others` are its other fields."""
        placed = None if knots is None or not knots.size else pack(knots)
        return cls(plan=plan, weights=pack(weights), rounds=dict(rounds), knots=placed, **others)

    @property
    def statement(self) -> Statement | None:
        """The silos' guarantees; None if the model's maker saw no ledger."""
        names = [terms.name for terms in self.plan.silos if terms.name in self.guarantees]
        others = () if self.choice is None else self.choice.plans
        return Statement(self.plan, {name: self.guarantees[name] for name in names}, others) if names else None

    @property
    def error_spread(self) -> float | None:
        """The RMSE of the private evaluation; of clipped errors, where noise hides how large the others are."""
        metrics = () if self.evaluation is None else self.evaluation.together.metrics
        known = {metric.name: metric.value for metric in metrics if metric.value is not None}
        return known.get("RMSE", known.get("RMSE" + CLIPPED))

    def save(self, path: Path) -> None:
        """Write the model to a file."""
        with os_error_as(OutputError, f"The model could not be written to {path}: {WHY}."):
            path.write_bytes(self.canonical())

    @classmethod
    def load(cls, path: Path) -> "Model":
        """Read a model from a file."""
        content = read_file(path, "model file", MessageError, LARGE_LIMIT)
        if OWN_KIND in content:
            raise MessageError(
                f"{path} is a silo's own model, which is NOT private: name the federation's model. `ringfence "
                "predict` reads both."
            )
        return cls.parse(content, error=MessageError, limit=LARGE_LIMIT, source=str(path))


def measured(plan: Plan, scores: FloatArray, targets: FloatArray, counts: FloatArray | None = None) -> dict[str, float]:
    """Return the accuracy of predictions from scores, or the RMSE in the target's units; scaled for several targets."""
    found, own = plan.loss.predictions(scores), split_targets(targets)
    if plan.loss.target_kind in ("label", "class"):
        return {"accuracy": float(np.average(found == own.numbers, weights=counts))}
    with np.errstate(over="ignore"):  # a target that is not clamped may be any number
        if plan.loss.target_kind == "numbers":
            squares = np.mean((found - own.targets) ** 2, axis=1)
            return {"scaled rmse": float(np.sqrt(np.average(squares, weights=counts)))}
        error = np.sqrt(np.average((found - own.numbers) ** 2, weights=counts))
        return {"rmse": float(error * plan.data.target_scaling[0])}


def with_ids(columns: Columns, table: Table, name: str, *, source: str) -> Columns:
    """Return the columns of predictions after a column of the table that identifies its rows."""
    if name not in table:
        raise OutputError(
            f"{source} has no column '{name}' to copy: correct --id, or remove it. The columns are {', '.join(table)}."
        )
    if name in columns:
        raise OutputError(f"'{name}' is also the name of a predicted column: copy another one, or rename it.")
    return {name: as_cells(table[name]).texts(), **columns}


def write_predictions(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    """Write columns of predictions as a CSV or a Parquet file, by the file name's extension."""
    with os_error_as(OutputError, f"{path} could not be written: {WHY}. Name another file."):
        if path.suffix == ".parquet":
            require_extra("data", "A Parquet file", "pyarrow", error=OutputError)
            import pyarrow.parquet

            rows = pyarrow.table({name: list(values) for name, values in columns.items()})
            pyarrow.parquet.write_table(rows, path)
        else:
            path.write_text(csv_text(columns), encoding="utf-8")
