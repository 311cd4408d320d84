"""The types of columns that a schema may have: one file each, or a few that are alike, and one line here."""

from typing import Annotated, TypeAlias

from pydantic import Field

from ringfence.protocol.columns.base import (
    UNFILLED,
    UNKNOWN,
    BaseColumn,
    Beyond,
    Only,
    Problem,
    ReadColumn,
    Reading,
    unfilled,
)
from ringfence.protocol.columns.categorical import Boolean, Categorical, Code, OneOf
from ringfence.protocol.columns.date import Date, Moment
from ringfence.protocol.columns.numeric import Numeric, Scaled
from ringfence.protocol.columns.text import Text
from ringfence.protocol.columns.unread import Identifier, Ignored, may_tell_persons
from ringfence.protocol.columns.vector import Vector

__all__ = [
    "TYPES",
    "UNFILLED",
    "UNKNOWN",
    "BaseColumn",
    "Beyond",
    "Boolean",
    "Categorical",
    "Code",
    "Column",
    "Date",
    "Identifier",
    "Ignored",
    "Moment",
    "Numeric",
    "OneOf",
    "Only",
    "Problem",
    "ReadColumn",
    "Reading",
    "Scaled",
    "Text",
    "Vector",
    "may_tell_persons",
    "unfilled",
]

Column: TypeAlias = Annotated[
    Numeric | Categorical | Boolean | Code | Date | Text | Vector | Identifier | Ignored, Field(discriminator="type")
]

TYPES: dict[str, type[BaseColumn]] = {
    kind.model_fields["type"].default: kind
    for kind in (Vector, Identifier, Boolean, Numeric, Date, Text, Categorical, Code, Ignored)
}
"""By name, in the order in which a draft tries them."""
