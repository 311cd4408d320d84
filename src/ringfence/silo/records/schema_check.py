"""Check a table against its schema and report everything that does not fit: for the owner, as it depends on records."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from ringfence import sources
from ringfence.errors import SchemaError
from ringfence.protocol import explain, load_columns
from ringfence.protocol.schema.columns import TYPES
from ringfence.protocol.schema.columns.base import Problem, ReadColumn, unfilled
from ringfence.protocol.schema.encoding import ODD_REMEDY, clamped_parts
from ringfence.protocol.schema.patterns import expanded
from ringfence.protocol.schema.roles import Roles
from ringfence.protocol.schema.schema import TableColumns, load_roles
from ringfence.silo.records.cell_advice import Advice, NotableCells, advice_on, sentences
from ringfence.silo.records.reading import GrowingReading
from ringfence.silo.records.repeated_persons import PersonAdvice
from ringfence.sources.cells import Cells
from ringfence.storage.toml_files import read_toml


class Checked(NamedTuple):
    """What a check of a table found: problems, and advice about cells that fit but may not mean what they say."""

    problems: list[str]
    advice: list[str]


def check_schema(schema: Path, tables: Sequence[Path]) -> list[Checked]:
    """Return what a check of each table found, one sentence each.

    The only values in it are codes for a missing value, and a category's spellings in other capitals.
    """
    found = [_check(schema, table) for table in tables]
    advice = sentences([own for _, own, _ in found])
    return [Checked(problems, [*own, *persons]) for (problems, _, persons), own in zip(found, advice, strict=True)]


def _check(schema: Path, table: Path) -> tuple[list[str], list[Advice], list[str]]:
    """Return the problems of a table and its schema, and advice about its cells and its persons."""
    header = sources.header(table)
    try:
        columns = load_columns(schema, lambda: header)
    except SchemaError as problem:
        return _problems_of_schema(schema, header) or [str(problem)], [], []
    used, person = columns.used, columns.person
    found = [
        f"column '{name}' is not in {table.name}; correct its name in the schema, or remove it there."
        for name in [*used, *([person] if person is not None else [])]
        if name not in header
    ]
    found += [
        f"column '{name}' gives rows their order, so no model may read it; make it an identifier."
        for name in sources.order(table)
        if name in used
    ]
    try:
        roles, unread = load_roles(schema), []
    except SchemaError as problem:
        roles, unread = None, [str(problem)]
    parts = set() if roles is None else set(roles.roles.values())
    checks = {name: _ColumnCheck(used[name], name in parts) for name in header if name in used}
    rows, persons = 0, PersonAdvice(columns)
    plain = {name for name, column in used.items() if column.is_plain_number and not column.missing_tokens}
    for chunk in sources.chunks(table, plain):
        for name, cells in chunk.items():
            if name in checks:
                checks[name].add(cells, rows)
        persons.add(chunk)
        rows += len(next(iter(chunk.values()), ()))
    found += [f"column '{name}' holds {check.odd}: {ODD_REMEDY}." for name, check in checks.items() if check.odd]
    read = {name: check for name, check in checks.items() if not check.odd}
    found += [f"{misfit}." for name, check in read.items() for misfit in _misfits(name, check.problems)]
    found += unread if roles is None else _problems_of_parts(roles, columns, read)
    if not rows:
        found.append("the table has a header but no records.")
    advice = [each for name, check in read.items() for each in advice_on(name, check.notable, name in parts)]
    return found, advice, persons.sentences()


class _ColumnCheck:
    """What a check finds in a column, as its chunks are read."""

    def __init__(self, column: ReadColumn, has_role: bool) -> None:
        """Begin with a column's type; only one with a role needs all its numbers."""
        self.column, self.odd, self.problems = column, "", list[Problem]()
        self.notable = NotableCells(column)
        self.reading = GrowingReading() if has_role else None

    def add(self, cells: Cells, first: int) -> None:
        """Check a chunk of the column, whose first row has this number."""
        self.odd = self.odd or cells.odd
        if self.odd or not len(cells):
            return
        reading, problems = self.column.read(cells)
        self.problems += [Problem(problem.rows + first, problem.what) for problem in problems]
        self.notable.add(cells)
        if self.reading is not None:
            self.reading.add(reading)


def _misfits(name: str, problems: Sequence[Problem]) -> Iterator[str]:
    """Yield which of a column's cells do not fit the schema, and why, by their first rows; of all chunks together.

    Rows are counted as in a spreadsheet: the header is row 1.
    """
    found: dict[str, list[NDArray[np.int64]]] = {}
    for problem in problems:
        found.setdefault(problem.what, []).append(problem.rows)
    for what, parts in sorted(found.items(), key=lambda problem: int(problem[1][0][0])):
        rows = np.concatenate(parts) + 2
        shown = ", ".join(str(row) for row in rows[:3].tolist())
        more = f" and {len(rows) - 3} more" if len(rows) > 3 else ""
        yield f"column '{name}', row{'s' if len(rows) > 1 else ''} {shown}{more}: {what}"


def _problems_of_parts(roles: Roles, columns: TableColumns, checks: Mapping[str, _ColumnCheck]) -> list[str]:
    """Return the problems of columns with a role, such as weight or event."""
    readings = {name: check.reading.all() for name, check in checks.items() if check.reading is not None}
    return [
        *(
            f"column '{name}' is named as {role}, but is missing from the schema's columns, or ignored; give it a "
            "type and its values."
            for role, name in roles.roles.items()
            if name not in columns.used
        ),
        *clamped_parts(roles, None, readings),
    ]


def _problems_of_schema(schema: Path, header: list[str]) -> list[str]:
    """Return the problems of each of a schema's columns."""
    try:
        content = expanded(read_toml(schema), source=str(schema), header=lambda: header)
    except (OSError, ValueError, SchemaError):
        return []  # there is one problem, which the reader of schemas tells
    columns: Any = content.get("columns")
    found: list[str] = []
    for name, column in columns.items() if isinstance(columns, dict) else ():
        kind = TYPES.get(str(column.get("type"))) if isinstance(column, dict) else None
        if kind is None:
            continue
        open_fields = unfilled(column) + [field for field in kind.open_fields if field not in column]
        for field in open_fields:
            hint = kind.open_fields.get(field, "what is publicly known about the column")
            found.append(f"column '{name}', '{field}' is not filled in: write {hint}, or type = \"ignore\".")
        if not open_fields:
            try:
                TableColumns.model_validate({"columns": {name: column}}, strict=False)
            except ValidationError as refused:
                found.append(f"{explain(refused)}.")
    return found
