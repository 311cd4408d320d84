"""Export of a trained model for other software: plain coefficients, a table, scikit-learn, ONNX.

All but ONNX are the model's linear function in the units of the table, without the schema's clamping and `radius`: the
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

from ringfence.errors import OutputError
from ringfence.protocol import FloatArray, Loss, Schema
from ringfence.protocol.schema.encoding import read_cells
from ringfence.sources.cells import Table


@dataclass(frozen=True)
class LinearFunction:
    """scores = matrix @ coefficients.T + intercepts, for a matrix of the table's own numbers.

    The matrix has a column per numeric feature, one per category ("ward=a": 1 or 0) and one per ordered feature (the
    category's place, from 0), named in `features`, and, of maps of columns, one per feature that they make. The scores
    are the target itself, in its units; or the logarithm of its mean (`link`), per unit of exposure; or one number that
    is positive for the second of two `classes`; or one per class, of which the largest wins; or one for each of
    `outputs`.
    """

    schema: Schema
    loss: Loss
    features: tuple[str, ...]
    coefficients: FloatArray
    intercepts: FloatArray

    @classmethod
    def of(cls, schema: Schema, loss: Loss, weights: FloatArray) -> "LinearFunction":
        """Return a model's weights as a linear function to export; they have a row per scaled feature.

        A scaled feature is (number − offset)/unit, so its weight w becomes the coefficient w/unit, and −w·offset/unit
        goes to the intercept. A scaled target t is t·unit + offset.
        """
        offsets, units = _scaling(schema)
        count = len(units)
        coefficients = weights[:count] / units[:, None]
        intercepts = schema.intercept * weights[count:].sum(axis=0) - offsets @ coefficients
        unit, offset = np.array([loss.score_units(*scaling) for scaling in schema.target_scalings]).T
        offset = offset - unit * schema.offset_range[0]
        return cls(
            schema, loss, schema.feature_names[:count], unit[:, None] * coefficients.T, unit * intercepts + offset
        )

    @property
    def classes(self) -> tuple[str, ...]:
        """The target's categories of an exported model, or none where it is a number."""
        return self.schema.target_column.classes

    @property
    def outputs(self) -> list[str]:
        """A name for every score of an exported model."""
        return self.loss.output_names(self.schema.targets, self.classes, self.schema.target_scaling[0])

    def matrix(self, table: Table, *, source: str = "the table") -> FloatArray:
        """Return the matrix of a table for an exported model; bad cells are refused by row and column."""
        readings = read_cells(self.schema.features, table, source=source)
        return np.hstack([block.plain(table, readings) for block in self.schema.blocks])

    def to_json(self) -> str:
        """Return one JSON object: `target`, `classes`, `features`, and per output `coefficients` and an intercept."""
        content: dict[str, Any] = {
            "kind": "ringfence-coefficients",
            "target": self.schema.target,
            "loss": self.loss.name,
            "classes": list(self.classes),
            "features": list(self.features),
            "coefficients": self.coefficients.tolist(),
            "intercepts": self.intercepts.tolist(),
        }
        if self.loss.link != "identity":
            content["link"] = self.loss.link
        if self.schema.maps:
            content["maps"] = [each.model_dump(mode="json") for each in self.schema.maps]
        if self.loss.shares_slopes or self.schema.more_targets is not None:
            content["outputs"] = self.outputs
        return json.dumps(content, indent=2, allow_nan=False) + "\n"

    def to_csv(self) -> str:
        """Return a table: a line per feature and last the intercept; a column per output."""
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow(["feature", *self.outputs])
        for name, column in zip(self.features, self.coefficients.T, strict=True):
            rows.writerow([name, *map(repr, column.tolist())])
        rows.writerow(["(intercept)", *map(repr, self.intercepts.tolist())])
        return text.getvalue()

    def to_scikit_learn(self, classes: Sequence[Any] | None = None) -> Any:
        """Return the fitted model of scikit-learn with these coefficients, of the kind that the loss names.

        It predicts on the matrix, and names its columns. `classes` are the labels that it uses, in the order of the
        target's categories, if not these themselves.
        """
        from sklearn import linear_model, svm

        if not self.loss.scikit_learn:
            raise OutputError(
                f"scikit-learn has no model with the {self.loss.name} loss: export the coefficients as JSON or CSV."
            )
        estimator: Any = getattr(linear_model, self.loss.scikit_learn, None) or getattr(svm, self.loss.scikit_learn)
        estimator = estimator()
        if not self.classes and self.schema.more_targets is None:
            estimator.coef_, estimator.intercept_ = self.coefficients[0].copy(), float(self.intercepts[0])
            if self.loss.link == "log":
                estimator._base_loss = estimator._get_loss()  # which `predict` takes its link from
        else:
            estimator.coef_, estimator.intercept_ = self.coefficients.copy(), self.intercepts.copy()
            if self.classes:
                estimator.classes_ = np.asarray(self.classes if classes is None else classes)
        estimator.n_features_in_ = len(self.features)
        estimator.feature_names_in_ = np.array(self.features, dtype=object)
        return estimator

    def to_onnx(self) -> bytes:
        """Return an ONNX graph that predicts as the model itself does, with the schema's clamping and `radius`.

        Inputs: `features`, a matrix of doubles as `matrix` makes it, in which NaN stands for what is missing; and
        `offset`, a number per row, if the schema names an offset or an exposure. Outputs: `prediction`, numbers in the
        target's units or names of classes; `scores`; and `probabilities` where the loss has them. The model's metadata
        names the matrix's columns.
        """
        from ringfence.model.onnx import onnx_graph

        return onnx_graph(self, *_scaling(self.schema))


def _scaling(schema: Schema) -> tuple[FloatArray, FloatArray]:
    """Return the offset and unit of each scaled feature but the constant, to export in the table's own numbers."""
    offsets, units = np.array([pair for block in schema.blocks for pair in block.scaling]).T
    return offsets, units
