"""A schema to fill in: names and types of a table's columns, and nothing else of it."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ringfence.protocol.schema.columns import TYPES
from ringfence.protocol.schema.columns.base import may_identify_persons
from ringfence.sources.cells import Cells, Table, as_cells
from ringfence.storage.toml_files import toml_text

TOKENS = ("NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "-", "?", ".")
"""Common texts for a missing value."""


def drafted_columns(table: Table) -> dict[str, dict[str, Any]]:
    """Return a drafted column for each column, by what its cells look like; no value is kept."""
    return {name: _drafted(name, as_cells(cells)) for name, cells in table.items()}


def has_tokens(table: Table) -> bool:
    """Tell whether a cell holds one of the common texts for a missing value."""
    return any(as_cells(cells).among(TOKENS).any() for cells in table.values())


def _drafted(name: str, cells: Cells) -> dict[str, Any]:
    """Return the type and fields of a drafted column: the first type that accepts its cells."""
    cells = cells.take(~(cells.empty() | cells.among(TOKENS)))
    if not len(cells):
        return {"type": "categorical", **(TYPES["categorical"].drafted(cells, name) or {})}
    found = ((kind, column.drafted(cells, name)) for kind, column in TYPES.items())
    return next({"type": kind, **fields} for kind, fields in found if fields is not None)


def repeating_identifiers(table: Table) -> list[str]:
    """Return the columns that may identify persons and whose values repeat: for the file's owner only.

    They are called so, with at most 100 rows for each value on average; or hold text, and no dates, of 20 values or
    more, with at most 4 rows for each.
    """

    def looks_so(name: str, cells: Cells) -> bool:
        """Tell whether a column's name or repeating texts suggest identifiers of persons, for the draft."""
        count, values = len(cells), len(np.unique(cells.coded()[0]))
        if may_identify_persons(name):
            return values < count <= 100 * values
        is_text = bool(np.isnan(cells.numbers()).all()) and TYPES["date"].drafted(cells, name) is None
        return is_text and values >= 20 and values < count <= 4 * values

    return [name for name, cells in table.items() if looks_so(name, as_cells(cells))]


def draft_schema(columns: Mapping[str, Mapping[str, Any]], *, tokens: bool = False) -> str:
    """Return a schema to fill in, by drafted fields; `tokens`: some cells hold a common text for a missing value."""
    whose = [name for name in columns if may_identify_persons(name)]
    head = [
        '# Fill in every "?" from public knowledge (a code book, a law, common sense), never from the records:',
        "# bounds or categories read from private data would leak it.",
        "#   numeric       lower, upper: values beyond are clamped",
        "#                 center, scale (optional): where values are publicly known to concentrate",
        "#   categorical   categories: every value that may occur; other (optional): the one for all others",
        "#   boolean       true/false, yes/no, t/f, y/n or 0/1",
        "#   date          lower, upper; format (optional), such as %d.%m.%Y",
        "#   text          words: the public size of a dictionary that words are hashed into; all of them become",
        "#                 features, which need a larger budget: ignore a text that you can do without",
        "#   identifier    identifies a row or a person: never a feature",
        "#   ignore        the column is not used",
        "# missing = ... (optional) is the public value that stands in for an empty cell; indicator = true adds a",
        "# feature that marks empty cells.",
        "# Curves (optional) are public maps of columns. Name them here, above all columns; every added feature needs",
        "# a larger budget:",
        "# maps = [",
        '#   {type = "spline", columns = ["AGE"], knots = 5},           # a smooth curve of a number or date',
        '#   {type = "cyclic", columns = ["HOUR"], period = 24},        # what repeats, as a day or a year does',
        '#   {type = "interaction", columns = ["AGE", "BMI"]},          # products: one effect depends on another',
        '#   {type = "fourier", columns = ["AGE", "BMI"], features = 50, seed = 1},  # any smooth function of both',
        "# ]",
        '# If a person may have several rows, give the column that identifies persons type = "identifier", and name',
        "# it above all columns. Persons are then protected, with all their rows, rather than single rows:",
        *(f"# {toml_text({'person': name})}".rstrip() for name in whose or ["COLUMN"]),
        "",
    ]
    content: dict[str, Any] = {"missing_tokens": list(TOKENS)} if tokens else {}
    return "\n".join(head) + "\n" + toml_text({**content, "columns": columns})
