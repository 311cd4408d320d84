"""Statistics, set up for their worst case: one canary, at one end of every column or at the other."""

from collections.abc import Sequence

import numpy as np

from ringfence.audit.adversary import Observation, read_difference
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.encoding import features_of, read_cells, target_of
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions import Statistics
from ringfence.protocol.schedule import task
from ringfence.protocol.schema import parse_schema
from ringfence.silo.questions.statistics import compute
from ringfence.silo.records import Records

ASKED = Statistics(columns=("dose", "label", "size"), bins=16)
SCHEMA = parse_schema(
    {
        "columns": {
            "dose": {"type": "numeric", "lower": 0.0, "upper": 1.0, "missing": 0.0},
            "label": {"type": "categorical", "categories": ["a", "b", "c"]},
            "size": {"type": "numeric", "lower": -1.0, "upper": 1.0},
        }
    },
    target="size",
)
_ENDS = {1.0: {"dose": "1", "label": "a", "size": "1"}, -1.0: {"dose": "0", "label": "c", "size": "-1"}}
_OTHER = {"dose": "", "label": "b", "size": "0.5"}


def records(plan: Plan, coins: FloatArray) -> Records:
    """One record at the coin's ends, among others that are all alike."""
    rows = [_ENDS[coins[0]], *[_OTHER] * (plan.silos[0].records - 1)]
    cells = read_cells(plan.data.used, {name: [row[name] for row in rows] for name in _OTHER}, source="the audit")
    return Records(plan.data, features_of(plan.data, cells), target_of(plan.data, cells), cells=cells)


def read(plan: Plan, answers: Sequence[FloatArray]) -> Observation:
    """Compare with what either record gives, which a server that knows all others computes for itself."""
    work = task(plan, plan.silos[0], 0, 0)
    everybody = np.ones(plan.silos[0].records)
    worlds = (
        compute(ASKED, plan, np.zeros(0), records(plan, np.array([coin])), everybody, work.batch) for coin in _ENDS
    )
    return read_difference(answers[0], work.sigma, *worlds)
