"""A schema whose rows are persons', a plan for each rule, and records of lists of their rows."""

from typing import Any

import numpy as np
import pytest

from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import Schema, parse_schema
from ringfence.silo.records.records import Records

NUMBER = {"type": "numeric", "lower": -1.0, "upper": 1.0}
SCHEMA = parse_schema({"columns": {"a": NUMBER, "b": NUMBER, "y": NUMBER}, "person": "patient"}, target="y")
SCHEMA_FILE = 'person = "patient"\n' + "".join(
    f'[columns.{name}]\ntype = "numeric"\nlower = -1.0\nupper = 1.0\n' for name in "aby"
)
RULES: dict[str, PlanRequest] = {
    "mean": PlanRequest(rounds=2, loss="squared", survey=False, person_rule="mean"),
    "rows": PlanRequest(rounds=2, loss="squared", survey=False, person_rule="rows", rows_per_person=3),
    "sum": PlanRequest(rounds=2, loss="squared", survey=False, person_rule="sum"),
}
PLANS = {rule: make_plan(SCHEMA, [Member("clinic", 4, 1.0, 1e-6)], request) for rule, request in RULES.items()}
every_rule = pytest.mark.parametrize("rule", RULES)


def records_of(people: list[list[Any]], schema: Schema = SCHEMA) -> Records:
    rows = np.array([row for person in people for row in person], dtype=np.float64)
    of_row = np.repeat(np.arange(len(people)), [len(person) for person in people])
    return Records(schema, rows[:, :3], rows[:, 3], of_row=of_row)


def written(path: Any, rows: list[str]) -> Any:
    path.write_text("patient,a,b,y\n" + "\n".join(rows) + "\n")
    return path
