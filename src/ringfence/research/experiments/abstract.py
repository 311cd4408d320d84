"""A schema for records that are given as numbers already: what a plan needs where there is no table."""

from typing import NamedTuple

from ringfence.protocol import Categorical, Column, Loss, Numeric, Schema


class Geometry(NamedTuple):
    """Public sizes of encoded records: length and largest norm of a feature vector, and the largest target."""

    width: int
    feature_norm: float
    target_bound: float

    @classmethod
    def of(cls, schema: Schema) -> "Geometry":
        """Return the sizes of records that are encoded by the schema."""
        return cls(schema.width, schema.feature_norm, schema.target_bound)


def schema_of(geometry: Geometry, loss: Loss) -> Schema:
    """Return a schema whose feature vectors have the geometry's length and norm, and whose target suits the loss."""
    X, Y = geometry.feature_norm, geometry.target_bound
    digits = len(str(geometry.width))
    # Columns go by their names' order; the radius, not the columns' bounds, limits the norm.
    columns: dict[str, Column] = {
        f"x{i:0{digits}}": Numeric(lower=-X, upper=X, center=0.0, scale=1.0) for i in range(geometry.width)
    }
    if loss.target_kind == "number":
        columns["y"] = Numeric(lower=-Y, upper=Y, center=0.0, scale=1.0)
    else:
        labels = max(2, loss.outputs)
        columns["y"] = Categorical(categories=tuple(str(label) for label in range(labels)))
    return Schema(columns=columns, target="y", intercept=0.0, radius=X)
