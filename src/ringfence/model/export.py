"""Export of a trained model for other software: plain coefficients, a table, scikit-learn, ONNX.

All but ONNX are the model's linear function in the units of the table, without the schema's clamping and `radius`: the
same scores as the model's own for rows within the public bounds, and a straight line beyond, where the model's own
prediction stays what it is at the bound. The ONNX graph clamps as the model does, uses doubles throughout, and agrees
with `ringfence predict` up to rounding.
"""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ringfence.errors import OutputError
from ringfence.model.onnx_graph import Graph, add_features
from ringfence.protocol import FloatArray, Loss, Schema
from ringfence.protocol.losses.log_link import STEEPEST
from ringfence.protocol.schema.encoding import read_cells
from ringfence.protocol.schema.maps import blocks_of
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

    def matrix(self, table: Table, *, mapped: bool = True, source: str = "the table") -> FloatArray:
        """Return the matrix of a table for an exported model; bad cells are refused by row and column.

        Unless `mapped`, it holds every column's own numbers instead of what maps make of them, as an ONNX graph takes.
        """
        readings = read_cells(self.schema.features, table, source=source)
        blocks = self.schema.blocks if mapped else blocks_of(self.schema.features, ())
        return np.hstack([block.plain(table, readings) for block in blocks])

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
        columns = np.column_stack([self.coefficients, self.intercepts]).tolist()
        return csv_text({"feature": [*self.features, "(intercept)"], **dict(zip(self.outputs, columns, strict=True))})

    def to_scikit_learn(self, classes: Sequence[Any] | None = None) -> Any:
        """Return the fitted model of scikit-learn with these coefficients, of the kind that the loss names.

        It predicts on the matrix, and names its columns. `classes` are the labels that it uses, in the order of the
        target's categories, if not these themselves; scikit-learn sorts them.
        """
        from sklearn import linear_model, svm

        if not self.loss.scikit_learn:
            raise OutputError(
                f"scikit-learn has no model with the {self.loss.name} loss: export the coefficients as JSON or CSV."
            )
        estimator: Any = getattr(linear_model, self.loss.scikit_learn, None) or getattr(svm, self.loss.scikit_learn)
        estimator = estimator()
        estimator.coef_, estimator.intercept_ = self.coefficients.copy(), self.intercepts.copy()
        if self.classes:
            labels = np.asarray(self.classes if classes is None else classes)
            estimator.classes_, places = np.unique(labels, return_index=True)
            if len(self.coefficients) == len(places):
                estimator.coef_, estimator.intercept_ = self.coefficients[places], self.intercepts[places]
            elif places[0] == 1:  # scores are positive for the second class
                estimator.coef_, estimator.intercept_ = -self.coefficients, -self.intercepts
        elif self.schema.more_targets is None:
            estimator.coef_, estimator.intercept_ = self.coefficients[0].copy(), float(self.intercepts[0])
        if self.loss.link == "log":
            estimator._base_loss = estimator._get_loss()  # which `predict` takes its link from
        estimator.n_features_in_ = len(self.features)
        estimator.feature_names_in_ = np.array(self.features, dtype=object)
        return estimator

    def to_onnx(self) -> bytes:
        """Return an ONNX graph that predicts as the model itself does, with the schema's clamping and `radius`.

        Inputs: `features`, a matrix of doubles as `matrix(table, mapped=False)` makes it, in which NaN stands for what
        is missing; and `offset`, a number per row, if the schema names an offset or an exposure. Outputs: `prediction`,
        numbers in the target's units or names of classes; `scores`; and `probabilities` where the loss has them. The
        model's metadata names the matrix's columns.
        """
        graph = Graph()
        scores = _add_scores(graph, self)
        if self.classes:
            _add_class_output(graph, self, scores)
        elif self.loss.parts_end:
            _add_time_output(graph, self, scores)
        else:
            _add_number_output(graph, self, scores)
        columns = json.dumps(blocks_of(self.schema.features, ()).names)
        return graph.serialised({"target": ", ".join(self.schema.targets), "features": columns, "loss": self.loss.name})


def _scaling(schema: Schema) -> tuple[FloatArray, FloatArray]:
    """Return the offset and unit of each scaled feature but the constant, to export in the table's own numbers."""
    offsets, units = np.array([pair for block in schema.blocks for pair in block.scaling]).T
    return offsets, units


def csv_text(columns: Mapping[str, Sequence[Any]]) -> str:
    """Return columns as CSV: a line of names, and a line per row; numbers to their last digit."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(columns)
    rows.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()


def _add_scores(graph: Graph, linear: LinearFunction) -> str:
    """Add the scores to the ONNX graph, in the target's units."""
    schema, coefficients = linear.schema, linear.coefficients.T
    offsets, units = _scaling(schema)
    products = graph.apply("MatMul", add_features(graph, schema), graph.constant(units[:, None] * coefficients))
    scores = graph.apply("Add", products, graph.constant(linear.intercepts + offsets @ coefficients))
    if schema.offset is not None or schema.exposure is not None:
        scores = graph.apply("Add", scores, _add_offset(graph, linear))
    graph.gives("scores", scores, len(linear.intercepts))
    return scores


def _add_offset(graph: Graph, linear: LinearFunction) -> str:
    """Clamp a row's offset, or the logarithm of its exposure, to its public range, in the scores' units."""
    middle, reach = linear.schema.offset_range
    unit, _ = linear.loss.score_units(*linear.schema.target_scaling)
    own = graph.apply("Reshape", graph.takes("offset"), graph.constant([-1, 1]))
    if linear.schema.exposure is not None:
        own = graph.apply("Log", own)
    raised = graph.apply("Max", own, graph.constant(middle - reach))
    return graph.apply("Mul", graph.apply("Min", raised, graph.constant(middle + reach)), graph.constant(unit))


def _add_number_output(graph: Graph, linear: LinearFunction, scores: str) -> None:
    """Predict numbers: the scores themselves, or the means whose logarithms they are."""
    outputs = len(linear.intercepts)
    several = [outputs] if outputs > 1 else []
    found = _exponential_of_scores(graph, linear, scores) if linear.loss.link == "log" else scores
    graph.gives("prediction", graph.apply("Reshape", found, graph.constant([-1, *several])), *several)


def _add_time_output(graph: Graph, linear: LinearFunction, scores: str) -> None:
    """Predict the expected time without an event, from a hazard in every part of the time (`losses.shared_slopes`).

    In a part of length l with the hazard h it is (1 − e^−hl)/h, and l·(1 − hl/2) where hl is too small for the former.
    """
    unit, _ = linear.schema.target_scaling
    starts = (0.0, *linear.loss.parts_end)
    ends = (*linear.loss.parts_end, max(2.0 * starts[-1], 2.0))
    lengths = graph.constant(unit * (np.array(ends) - np.array(starts)))
    hazards = _exponential_of_scores(graph, linear, scores)
    one, half, small = (graph.constant(value) for value in (1.0, 0.5, 1e-8))
    risks = graph.apply("Mul", hazards, lengths)
    left = graph.apply("Exp", graph.apply("Neg", graph.apply("CumSum", risks, graph.constant(1), exclusive=1)))
    gone = graph.apply("Sub", one, graph.apply("Exp", graph.apply("Neg", risks)))
    nearly = graph.apply("Mul", lengths, graph.apply("Sub", one, graph.apply("Mul", half, risks)))
    spent = graph.apply("Where", graph.apply("Less", risks, small), nearly, graph.apply("Div", gone, hazards))
    total = graph.apply("ReduceSum", graph.apply("Mul", left, spent), graph.constant([1]), keepdims=0)
    graph.gives("prediction", total)


def _exponential_of_scores(graph: Graph, linear: LinearFunction, scores: str) -> str:
    """Return means or hazards in the target's own units; scores are held where the loss holds them."""
    _, shift = linear.loss.score_units(*linear.schema.target_scaling)
    raised = graph.apply("Max", scores, graph.constant(shift - STEEPEST))
    return graph.apply("Exp", graph.apply("Min", raised, graph.constant(shift + STEEPEST)))


def _add_class_output(graph: Graph, linear: LinearFunction, scores: str) -> None:
    """Predict a class's name, and every class's probability if the loss has them."""
    zero = graph.constant(0.0)
    above = graph.apply("Greater", scores, zero)
    if len(linear.intercepts) == len(linear.classes):
        places = graph.apply("ArgMax", scores, axis=1, keepdims=0)
    else:  # how many thresholds it lies above: of two classes there is one
        places = graph.apply("ReduceSum", graph.whole(above), graph.constant([1]), keepdims=0)
    names = graph.constant(np.array(linear.classes, dtype=object))
    graph.gives("prediction", graph.apply("Gather", names, places), text=True)
    if not linear.loss.has_probabilities:
        return
    if linear.loss.shares_slopes:
        found = _ordinal_probabilities(graph, linear, scores)
    else:  # of two classes, the softmax of 0 and u
        both = [scores] if len(linear.intercepts) > 1 else [graph.apply("Mul", scores, zero), scores]
        found = graph.apply("Softmax", graph.apply("Concat", *both, axis=1), axis=1)
    graph.gives("probabilities", found, len(linear.classes))


def _ordinal_probabilities(graph: Graph, linear: LinearFunction, scores: str) -> str:
    """Return differences of neighbouring thresholds' shares, once the thresholds are in order."""
    count = len(linear.intercepts)
    ordered = graph.apply("TopK", scores, graph.constant([count]), axis=1, largest=1, sorted=1, unused=1)
    above = graph.apply("Sigmoid", ordered)
    least = graph.apply("Mul", graph.apply("ReduceMax", above, graph.constant([1]), keepdims=1), graph.constant(0.0))
    before = graph.apply("Concat", graph.apply("Add", least, graph.constant(1.0)), above, axis=1)
    return graph.apply("Sub", before, graph.apply("Concat", above, least, axis=1))
