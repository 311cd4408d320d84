"""A trained model as anybody else's software can use it: plain coefficients, a table, scikit-learn, ONNX.

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
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.encoding import read_cells
from ringfence.protocol.losses import Loss
from ringfence.protocol.schema import Schema
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
        """Return the function of a model's weights, which have a row per scaled feature.

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
        """The target's categories, or none where it is a number."""
        column = self.schema.target_column
        return column.classes

    @property
    def outputs(self) -> list[str]:
        """A name for every score."""
        return self.loss.output_names(self.schema.targets, self.classes, self.schema.target_scaling[0])

    def matrix(self, table: Table, *, source: str = "the table") -> FloatArray:
        """Return the matrix of a table of text cells; bad cells are refused as everywhere, by row and column."""
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

        It takes `features`, a matrix of doubles as `matrix` makes it, in which NaN stands for what is missing. It gives
        `prediction`: numbers in the target's units, or the classes' names; beside these `scores`, and `probabilities`
        where the loss has them. Of the matrix's columns, the model's metadata has the names.
        """
        try:
            from onnx import TensorProto, checker, helper, numpy_helper
        except ImportError:
            raise OutputError(
                'An ONNX graph needs onnx, which is not installed: pip install "ringfence[onnx]".'
            ) from None
        if self.loss.link != "identity" or self.loss.shares_slopes or self.schema.offset_bound:
            raise OutputError(
                f"Models with the {self.loss.name} loss or an offset cannot be written as an ONNX graph: export the "
                "coefficients to CSV, which has everything."
            )
        offsets, units = _scaling(self.schema)
        lower, upper, missing = np.array([bounds for block in self.schema.blocks for bounds in block.limits]).T
        coefficients = self.coefficients.T
        constants = {
            "lower": lower, "upper": upper, "missing": missing, "offsets": offsets, "coefficients": coefficients,
            "intercepts": self.intercepts + offsets @ coefficients, "units": units,
        }  # fmt: skip
        nodes = [
            helper.make_node("IsNaN", ["features"], ["is_missing"]),
            helper.make_node("Where", ["is_missing", "missing", "features"], ["filled"]),
            helper.make_node("Max", ["filled", "lower"], ["raised"]),
            helper.make_node("Min", ["raised", "upper"], ["clamped"]),
            helper.make_node("Sub", ["clamped", "offsets"], ["centred"]),
        ]
        inner = "centred"
        if self.schema.radius is not None:
            constants |= {"radius": np.array([self.schema.radius]), "across": np.array([1])}
            nodes += [
                helper.make_node("Div", ["centred", "units"], ["scaled"]),
                helper.make_node("ReduceL2", ["scaled", "across"], ["norms"], keepdims=1),
                helper.make_node("Max", ["norms", "radius"], ["longest"]),
                helper.make_node("Div", ["radius", "longest"], ["kept"]),
                helper.make_node("Mul", ["centred", "kept"], ["cut"]),
            ]
            inner = "cut"
        nodes += [
            helper.make_node("MatMul", [inner, "coefficients"], ["products"]),
            helper.make_node("Add", ["products", "intercepts"], ["scores"]),
        ]
        rows, outputs = "rows", len(self.intercepts)
        shape: list[str | int | None] = [rows, len(self.classes)]
        results = [helper.make_tensor_value_info("scores", TensorProto.DOUBLE, [rows, outputs])]
        if self.classes:
            constants |= {"classes": np.array(self.classes, dtype=object), "zero": np.array(0.0)}
            if outputs == 1:
                nodes += [
                    helper.make_node("Greater", ["scores", "zero"], ["above"]),
                    helper.make_node("Cast", ["above"], ["place_column"], to=TensorProto.INT64),
                ]
            else:
                nodes.append(helper.make_node("ArgMax", ["scores"], ["place_column"], axis=1, keepdims=1))
            constants["flat"] = np.array([-1])
            nodes += [
                helper.make_node("Reshape", ["place_column", "flat"], ["places"]),
                helper.make_node("Gather", ["classes", "places"], ["prediction"]),
            ]
            if self.loss.has_probabilities:
                both = ["scores"]
                if outputs == 1:  # of two classes, the softmax of 0 and u
                    nodes.append(helper.make_node("Mul", ["scores", "zero"], ["level"]))
                    both = ["level", "scores"]
                nodes += [
                    helper.make_node("Concat", both, ["all_scores"], axis=1),
                    helper.make_node("Softmax", ["all_scores"], ["probabilities"], axis=1),
                ]
                results.append(helper.make_tensor_value_info("probabilities", TensorProto.DOUBLE, shape))
        else:
            constants["flat"] = np.array([-1] if outputs == 1 else [-1, outputs])
            nodes.append(helper.make_node("Reshape", ["scores", "flat"], ["prediction"]))
        each: list[str | int | None] = [rows] if self.classes or outputs == 1 else [rows, outputs]
        kind = TensorProto.STRING if self.classes else TensorProto.DOUBLE
        results.insert(0, helper.make_tensor_value_info("prediction", kind, each))
        used = {name for node in nodes for name in node.input}
        graph = helper.make_graph(
            nodes,
            "ringfence",
            [helper.make_tensor_value_info("features", TensorProto.DOUBLE, [rows, len(self.features)])],
            results,
            [numpy_helper.from_array(value, name) for name, value in constants.items() if name in used],
        )
        model = helper.make_model(graph, producer_name="ringfence", opset_imports=[helper.make_opsetid("", 18)])
        model.ir_version = 10  # the newest that runtimes of two years read
        helper.set_model_props(
            model,
            {"target": ", ".join(self.schema.targets), "features": json.dumps(self.features), "loss": self.loss.name},
        )
        checker.check_model(model, full_check=True)
        content: bytes = model.SerializeToString()
        return content


def _scaling(schema: Schema) -> tuple[FloatArray, FloatArray]:
    """Return what each scaled feature, the constant left out, calls 0 and 1 in the table's own numbers."""
    offsets, units = np.array([pair for block in schema.blocks for pair in block.scaling]).T
    return offsets, units
