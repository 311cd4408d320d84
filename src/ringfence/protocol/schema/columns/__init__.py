"""The types of columns that a schema may have: one file each, or a few that are alike, and one line here."""

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

from pydantic import Field

from ringfence.protocol.schema.columns.base import BaseColumn, Identifier, Ignored
from ringfence.protocol.schema.columns.categorical import Boolean, Categorical, Code
from ringfence.protocol.schema.columns.date import Date
from ringfence.protocol.schema.columns.numeric import Numeric
from ringfence.protocol.schema.columns.vector import Text, Vector

Column: TypeAlias = Annotated[
    Numeric | Categorical | Boolean | Code | Date | Text | Vector | Identifier | Ignored, Field(discriminator="type")
]

TYPES: dict[str, type[BaseColumn]] = {
    kind.model_fields["type"].default: kind
    for kind in (Vector, Identifier, Boolean, Numeric, Date, Text, Categorical, Code, Ignored)
}
"""By name."""


def type_of(column: Any) -> type[BaseColumn] | None:
    """Return the type of column that an entry of a schema file names, if there is such a type."""
    return TYPES.get(str(column.get("type"))) if isinstance(column, Mapping) else None
