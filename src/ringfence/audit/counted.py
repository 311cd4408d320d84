"""Counts of cells, set up for their worst case: one canary in one set of cells or in another, all others in a third."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.encoding import features_of, read_cells, target_of
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions import Question, Statistics, SurvivalCurve
from ringfence.protocol.schema import Schema, parse_schema
from ringfence.silo.records import Records

_CANARY = {1.0: 0, -1.0: 1}


@dataclass(frozen=True)
class Counted:
    """A question about cells, and three cells of each column: the canary's for either coin, and everybody else's."""

    asked: Question
    schema: Schema
    cells: Mapping[str, tuple[str, str, str]]

    def records(self, plan: Plan, coins: FloatArray) -> Records:
        """Return one record in the coin's cells, among others that are all alike."""
        canary, others = _CANARY[coins[0]], plan.silos[0].records - 1
        table = {name: [three[canary], *[three[2]] * others] for name, three in self.cells.items()}
        cells = read_cells(plan.data.used, table, source="the audit")
        return Records(plan.data, features_of(plan.data, cells), target_of(plan.data, cells), cells=cells)


def _schema(target: str, columns: dict[str, Any]) -> Schema:
    return parse_schema({"columns": columns}, target=target)


STATISTICS = Counted(
    Statistics(columns=("dose", "label", "size"), bins=16),
    _schema(
        "size",
        {
            "dose": {"type": "numeric", "lower": 0.0, "upper": 1.0, "missing": 0.0},
            "label": {"type": "categorical", "categories": ["a", "b", "c"]},
            "size": {"type": "numeric", "lower": -1.0, "upper": 1.0},
        },
    ),
    {"dose": ("1", "0", ""), "label": ("a", "c", "b"), "size": ("1", "-1", "0.5")},
)
"""The canary is at one end of every column or at the other."""

SURVIVAL_CURVE = Counted(
    SurvivalCurve(time="days", event="died", cuts=(2.0, 5.0)),
    _schema(
        "days",
        {
            "days": {"type": "numeric", "lower": 0.0, "upper": 9.0},
            "died": {"type": "categorical", "categories": ["no", "yes"]},
        },
    ),
    {"days": ("1", "9", "3"), "died": ("yes", "no", "no")},
)
"""The canary's time ends early, by an event, or is watched to its bound without one."""
