"""A schema to fill in: names and types of a table's columns, and nothing else of it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ringfence.protocol.schema.codes import TOKENS, cells_hold, number_texts, token_line, token_texts
from ringfence.protocol.schema.columns import TYPES
from ringfence.protocol.schema.columns.base import ReadColumn
from ringfence.protocol.schema.drafted_types import DRAFTED, may_identify_persons, without_open_fields
from ringfence.protocol.schema.schema import Header, TableColumns, load_columns
from ringfence.sources.cells import Cells, Table, as_cells
from ringfence.storage.toml_files import toml_text

NOTHING = "no cell holds a value"
CODES = "Common codes for a missing value. Keep those of the code book, and add a public `missing` or indicator = true."
"""Comments in a draft."""


class DraftedColumn(NamedTuple):
    """A column of a draft: its fields, a comment in the draft, and a sentence for the table's owner only."""

    fields: dict[str, Any]
    comment: str = ""
    remark: str = ""

    def toml(self, name: str) -> str:
        """Return the column as a part of a schema file."""
        fields = {field: said for field, said in self.fields.items() if field != "missing_tokens"}
        text = toml_text({"columns": {name: fields}})
        if tokens := self.fields.get("missing_tokens"):
            return f"{text}# {self.comment}\n{token_line(tokens)}\n"
        return f"{text.rstrip()}  # {self.comment}\n" if self.comment else text


def drafted_columns(table: Table) -> dict[str, DraftedColumn]:
    """Return a drafted column for each column, by what its cells look like.

    The only values kept are common codes for a missing value, which are a public list.
    """
    return {name: _drafted(name, as_cells(cells)) for name, cells in table.items()}


def has_tokens(table: Table, columns: Mapping[str, DraftedColumn]) -> bool:
    """Tell whether a cell that the draft's columns read holds one of the common texts for a missing value."""
    read = [name for name, column in columns.items() if issubclass(TYPES[column.fields["type"]], ReadColumn)]
    return any(as_cells(table[name]).among(TOKENS).any() for name in read)


def _drafted(name: str, cells: Cells) -> DraftedColumn:
    """Return a drafted column: the first type that accepts its cells, but for codes of missing values."""
    filled = cells.take(~(cells.empty() | cells.among(TOKENS)))
    if not len(cells):
        return DraftedColumn({"type": "categorical", **(DRAFTED["categorical"].accepts(cells, name) or {})})
    words = token_texts(filled)
    found = _without(filled, words)
    if not len(found):
        return DraftedColumn({"type": "ignore"}, NOTHING, f"{NOTHING}; the draft ignores it.")
    kind, fields = _first_type(found, name)
    column = DRAFTED[kind]
    codes = number_texts(found) if column.holds_texts else column.codes(found, fields)
    if codes and len(rest := _without(found, codes)):
        narrower = _first_type(rest, name)
        if not DRAFTED[narrower[0]].holds_words:
            return _with_tokens(cells, *narrower, [*words, *codes])
    if not column.holds_words:
        return _with_tokens(cells, kind, fields, words)
    if column.holds_texts and (mostly := _mostly(cells, found, words, name)) is not None:
        return mostly
    kind, fields = _first_type(filled, name) if words else (kind, fields)
    if off := DRAFTED[kind].off:
        return DraftedColumn({"type": "ignore"}, off, f"{off.partition(';')[0]}; the draft ignores it.")
    return DraftedColumn({"type": kind, **fields})


def _without(cells: Cells, texts: Sequence[str]) -> Cells:
    """Return the cells that hold none of these texts."""
    return cells.take(~cells.among(texts)) if texts else cells


def _first_type(cells: Cells, name: str) -> tuple[str, dict[str, Any]]:
    """Return the first type that accepts all cells, and its fields."""
    found = ((kind, column.accepts(cells, name)) for kind, column in DRAFTED.items())
    return next((kind, fields) for kind, fields in found if fields is not None)


def _with_tokens(cells: Cells, kind: str, fields: dict[str, Any], codes: Sequence[str]) -> DraftedColumn:
    """Return a drafted column with these codes for a missing value."""
    if not codes:
        return DraftedColumn({"type": kind, **fields})
    texts = set(cells.coded()[1])
    tokens = [*(token for token in TOKENS if token in texts and token not in codes), *codes]
    shown = " or ".join(f"'{code}'" for code in codes)
    remark = f"{cells_hold(cells.among(codes))} {shown}, listed in `missing_tokens`; check the code book."
    return DraftedColumn({"type": kind, **fields, "missing_tokens": tokens}, CODES, remark)


def _mostly(cells: Cells, found: Cells, words: Sequence[str], name: str) -> DraftedColumn | None:
    """Return a column of a type that most cells fit, such as numbers; None if there is no such type."""
    for kind, column in DRAFTED.items():
        mask = column.readable(found)
        read, others = found.take(mask), found.take(~mask)
        values = _distinct(read)
        fields = column.accepts(read, name) if values >= 10 else None
        if fields is None or (len(read) < 9 * len(others) and values < 10 * _distinct(others)):
            continue
        made = _with_tokens(cells, kind, fields, [*words, *column.codes(read, fields)])
        remark = (
            f'{len(others)} of {len(found)} cells do not fit type = "{kind}", which the draft has all the same. '
            "`ringfence schema check` names their rows: list codes for a missing value in `missing_tokens`, and "
            "correct other cells."
        )
        return made._replace(remark=f"{made.remark} {remark}".strip())
    return None


def _distinct(cells: Cells) -> int:
    """Return the number of distinct cells."""
    return len(np.unique(cells.coded()[0]))


def repeating_identifiers(table: Table) -> list[str]:
    """Return the columns that may identify persons and whose values repeat: for the file's owner only.

    They are called so, with at most 100 rows for each value on average; or hold words, no date and no free text, of 20
    values or more, with at most 4 rows for each.
    """

    def looks_so(name: str, cells: Cells) -> bool:
        """Tell whether a column's name or repeating texts suggest identifiers of persons, for the draft."""
        count, values = len(cells), _distinct(cells)
        if may_identify_persons(name):
            return values < count <= 100 * values
        if values < 20 or not values < count <= 4 * values:
            return False
        is_text = not any(column.readable(cells).any() for column in DRAFTED.values())
        return is_text and DRAFTED["text"].accepts(cells, name) is None

    return [name for name, cells in table.items() if looks_so(name, as_cells(cells))]


def draft_schema(columns: Mapping[str, DraftedColumn], *, tokens: bool = False) -> str:
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
    above = [token_line(TOKENS), ""] if tokens else []
    return "\n".join([*head, *above, *(column.toml(name) for name, column in columns.items())])


def load_draft(path: Path, header: Header | None = None) -> TableColumns:
    """Read a schema file in which bounds may not be filled in yet: such numbers are unbounded.

    Columns whose other fields are not filled in are ignored: no query can find those out.
    """

    def prepared(content: dict[str, Any]) -> dict[str, Any]:
        """Return a schema's content without maps and without fields that are not filled in."""
        kept = {name: value for name, value in content.items() if name != "maps"}
        if isinstance(columns := kept.get("columns"), Mapping):
            kept["columns"] = {name: without_open_fields(each) for name, each in columns.items()}
        return kept

    return load_columns(path, header, prepare=prepared)
