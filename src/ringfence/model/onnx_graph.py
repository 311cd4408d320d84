"""An ONNX graph under construction, and the part of it that turns a table's numbers into a model's features.

It follows `features` of every block of the schema; ONNX has sines of doubles in every version, so cosines are sines of
an angle that is π/2 larger.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ringfence.errors import OutputError, require_extra
from ringfence.protocol import Schema
from ringfence.protocol.schema.blocks import Block, ColumnBlock
from ringfence.protocol.schema.maps.curves import CurveBlock, Cyclic, extended
from ringfence.protocol.schema.maps.joint import Products, Waves, directions

OPSET, FORMAT = 18, 10
"""The newest that runtimes of two years read."""


class Graph:
    """Collects nodes, constants, inputs and outputs; a tensor is known by its name."""

    def __init__(self) -> None:
        """Begin an empty ONNX graph."""
        require_extra("onnx", "An ONNX graph", "onnx", error=OutputError)
        import onnx

        self._onnx = onnx
        self._graph = onnx.GraphProto(name="ringfence")

    def constant(self, value: Any) -> str:
        """Add a constant tensor to the ONNX graph."""
        name = f"constant_{len(self._graph.initializer)}"
        self._graph.initializer.append(self._onnx.numpy_helper.from_array(np.asarray(value), name))
        return name

    def apply(self, operation: str, *inputs: str, unused: int = 0, **attributes: Any) -> str:
        """Add an operation to the ONNX graph, and return its first result; others are unused."""
        name = f"{operation.lower()}_{len(self._graph.node)}"
        results = [name, *(f"{name}_unused_{number}" for number in range(unused))]
        self._graph.node.append(self._onnx.helper.make_node(operation, inputs, results, **attributes))
        return name

    def whole(self, value: str) -> str:
        """Add a cast to whole numbers to the ONNX graph."""
        return self.apply("Cast", value, to=self._onnx.TensorProto.INT64)

    def takes(self, name: str, *shape: int) -> str:
        """Add an input to the ONNX graph: a number, or several, per row."""
        kind = self._onnx.TensorProto.DOUBLE
        self._graph.input.append(self._onnx.helper.make_tensor_value_info(name, kind, ["rows", *shape]))
        return name

    def gives(self, name: str, value: str, *shape: int, text: bool = False) -> None:
        """Add an output to the ONNX graph: a number or a text, or several, per row."""
        self._graph.node.append(self._onnx.helper.make_node("Identity", [value], [name]))
        kind = self._onnx.TensorProto.STRING if text else self._onnx.TensorProto.DOUBLE
        self._graph.output.append(self._onnx.helper.make_tensor_value_info(name, kind, ["rows", *shape]))

    def serialised(self, metadata: dict[str, str]) -> bytes:
        """Return the checked ONNX model as bytes."""
        helper = self._onnx.helper
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(self._graph, producer_name="ringfence", opset_imports=opsets)
        model.ir_version = FORMAT
        helper.set_model_props(model, metadata)
        self._onnx.checker.check_model(model, full_check=True)
        return bytes(model.SerializeToString())

    def part(self, value: str, start: int, end: int) -> str:
        """Add columns of a matrix, from `start` to before `end`, to the ONNX graph."""
        return self.apply("Slice", value, *(self.constant([number]) for number in (start, end, 1)))

    def double(self, value: str) -> str:
        """Add a cast to doubles to the ONNX graph."""
        return self.apply("Cast", value, to=self._onnx.TensorProto.DOUBLE)


def add_features(graph: Graph, schema: Schema) -> str:
    """Add all features but the constant to the ONNX graph: clamped, scaled, mapped, clipped to the radius."""
    columns = schema.features
    lower, upper, missing = np.array([limits for column in columns.values() for limits in column.limits]).T
    given = graph.takes("features", len(lower))
    empty = graph.apply("IsNaN", given)
    filled = graph.apply("Where", empty, graph.constant(missing), given)
    clamped = graph.apply("Min", graph.apply("Max", filled, graph.constant(lower)), graph.constant(upper))
    cells, start = {}, 0
    for name, column in columns.items():
        end = start + len(column.limits)
        cells[name] = graph.part(clamped, start, end)
        if column.indicator:  # 1 if it was given as 1, or if the cell before it is missing
            own, mark = graph.part(clamped, start, end - 1), graph.double(graph.part(empty, start, start + 1))
            cells[name] = graph.apply(
                "Concat", own, graph.apply("Max", graph.part(clamped, end - 1, end), mark), axis=1
            )
        start = end
    features = _add_blocks(graph, schema.blocks, cells)
    if schema.radius is None:
        return features
    radius, norms = graph.constant([schema.radius]), graph.apply("ReduceL2", features, graph.constant([1]), keepdims=1)
    return graph.apply("Mul", features, graph.apply("Div", radius, graph.apply("Max", norms, radius)))


def _add_blocks(graph: Graph, blocks: Iterable[Block], cells: Mapping[str, str]) -> str:
    """Add the features of several blocks to the ONNX graph, beside each other."""
    return graph.apply("Concat", *(_add_block(graph, block, cells) for block in blocks), axis=1)


def _add_block(graph: Graph, block: Block, cells: Mapping[str, str]) -> str:
    """Add the features of a block to the ONNX graph, from columns' cells in the table's own numbers."""
    if isinstance(block, CurveBlock):
        return _add_curve(graph, block, cells[block.name])
    if isinstance(block, Products):
        first, second = (_add_blocks(graph, factor, cells) for factor in (block.first, block.second))
        tall = graph.apply("Unsqueeze", first, graph.constant([2]))
        pairs = graph.apply("Mul", tall, graph.apply("Unsqueeze", second, graph.constant([1])))
        return graph.apply("Reshape", pairs, graph.constant([0, block.width]))
    if isinstance(block, Waves):
        chosen = directions(block.map.seed, block.width // 2, block.inputs.width).T / block.map.scale
        inner = _add_blocks(graph, block.inputs, cells)
        return _add_waves(
            graph, graph.apply("MatMul", inner, graph.constant(np.repeat(chosen, 2, axis=1))), block.width
        )
    if not isinstance(block, ColumnBlock):
        raise OutputError("A map of this model cannot be exported to ONNX: export to JSON, which names the maps.")
    offsets, units = np.array(block.scaling).T
    return graph.apply("Div", graph.apply("Sub", cells[block.name], graph.constant(offsets)), graph.constant(units))


def _add_curve(graph: Graph, block: CurveBlock, cells: str) -> str:
    """Add the features of a curve to the ONNX graph; all are 0 where the column's indicator is 1."""
    numbers, curve = graph.part(cells, 0, 1), block.curve
    if isinstance(curve, Cyclic):
        turns = graph.apply("Div", numbers, graph.constant(curve.period))
        rest = graph.apply("Sub", turns, graph.apply("Floor", turns))
        angles = 2.0 * math.pi * np.repeat(np.arange(1, curve.harmonics + 1), 2)
        values = _add_waves(graph, graph.apply("Mul", rest, graph.constant(angles)), 2 * curve.harmonics)
    else:
        inner = curve.inner(block.column)
        inside = graph.apply("Min", graph.apply("Max", numbers, graph.constant(inner[0])), graph.constant(inner[-1]))
        values = _add_splines(graph, inside, inner, curve.degree)
    if not block.column.indicator:
        return values
    empty = graph.part(cells, 1, 2)
    values = graph.apply("Mul", values, graph.apply("Sub", graph.constant(1.0), empty))
    return graph.apply("Concat", values, empty, axis=1) if block.indicator else values


def _add_waves(graph: Graph, angles: str, width: int) -> str:
    """Add cosine and sine, in turn, of so many angles to the ONNX graph, divided by the norm of all of them."""
    turned = graph.apply("Add", angles, graph.constant(np.tile([math.pi / 2, 0.0], width // 2)))
    return graph.apply("Mul", graph.apply("Sin", turned), graph.constant(math.sqrt(2.0 / width)))


def _add_splines(graph: Graph, numbers: str, inner: tuple[float, ...], degree: int) -> str:
    """Add B-splines to the ONNX graph, by de Boor's recursion (`protocol.schema.maps.curves.basis`)."""
    knots = np.array(extended(inner, degree))
    first, last = knots[:-1].copy(), knots[1:].copy()
    first[:degree], first[degree], last[-degree - 1], last[-degree:] = math.inf, -math.inf, math.inf, -math.inf
    inside = graph.apply("GreaterOrEqual", numbers, graph.constant(first))
    values = graph.double(graph.apply("And", inside, graph.apply("Less", numbers, graph.constant(last))))
    for power in range(1, degree + 1):
        apart = knots[power:] - knots[:-power]
        since = graph.apply("Sub", numbers, graph.constant(knots[: -power - 1]))
        until = graph.apply("Sub", graph.constant(knots[power + 1 :]), numbers)
        count = len(knots) - power
        rising = graph.apply("Mul", graph.part(values, 0, count - 1), graph.constant(1.0 / apart[:-1]))
        falling = graph.apply("Mul", graph.part(values, 1, count), graph.constant(1.0 / apart[1:]))
        values = graph.apply("Add", graph.apply("Mul", since, rising), graph.apply("Mul", until, falling))
    return values
