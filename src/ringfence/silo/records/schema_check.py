"""Check a table against its schema and report everything that does not fit: for the owner, as it depends on records."""

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import ValidationError

from ringfence import sources
from ringfence.errors import SchemaError
from ringfence.protocol import explain, load_columns
from ringfence.protocol.schema.codes import (
    beyond_bounds,
    cells_hold,
    number_texts,
    outlying,
    token_line,
    token_texts,
)
from ringfence.protocol.schema.columns import TYPES
from ringfence.protocol.schema.columns.base import ReadColumn, unfilled
from ringfence.protocol.schema.columns.categorical import Categorical, OneOf
from ringfence.protocol.schema.columns.numeric import Scaled
from ringfence.protocol.schema.encoding import ODD_REMEDY, clamped_parts, misfits
from ringfence.protocol.schema.patterns import expanded
from ringfence.protocol.schema.schema import TableColumns, load_roles
from ringfence.sources.cells import Cells, Table, as_cells
from ringfence.storage.toml_files import read_toml


class Checked(NamedTuple):
    """What a check of a table found: problems, and advice about cells that fit but may not mean what they say."""

    problems: list[str]
    advice: list[str]


def check_schema(schema: Path, table: Path) -> Checked:
    """Return what a check of a table found, one sentence each.

    The only values in it are codes for a missing value, and a category's spellings in other capitals.
    """
    cells = sources.read_table(table)
    try:
        columns = load_columns(schema, lambda: list(cells))
    except SchemaError as problem:
        return Checked(_problems_of_schema(schema, list(cells)) or [str(problem)], [])
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
    advice = [_advice(name, column, as_cells(cells[name]), name in roles) for name, column in used.items()]
    return Checked(found, [sentence for own in advice for sentence in own])


def _role_columns(schema: Path) -> Collection[str]:
    """Return the columns with a role, whose cells beyond the bounds are problems."""
    try:
        return load_roles(schema).roles.values()
    except SchemaError:
        return ()


def _advice(name: str, column: ReadColumn, cells: Cells, has_role: bool) -> Iterator[str]:
    """Yield advice about a column's cells: codes for a missing value, other capitals, numbers that are clamped."""
    held = cells.empty() | cells.among(column.missing_tokens or ())
    cells = cells.take(~held) if held.any() else cells
    if isinstance(column, Scaled):
        values = column.values(cells)
        read = np.isfinite(values)
        unread, values = cells.take(~read), values[read]
        common = column.common_codes
        codes = sorted({*beyond_bounds(values, column.low, column.high, common), *outlying(values, common)})
        texts = column.code_texts(cells, codes)
        yield from _advice_on_codes(name, column, cells, [*texts, *token_texts(unread), *number_texts(unread)])
        values = values[~np.isin(values, codes)]
        below, above = np.count_nonzero(values < column.low), np.count_nonzero(values > column.high)
        if below + above and not has_role:
            yield (
                f"column '{name}': {below + above} of {len(held)} cells are beyond the bounds and are clamped ({below} "
                f"below `lower`, {above} above `upper`); if they are right, widen the bounds, from public knowledge."
            )
    elif isinstance(column, OneOf):
        codes_of, distinct = cells.coded()
        unknown = cells.take(np.array([column.place(text) < 0 for text in distinct] or [False], dtype=bool)[codes_of])
        yield from _advice_on_codes(name, column, unknown, [*token_texts(unknown), *number_texts(unknown)])
        if isinstance(column, Categorical):
            yield from _advice_on_capitals(name, column, unknown)


def _advice_on_codes(name: str, column: ReadColumn, cells: Cells, texts: list[str]) -> Iterator[str]:
    """Yield advice about codes for a missing value that a column's cells hold."""
    if not texts:
        return
    shown, line = " or ".join(f"'{text}'" for text in texts), token_line([*(column.missing_tokens or ()), *texts])
    also = "" if column.may_be_empty else ", with a public `missing` value or `indicator = true`"
    yield (
        f"column '{name}': {cells_hold(cells.among(texts))} {shown}, probably for a missing value. If the code book "
        f"says so, write `{line}` for this column{also}."
    )


def _advice_on_capitals(name: str, column: Categorical, cells: Cells) -> Iterator[str]:
    """Yield advice about cells that differ from a category in capitals only."""
    texts = set(cells.coded()[1])
    found = {
        category: [*(column.synonyms or {}).get(category, ()), *sorted(spellings)]
        for category in column.categories
        if (spellings := texts & {category.lower(), category.upper(), category.capitalize(), category.title()})
    }
    if found:
        mask = cells.among([spelling for each in found.values() for spelling in each])
        synonyms = {**(column.synonyms or {}), **found}
        line = ", ".join(
            f"{json.dumps(category, ensure_ascii=False)} = {json.dumps(list(own), ensure_ascii=False)}"
            for category, own in synonyms.items()
        )
        yield (
            f"column '{name}': {cells_hold(mask)} a category in other capitals: write `synonyms = {{{line}}}` for this "
            "column, or correct the cells."
        )


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
