"""Check a table against its schema and report everything that does not fit: for the owner, as it depends on records."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from ringfence import sources
from ringfence.errors import SchemaError
from ringfence.protocol import explain, load_columns
from ringfence.protocol.schema.columns import TYPES
from ringfence.protocol.schema.columns.base import unfilled
from ringfence.protocol.schema.encoding import ODD_REMEDY, clamped_parts, misfits
from ringfence.protocol.schema.patterns import expanded
from ringfence.protocol.schema.schema import TableColumns, load_roles
from ringfence.silo.records.cell_advice import Advice, advice_on, sentences
from ringfence.silo.records.repeated_persons import PossiblePersons, advice_on_spellings
from ringfence.sources.cells import Table, as_cells
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
    cells = sources.read_table(table)
    try:
        columns = load_columns(schema, lambda: list(cells))
    except SchemaError as problem:
        return _problems_of_schema(schema, list(cells)) or [str(problem)], [], []
    found = [
        f"column '{name}' is not in {table.name}; correct its name in the schema, or remove it there."
        for name in [*columns.used, *([columns.person] if columns.person is not None else [])]
        if name not in cells
    ]
    found += [
        f"column '{name}' gives rows their order, so no model may read it; make it an identifier."
        for name in sources.order(table)
        if name in columns.used
    ]
    found += [
        f"column '{name}' holds {own.odd}: {ODD_REMEDY}."
        for name, own in cells.items()
        if own.odd and name in columns.used
    ]
    found += [f"{misfit}." for misfit in misfits(columns.used, cells)]
    found += _problems_of_parts(schema, columns, cells)
    if not len(next(iter(cells.values()), ())):
        found.append("the table has a header but no records.")
    used = {name: column for name, column in columns.used.items() if name in cells and not as_cells(cells[name]).odd}
    roles = _role_columns(schema)
    possible = PossiblePersons(columns)
    possible.add({name: as_cells(own) for name, own in cells.items()})
    persons = possible.advice()
    if columns.person is not None and columns.person in cells:
        persons = advice_on_spellings(columns.person, as_cells(cells[columns.person]).texts())
    advice = [advice_on(name, column, as_cells(cells[name]), name in roles) for name, column in used.items()]
    return found, [each for own in advice for each in own], persons


def _role_columns(schema: Path) -> Collection[str]:
    """Return the columns with a role, whose cells beyond the bounds are problems."""
    try:
        return load_roles(schema).roles.values()
    except SchemaError:
        return ()


def _problems_of_parts(schema: Path, columns: TableColumns, cells: Table) -> list[str]:
    """Return the problems of columns with a role, such as weight or event."""
    try:
        roles = load_roles(schema)
    except SchemaError as problem:
        return [str(problem)]
    own = {name: as_cells(cells[name]) for name in roles.roles.values() if name in cells and name in columns.used}
    readings = {name: columns.used[name].read(column)[0] for name, column in own.items() if not column.odd}
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
