"""A trained model as anybody else's software can use it: plain coefficients, a table, a scikit-learn estimator.

All of them are the model's linear function in the units of the table, without the schema's clamping and `radius`: the
same scores as the model's own for rows within the public bounds, and a straight line beyond, where the model's own
prediction stays what it is at the bound.
"""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.encoding import Table, encode_features
from ringfence.protocol.losses import Loss
from ringfence.protocol.schema import Categorical, Numeric, Schema


@dataclass(frozen=True)
class LinearFunction:
    """scores = matrix @ coefficients.T + intercepts, for a matrix of the table's own numbers.

    The matrix has a column per numeric feature, one per category ("ward=a": 1 or 0) and one per ordered feature (the
    category's place, from 0), named in `features`. The scores are the target itself, in its units; or one number that
    is positive for the second of two `classes`; or one number per class, of which the largest wins.
    """

    schema: Schema
    loss: Loss
    features: tuple[str, ...]
    coefficients: FloatArray
    intercepts: FloatArray

    @classmethod
    def of(cls, schema: Schema, loss: Loss, weights: FloatArray) -> "LinearFunction":
        """Return the function of a model's weights, which have a row per scaled feature.

        A scaled feature is (number − offset)/unit, so its weight w becomes the coefficient w/unit, and −w·offset/unit
        goes to the intercept. A scaled target t is t·unit + offset.
        """
        offsets, units = _scaling(schema)
        count = len(units)
        coefficients = weights[:count] / units[:, None]
        intercepts = schema.intercept * weights[count:].sum(axis=0) - offsets @ coefficients
        unit, offset = schema.target_scaling
        return cls(schema, loss, schema.feature_names[:count], unit * coefficients.T, unit * intercepts + offset)

    @property
    def classes(self) -> tuple[str, ...]:
        """The target's categories, or none where it is a number."""
        column = self.schema.target_column
        return column.categories if isinstance(column, Categorical) else ()

    def matrix(self, table: Table, *, source: str = "the table") -> FloatArray:
        """Return the matrix of a table of text cells; bad cells are refused as everywhere, by row and column."""
        plain = self.schema.model_copy(update={"radius": None, "intercept": 0.0})
        offsets, units = _scaling(self.schema)
        matrix: FloatArray = encode_features(plain, table, source=source) * units + offsets
        for place, name in enumerate(self.features):
            column = self.schema.features.get(name)
            if isinstance(column, Numeric):  # as it stands, not as clamped
                filled = [cell or repr(column.missing) for cell in table[name]]
                matrix[:, place] = np.array(filled, dtype=np.float64)
        return matrix

    def to_json(self) -> str:
        """Return one JSON object: `target`, `classes`, `features`, and per output `coefficients` and an intercept."""
        content = {
            "kind": "ringfence-coefficients",
            "target": self.schema.target,
            "loss": self.loss.name,
            "classes": list(self.classes),
            "features": list(self.features),
            "coefficients": self.coefficients.tolist(),
            "intercepts": self.intercepts.tolist(),
        }
        return json.dumps(content, indent=2, allow_nan=False) + "\n"

    def to_csv(self) -> str:
        """Return a table: a line per feature and last the intercept; a column per output."""
        one = [self.schema.target] if not self.classes else [self.classes[1]]
        outputs = one if len(self.intercepts) == 1 else list(self.classes)
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow(["feature", *outputs])
        for name, column in zip(self.features, self.coefficients.T, strict=True):
            rows.writerow([name, *map(repr, column.tolist())])
        rows.writerow(["(intercept)", *map(repr, self.intercepts.tolist())])
        return text.getvalue()

    def to_scikit_learn(self, classes: Sequence[Any] | None = None) -> Any:
        """Return a fitted LogisticRegression, LinearSVC or LinearRegression of scikit-learn with these coefficients.

        It predicts on the matrix, and names its columns. `classes` are the labels that it uses, in the order of the
        target's categories, if not these themselves.
        """
        from sklearn.linear_model import LinearRegression, LogisticRegression
        from sklearn.svm import LinearSVC

        if not self.classes:
            estimator = LinearRegression()
            estimator.coef_, estimator.intercept_ = self.coefficients[0].copy(), float(self.intercepts[0])
        else:
            estimator = LogisticRegression() if self.loss.has_probabilities else LinearSVC()
            estimator.coef_, estimator.intercept_ = self.coefficients.copy(), self.intercepts.copy()
            estimator.classes_ = np.asarray(self.classes if classes is None else classes)
        estimator.n_features_in_ = len(self.features)
        estimator.feature_names_in_ = np.array(self.features, dtype=object)
        return estimator


def _scaling(schema: Schema) -> tuple[FloatArray, FloatArray]:
    """Return what each scaled feature, the constant left out, calls 0 and 1 in the table's own numbers."""
    offsets, units = np.array([pair for column in schema.features.values() for pair in column.scaling]).T
    return offsets, units
