"""Check a table against its schema and report everything that does not fit: for the owner, as it depends on records."""

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ringfence import sources
from ringfence.errors import SchemaError
from ringfence.protocol import explain, load_columns
from ringfence.protocol.schema.columns import TYPES
from ringfence.protocol.schema.columns.base import unfilled
from ringfence.protocol.schema.encoding import ODD_REMEDY, clamped_parts, misfits
from ringfence.protocol.schema.patterns import expanded
from ringfence.protocol.schema.schema import TableColumns, load_roles
from ringfence.sources.cells import Table, as_cells
from ringfence.storage.toml_files import read_toml


def check_schema(schema: Path, table: Path) -> list[str]:
    """Return the problems of a table and its schema, one sentence each, without any value."""
    cells = sources.read_table(table)
    try:
        columns = load_columns(schema, lambda: list(cells))
    except SchemaError as problem:
        return _problems_of_schema(schema, list(cells)) or [str(problem)]
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
    return found


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
