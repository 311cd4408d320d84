"""The trained model: weights, the plan they came from, and what the silos were promised for them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field, field_validator, model_validator

from ringfence.errors import MessageError, OutputError
from ringfence.export import LinearFunction
from ringfence.metrics.choice import Choice
from ringfence.metrics.report import EvaluationReport
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.encoding import Table, encode_features, read_csv
from ringfence.protocol.messages import Vector, pack, unpack
from ringfence.protocol.plan import EmbeddedPlan, Plan
from ringfence.protocol.public import Public
from ringfence.protocol.schema import Numeric
from ringfence.statement import SiloGuarantee, Statement
from ringfence.storage.files import read_file


class Model(Public):
    """A linear model in the plan's scaled features. It is as public as the messages it was computed from.

    It is saved as JSON: loading one runs no code. One of format 1, which has an object as its plan and no `format`, is
    read as if it were of today's format, and so saved.
    """

    newest_format: ClassVar[int] = 2
    later_fields: ClassVar[frozenset[str]] = frozenset({"evaluation", "choice"})

    kind: Literal["ringfence-model"] = "ringfence-model"
    format: Literal[2] = 2
    plan: EmbeddedPlan
    weights: Vector
    rounds: Mapping[str, int] = Field(default_factory=dict)
    """How many rounds each silo answered."""
    guarantees: Mapping[str, SiloGuarantee] = Field(default_factory=dict)
    """What each silo's ledger showed when the run had ended; none where whoever made the model saw no ledger."""
    evaluation: EvaluationReport | None = None
    """How good it is, as the plan's last stage asked the held-out records: private, with intervals."""
    choice: Choice | None = None
    """Which candidates it was chosen from, if it was: the guarantees are then of all of them together."""

    @field_validator("format", mode="before")
    @classmethod
    def _read_format_1(cls, stated: Any) -> Any:
        return 2 if type(stated) is int and stated == 1 else stated

    @model_validator(mode="after")
    def _fits_its_plan(self) -> "Model":
        weights = unpack(self.weights)
        if weights.shape != (self.plan.dimension,) or not np.all(np.isfinite(weights)):
            raise ValueError("the weights do not have the plan's dimension, or are not finite")
        return self

    @classmethod
    def of(
        cls,
        plan: Plan,
        weights: FloatArray,
        rounds: Mapping[str, int],
        guarantees: Mapping[str, SiloGuarantee] | None = None,
        evaluation: EvaluationReport | None = None,
        choice: Choice | None = None,
    ) -> "Model":
        """Make a model of learned weights."""
        return cls(
            plan=plan,
            weights=pack(weights),
            rounds=dict(rounds),
            guarantees=dict(guarantees or {}),
            evaluation=evaluation,
            choice=choice,
        )

    @property
    def statement(self) -> Statement | None:
        """What the silos' records were promised; None where whoever made the model saw no ledger."""
        names = [terms.name for terms in self.plan.silos if terms.name in self.guarantees]
        others = () if self.choice is None else self.choice.plans
        return Statement(self.plan, {name: self.guarantees[name] for name in names}, others) if names else None

    @property
    def coefficients(self) -> FloatArray:
        """The weights as a matrix: one row per feature of the schema, one column per output."""
        return unpack(self.weights).reshape(self.plan.data.width, self.plan.loss.outputs)

    def linear(self) -> LinearFunction:
        """Return the model as plain coefficients in the table's own units, to use or export elsewhere."""
        return LinearFunction.of(self.plan.data, self.plan.loss, self.coefficients)

    def scores(self, features: FloatArray) -> FloatArray:
        """Return the linear scores of encoded features."""
        scores: FloatArray = features @ self.coefficients
        return scores

    def predict_encoded(self, features: FloatArray) -> FloatArray:
        """Return predictions in the encoding of the target: scaled number, ±1, or class index."""
        scores = self.scores(features)
        if self.plan.loss.target_kind == "class":
            classes: FloatArray = np.argmax(scores, axis=1).astype(np.float64)
            return classes
        if self.plan.loss.target_kind == "label":
            scores = np.where(scores > 0, 1.0, -1.0)
        return scores.reshape(-1)

    def predict(self, table: Table, *, source: str = "the table") -> list[str] | list[float]:
        """Predict the target of every row of a table of text cells, in the target's own units."""
        predicted = self.predict_encoded(encode_features(self.plan.data, table, source=source))
        column = self.plan.data.target_column
        if isinstance(column, Numeric):
            return [float(value) for value in self.in_units(predicted)]
        indices = predicted if self.plan.loss.target_kind == "class" else (predicted + 1.0) / 2.0
        return [column.categories[int(index)] for index in indices]

    def predict_csv(self, path: Path) -> list[str] | list[float]:
        """Predict the target of every row of a CSV file; the target's column need not be there."""
        return self.predict(read_csv(path), source=path.name)

    def in_units(self, scaled: FloatArray) -> FloatArray:
        """Return scaled numeric targets in the target's own units."""
        unit, offset = self.plan.data.target_scaling
        return scaled * unit + offset

    def evaluate(self, features: FloatArray, targets: FloatArray) -> dict[str, float]:
        """Return accuracy, or the root mean squared error in the target's units. Not private by itself."""
        predicted = self.predict_encoded(features)
        if self.plan.loss.target_kind == "number":
            unit, _ = self.plan.data.target_scaling
            return {"rmse": float(np.sqrt(np.mean((predicted - targets) ** 2)) * unit)}
        return {"accuracy": float(np.mean(predicted == targets))}

    def save(self, path: Path) -> None:
        """Write the model to a file."""
        try:
            path.write_bytes(self.canonical())
        except OSError as problem:
            raise OutputError(f"The model could not be written to {path}: {problem.strerror}.") from None

    @classmethod
    def load(cls, path: Path) -> "Model":
        """Read a model from a file."""
        return cls.parse(read_file(path, "model file", MessageError), error=MessageError, limit=2**30)
