"""Roles of columns beside target and features: further targets, offset, exposure, weight, event; and class weights.

A plan names them as it names its target; a table's own schema need not. None of them is a feature.
"""

from collections.abc import Mapping

from pydantic import Field

from ringfence.protocol.public import Public
from ringfence.protocol.schema.columns.base import ReadColumn

ROLES = ("offset", "exposure", "weight", "event")
"""The fields that name a column."""


class Roles(Public):
    """Columns with a role of their own; each is optional.

    `offset` is added to every score, in its own units; for `exposure` its logarithm is added, so that a count is
    modelled as a rate. `weight` multiplies a record's loss, before its gradient is clipped. `event` states of a target
    that is a time whether an event ended it (the second of two categories) or observation did. `class_weights` multiply
    the loss of a category's records. `more_targets` are numbers that are predicted together with the target.
    """

    offset: str | None = Field(default=None, min_length=1)
    exposure: str | None = Field(default=None, min_length=1)
    weight: str | None = Field(default=None, min_length=1)
    event: str | None = Field(default=None, min_length=1)
    class_weights: dict[str, float] | None = None
    more_targets: tuple[str, ...] | None = Field(default=None, min_length=1, max_length=999)

    @property
    def roles(self) -> dict[str, str]:
        """The columns that have a role, by the role's name."""
        named = {role: getattr(self, role) for role in ROLES}
        return {role: column for role, column in named.items() if column is not None}

    @property
    def has_roles(self) -> bool:
        """Whether columns with roles give a record more than features and a target."""
        return bool(self.roles) or self.class_weights is not None or self.more_targets is not None

    def check_roles(self, used: Mapping[str, ReadColumn], target: str | None) -> None:
        """Raise ValueError, with the reason, if a column cannot have its role."""
        names = list(self.roles.values())
        for role, name in self.roles.items():
            if name not in used:
                raise ValueError(
                    f"the {role} column '{name}' is missing from the columns, or ignored: give it a type and its values"
                )
            if name == target or names.count(name) > 1:
                raise ValueError(f"the column '{name}' is named as {role} and as something else: choose one")
            if target is None:
                raise ValueError(f"a schema with the {role} column '{name}' needs a target")
            if used[name].indicator:
                raise ValueError(
                    f"the {role} column '{name}' has an indicator, which only a feature can have: give it a public "
                    "`missing` value instead, or remove the rows without one"
                )
            self._check(role, name, used[name])
        if self.offset is not None and self.exposure is not None:
            raise ValueError("an exposure is an offset by its logarithm: name only one of the two")
        if self.event is not None and target is not None and getattr(used[target], "low", -1.0) < 0:
            raise ValueError(
                f"the schema names an event, so the target '{target}' is a time: it must be numeric, with a `lower` "
                "of 0 or more"
            )
        if self.class_weights is not None:
            self._check_class_weights(self.class_weights, used[target].classes if target is not None else ())
        if self.more_targets is not None:
            self._check_more_targets((target or "", *self.more_targets), used)

    def _check_more_targets(self, targets: tuple[str, ...], used: Mapping[str, ReadColumn]) -> None:
        """Refuse several targets together that are not numbers with bounds."""
        for name in targets:
            if name not in used or not used[name].is_number:
                raise ValueError(
                    f"several targets are predicted together, so each must be a number with bounds: '{name}' is not"
                )
            if used[name].indicator:
                raise ValueError(f"the target column '{name}' has an indicator, which only a feature can have")
            if targets.count(name) > 1 or name in self.roles.values():
                raise ValueError(f"the column '{name}' is named as a target and as something else: choose one")
        if {"offset", "exposure", "event"} & self.roles.keys():
            raise ValueError(
                "several targets cannot have an offset, exposure or event: leave these out, or name one target"
            )

    @staticmethod
    def _check(role: str, name: str, column: ReadColumn) -> None:
        """Refuse a column that does not suit its role: event, offset, exposure or weight."""
        if role == "event":
            if len(column.classes) != 2:
                raise ValueError(f"the event column '{name}' needs two categories: the second says that it happened")
            return
        low = getattr(column, "low", None)
        if low is None:
            raise ValueError(f"the {role} column '{name}' must be numeric")
        if role == "exposure" and low <= 0:
            raise ValueError(f"the exposure '{name}' must be above 0: give it a `lower` above 0")
        if role == "weight" and low < 0:
            raise ValueError(f"the weight '{name}' must not be negative: give it a `lower` of 0 or more")

    @staticmethod
    def _check_class_weights(weights: Mapping[str, float], categories: tuple[str, ...]) -> None:
        """Refuse class weights that do not name each category of the target."""
        if set(weights) != set(categories) or not categories:
            raise ValueError("`class_weights` must have a number for each of the target's categories, and for no other")
        if not all(0 < weight <= 1e6 for weight in weights.values()):
            raise ValueError("`class_weights` must be above 0, and at most a million")
