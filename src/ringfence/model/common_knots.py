"""Two models whose surveys placed knots differently, as weights of the same features."""

from typing import NamedTuple

import numpy as np

from ringfence.model.model import Predictor
from ringfence.protocol import FloatArray, Schema
from ringfence.protocol.schema.maps.curves import CurveBlock, Spline

_APART = 1e-8
"""Least distance of two knots, in units of the column's range: closer ones count as one."""


class CommonFeatures(NamedTuple):
    """A schema with the knots of both models' curves, and the weights with which each draws its own."""

    data: Schema
    one: FloatArray
    other: FloatArray


def common_features(one: Predictor, other: Predictor) -> CommonFeatures | None:
    """Return both models with the same features; None if they differ in more than surveyed knots.

    A curve of straight pieces is one with more knots, too: its weights are its values there.
    """
    data = one.data
    if data != other.data:
        if one.plan.data != other.plan.data or one.plan.data.without_open_curves().maps:
            return None
        knots = [
            {
                block.name: block.curve.inner(block.column)
                for block in model.data.blocks
                if isinstance(block, CurveBlock)
            }
            for model in (one, other)
        ]
        data = data.with_maps(
            [
                Spline(columns=(name,), knots=_together(knots[0][name], knots[1][name]), degree=1, surveyed=True)
                for name in one.plan.data.open_curves
            ]
        )
    return CommonFeatures(data, _weights(one, data), _weights(other, data))


def _together(one: tuple[float, ...], other: tuple[float, ...]) -> tuple[float, ...]:
    """Return the knots of two curves in order, those that are too close to each other once."""
    both = np.array(sorted({*one, *other}))
    kept = np.append(True, np.diff(both) > _APART * (both[-1] - both[0]))
    return tuple(both[kept].tolist())


def _weights(model: Predictor, data: Schema) -> FloatArray:
    """Return a model's weights for the features of a schema that has all its knots, and perhaps more."""
    rows, place = [], 0
    for old, new in zip(model.data.blocks, data.blocks, strict=True):
        own = model.coefficients[place : place + old.width]
        place += old.width
        if isinstance(old, CurveBlock) and isinstance(new, CurveBlock):
            values = old.curve.values(np.array(new.curve.inner(new.column)), old.column)
            own = np.concatenate([values @ own[: values.shape[1]], own[values.shape[1] :]])
        rows.append(own)
    return np.concatenate([*rows, model.coefficients[place:]]).reshape(-1)
