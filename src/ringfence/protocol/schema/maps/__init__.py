"""Public maps of columns, which let a linear model fit curves and interactions.

A map is a public function of a record's own cells, after these were clamped to public bounds: it changes what a model
can express, and not who is protected. It is part of the schema, and so of the plan's digest.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, TypeAlias

from pydantic import Field

from ringfence.protocol.schema.blocks import Block, Blocks, ColumnBlock
from ringfence.protocol.schema.columns.base import ReadColumn
from ringfence.protocol.schema.columns.numeric import Scaled
from ringfence.protocol.schema.maps.base import MOST_FEATURES
from ringfence.protocol.schema.maps.curves import Curve, CurveBlock, Cyclic, Spline
from ringfence.protocol.schema.maps.joint import Fourier, Interaction

FeatureMap: TypeAlias = Annotated[Spline | Cyclic | Interaction | Fourier, Field(discriminator="type")]


def blocks_of(columns: Mapping[str, ReadColumn], maps: Sequence[FeatureMap]) -> Blocks:
    """Return the parts of a feature vector: each column's, in their order, and then those of several columns."""
    by_column, joint = _parts(columns, maps)
    own = [block for blocks in by_column.values() for block in blocks]
    return Blocks([*own, *(block for map in joint for block in map.blocks(by_column))])


def check_maps(columns: Mapping[str, ReadColumn], maps: Sequence[FeatureMap]) -> None:
    """Raise ValueError, with the remedy, if maps cannot be applied to these columns."""
    if not maps:
        return
    for map in maps:
        map.check(columns)
    by_column, joint = _parts(columns, maps)
    curved = [block for blocks in by_column.values() for block in blocks if not isinstance(block, ColumnBlock)]
    width = sum(block.width for block in curved) + sum(map.width(by_column) for map in joint)
    if width > MOST_FEATURES:
        raise ValueError(
            f"the maps make {width} features, more than the {MOST_FEATURES} allowed: use fewer knots, harmonics, "
            "columns or Fourier features"
        )
    made = [*curved, *(block for map in joint for block in map.blocks(by_column))]
    for name, count in Counter(name for block in made for name in block.names).items():
        if count > 1:
            raise ValueError(
                f"two maps both make the feature '{name}': leave one out, or give each a `seed` of its own"
            )


def _parts(
    columns: Mapping[str, ReadColumn], maps: Sequence[FeatureMap]
) -> tuple[dict[str, Blocks], list[Interaction | Fourier]]:
    """Return every column's own blocks, as curves leave them, and the maps of several columns."""
    curves = [map for map in maps if isinstance(map, Curve)]
    joint = [map for map in maps if not isinstance(map, Curve)]
    return {name: _column(name, column, curves) for name, column in columns.items()}, joint


def _column(name: str, column: ReadColumn, curves: Iterable[Spline | Cyclic]) -> Blocks:
    """Return the blocks of one column: its own features, unless a map replaces them, and its curves."""
    own = [curve for curve in curves if name in curve.columns]
    if not own or not isinstance(column, Scaled):
        return Blocks([ColumnBlock(name, column)])
    kept: list[Block] = [ColumnBlock(name, column)] if all(curve.keep for curve in own) else []
    missing = bool(column.indicator) and not kept
    made = [CurveBlock(curve, name, column, indicator=missing and curve is own[0]) for curve in own]
    return Blocks([*kept, *made])
