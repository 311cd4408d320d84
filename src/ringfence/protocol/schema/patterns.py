"""Patterns and defaults of a schema file: one line for many columns, written out before the schema is validated.

A plan carries every column by its name, so that its digest covers each. A schema file may be shorter:

    [columns."gene_*"]          the columns of the table at hand whose names match
    [columns."gene_{1..500}"]   gene_1 to gene_500, whether or not there is a table
    columns = ["gene_*"]        in a map, those of the schema's columns that match
    [defaults.numeric]          what columns of this type say unless they say otherwise
    missing_tokens = [...]      cells that hold nothing, in all columns that do not name their own
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ringfence.errors import SchemaError
from ringfence.protocol.schema.columns import TYPES, type_of
from ringfence.protocol.schema.columns.base import ReadColumn
from ringfence.protocol.schema.roles import ROLES

_RANGE = re.compile(r"\{(\d{1,9})\.\.(\d{1,9})\}")

MOST_COLUMNS = 100_000


def expanded(content: Mapping[str, Any], *, source: str, header: Callable[[], Sequence[str]] | None) -> dict[str, Any]:
    """Return a schema's content with patterns written out: every column by its name."""
    said = dict(content)
    defaults, tokens = said.pop("defaults", {}), said.pop("missing_tokens", None)
    if not isinstance(defaults, Mapping) or not all(isinstance(each, Mapping) for each in defaults.values()):
        raise SchemaError(f"In {source}, `defaults` must have a table for each type, such as [defaults.numeric].")
    if unknown := [kind for kind in defaults if kind not in TYPES]:
        raise SchemaError(f"In {source}, `defaults.{unknown[0]}` is not a type of column: use {', '.join(TYPES)}.")
    columns = said.get("columns")
    if not isinstance(columns, Mapping):
        return said
    named = _by_name(columns, source, header() if header is not None and any("*" in name for name in columns) else None)
    said["columns"] = {name: _filled_up(column, defaults, tokens) for name, column in named.items()}
    if isinstance(said.get("maps"), list):
        beside = [said.get(part) for part in ("target", *ROLES)]
        features = [name for name, column in named.items() if _is_read(column) and name not in beside]
        said["maps"] = [_of_columns(each, named, features, source) for each in said["maps"]]
    return said


def _is_read(column: Any) -> bool:
    """Tell whether a column in a schema file has a type whose cells are read."""
    kind = type_of(column)
    return kind is not None and issubclass(kind, ReadColumn)


def _of_columns(map: Any, named: Mapping[str, Any], features: Sequence[str], source: str) -> Any:
    """Return a feature map with its patterns written out: every column by its name."""
    if not isinstance(map, Mapping) or not isinstance(map.get("columns"), list):
        return map
    names: list[Any] = []
    for one in map["columns"]:
        if not isinstance(one, str) or one in named or not _is_pattern(one):
            names.append(one)
            continue
        matches = [name for name in _matches(one, source, features) if name in features]
        if not matches:
            raise SchemaError(f"In {source}, no column matches the pattern '{one}' of a map: correct or remove it.")
        names += matches
    return {**map, "columns": names}


def _filled_up(column: Any, defaults: Mapping[str, Any], tokens: Any) -> Any:
    """Fill in the defaults of a column's type, as a schema file with patterns states them."""
    if not isinstance(column, Mapping):
        return column
    filled = {**defaults.get(str(column.get("type")), {}), **column}
    if tokens is not None and _is_read(column):
        filled.setdefault("missing_tokens", tokens)
    return filled


def _by_name(columns: Mapping[str, Any], source: str, header: Sequence[str] | None) -> dict[str, Any]:
    """Write patterns of columns out; a column that is named by itself is not one of a pattern's."""
    found: dict[str, Any] = {}
    pattern_of: dict[str, str] = {}
    literal = {name for name in columns if name in (header or ()) or not _is_pattern(name)}
    for pattern, column in columns.items():
        if pattern in literal:
            found[pattern] = column
            continue
        matches = [name for name in _matches(pattern, source, header) if name not in literal]
        if not matches:
            raise SchemaError(f"In {source}, no column matches the pattern '{pattern}': correct or remove it.")
        for name in matches:
            if name in pattern_of:
                raise SchemaError(
                    f"In {source}, column '{name}' matches two patterns, '{pattern_of[name]}' and '{pattern}': name it "
                    "by itself, or make one of them narrower."
                )
            found[name], pattern_of[name] = column, pattern
    return found


def _is_pattern(name: str) -> bool:
    """Tell whether a column's name in a schema is a pattern, with * or {first..last}."""
    return "*" in name or _RANGE.search(name) is not None


def _matches(pattern: str, source: str, header: Sequence[str] | None) -> Iterator[str]:
    """Yield the names of columns that a pattern in a schema stands for."""
    for name in _ranges(pattern, source):
        if "*" not in name:
            yield name
        elif header is None:
            raise SchemaError(
                f"In {source}, the pattern '{pattern}' stands for columns of a table, and there is no table here: "
                "give the numbers, as in gene_{1..500}, or name each column."
            )
        else:
            yield from (column for column in header if _fits(column, name))


def _fits(column: str, pattern: str) -> bool:
    """Tell whether a column's name matches a pattern with *: each part may as well stand where it occurs first."""
    first, *parts, last = pattern.split("*")
    place, end = len(first), len(column) - len(last)
    if place > end or not column.startswith(first) or not column.endswith(last):
        return False
    for part in parts:
        if (found := column.find(part, place, end)) < 0:
            return False
        place = found + len(part)
    return True


def _ranges(pattern: str, source: str) -> list[str]:
    """Write {first..last} out, with leading zeros where the first number has some."""
    names = [pattern]
    while (found := _RANGE.search(names[0])) is not None:
        first, last = found.groups()
        width = len(first) if first.startswith("0") else 0
        numbers = range(int(first), int(last) + 1)
        if len(numbers) * len(names) > MOST_COLUMNS:
            raise SchemaError(f"In {source}, the pattern '{pattern}' stands for more than {MOST_COLUMNS} columns.")
        if not numbers:
            return []
        names = [_RANGE.sub(f"{number:0{width}d}", name, count=1) for name in names for number in numbers]
    return names
