"""What cells of each type of column look like, for a draft and for advice, and what these say of them."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ringfence.protocol.schema.codes import DATES, NUMBERS, code_text, outlying
from ringfence.protocol.schema.columns import type_of
from ringfence.protocol.schema.columns.base import UNFILLED, UNKNOWN, unfilled
from ringfence.protocol.schema.columns.categorical import Categorical, OneOf, truth_value
from ringfence.protocol.schema.columns.date import Date, seconds_of
from ringfence.protocol.schema.columns.numeric import Scaled
from ringfence.sources.cells import Cells
from ringfence.sources.features.ngrams import words_of

Fields: TypeAlias = dict[str, Any]

_BOUNDS: Fields = {"lower": UNFILLED, "upper": UNFILLED}

_DATE_FORMATS = (None, "%d.%m.%Y", "%d.%m.%y", "%d.%m.%Y %H:%M", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d")

_PERSON_WORDS = {
    "account", "client", "customer", "employee", "household", "id", "insured", "member", "mrn", "patient", "person",
    "policyholder", "pupil", "ssn", "student", "subject", "user",
    "fallnr", "fallnummer", "kunde", "kundennummer", "patienten", "patientennummer", "pat", "patnr", "pid",
    "versicherte",
}  # fmt: skip


def may_identify_persons(column: str) -> bool:
    """Tell whether a column's name suggests that it identifies persons."""
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", column)
    return not _PERSON_WORDS.isdisjoint(word.lower().removesuffix("s") for word in words)


def common_codes(column: Scaled) -> frozenset[float]:
    """Return the numbers, or dates, that commonly mark a missing value, as the column counts."""
    return frozenset(map(column.number_of, DATES)) if isinstance(column, Date) else NUMBERS


def code_texts(column: Scaled, cells: Cells, codes: Sequence[float]) -> list[str]:
    """Return the texts by which a schema names these numbers, or dates, among a column's cells."""
    if not isinstance(column, Date):
        return [code_text(code) for code in codes]
    return sorted(set(cells.take(np.isin(column.values(cells), codes)).coded()[1])) if codes else []


def mended_synonyms(column: OneOf, cells: Cells) -> dict[str, list[str]]:
    """Return the synonyms with the usual spellings of categories, in other capitals, that cells have."""
    if not isinstance(column, Categorical):
        return {}
    texts = set(cells.coded()[1])
    found: dict[str, list[str]] = {}
    for category in column.categories:
        usual = {category.lower(), category.upper(), category.capitalize(), category.title()}
        if spellings := sorted(texts & usual):
            found[category] = [*(column.synonyms or {}).get(category, ()), *spellings]
            texts -= usual
    return {**{category: list(own) for category, own in (column.synonyms or {}).items()}, **found} if found else {}


def without_open_fields(column: Any) -> Any:
    """Return a column of a drafted schema without its open fields; ignored if they cannot be left out."""
    open_fields = [] if type_of(column) is None else unfilled(column)
    if open_fields and column["type"] != "numeric":
        return {"type": "ignore"}
    bounds = {"lower": -UNKNOWN, "upper": UNKNOWN}
    return {**column, **{field: bounds[field] for field in open_fields if field in bounds}} if open_fields else column


def _boolean(cells: Cells, name: str) -> Fields | None:
    """Accept columns in which both truth values occur, and nothing else."""
    return {} if {truth_value(text) for text in cells.coded()[1]} == {0, 1} else None


def _numbers(cells: Cells) -> NDArray[np.bool_]:
    """Return the mask of cells that are finite numbers."""
    return np.isfinite(cells.numbers())


def _date(cells: Cells, name: str) -> Fields | None:
    """Accept columns of dates in one of the usual formats; if two fit, the format is left open."""
    if cells.times() is not None:
        return _BOUNDS
    _, distinct = cells.coded()
    fit = [form for form in _DATE_FORMATS if not any(math.isnan(seconds_of(text, form)) for text in distinct)]
    if not fit:
        return None
    return _BOUNDS if fit[0] is None else {**_BOUNDS, "format": fit[0] if len(fit) == 1 else UNFILLED}


def _dates(cells: Cells) -> NDArray[np.bool_]:
    """Return the mask of cells that are dates in the usual format that fits most of them."""
    codes, distinct = cells.coded()
    if not any(text[:1].isdigit() for text in distinct):  # a text that begins with no digit is not parsed
        return np.zeros(len(cells), dtype=bool)
    fits = [
        np.array([text[:1].isdigit() and not math.isnan(seconds_of(text, form)) for text in distinct])[codes]
        for form in _DATE_FORMATS
    ]
    return max(fits, key=np.count_nonzero)


def _date_codes(cells: Cells, fields: Mapping[str, Any]) -> list[str]:
    """Return the dates for a missing value that lie far from all other dates."""
    if fields.get("format") == UNFILLED:
        return []
    column = Date(lower="0001-01-01", upper="9999-12-31", format=fields.get("format"))
    return code_texts(column, cells, outlying(column.values(cells), common_codes(column)))


def _text(cells: Cells, name: str) -> Fields | None:
    """Accept columns as text in which most cells have three words or more, unless few values repeat."""
    codes, distinct = cells.coded()
    long = np.array([len(words_of(text)) > 2 for text in distinct], dtype=bool)
    values = len(np.unique(codes))
    varied = values >= 20 or 2 * values > len(codes)
    return {"words": 256} if len(codes) and varied and np.mean(long[codes]) > 0.5 else None


def _categorical(cells: Cells, name: str) -> Fields | None:
    """Accept any column as categorical, unless it has 20 texts or more, and most are distinct."""
    count, values = len(cells), len(np.unique(cells.coded()[0]))
    return None if values >= 20 and 2 * values > count else {"categories": [UNFILLED]}


class DraftedType(NamedTuple):
    """A type of column, as a draft tries it."""

    accepts: Callable[[Cells, str], Fields | None]
    """Returns the fields of a drafted column, given its cells and its name, or None if they do not look like it."""
    readable: Callable[[Cells], NDArray[np.bool_]] = lambda cells: np.zeros(len(cells), dtype=bool)
    """Returns the mask of cells that the type can read; none, if it reads all or no cells."""
    codes: Callable[[Cells, Mapping[str, Any]], list[str]] = lambda cells, fields: []
    """Returns the common codes for a missing value that lie far from all other cells."""
    holds_words: bool = True
    """Whether a word such as "unknown" may be a value of it."""
    holds_texts: bool = False
    """Whether any texts may have this type, so that a few cells may hide a narrower one."""
    off: str = ""
    """Why a draft ignores a column of this type, if it does."""


DRAFTED: dict[str, DraftedType] = {
    "identifier": DraftedType(lambda cells, name: {} if may_identify_persons(name) else None),
    "boolean": DraftedType(_boolean, holds_words=False),
    "numeric": DraftedType(
        lambda cells, name: _BOUNDS if _numbers(cells).all() else None,
        _numbers,
        lambda cells, fields: [code_text(code) for code in outlying(cells.numbers())],
        holds_words=False,
    ),
    "date": DraftedType(_date, _dates, _date_codes, holds_words=False),
    "text": DraftedType(
        _text,
        holds_texts=True,
        off='free text; type = "text" makes features of its words, which need a larger budget',
    ),
    "categorical": DraftedType(_categorical, holds_texts=True),
    "ignore": DraftedType(
        lambda cells, name: {}, holds_texts=True, off="mostly distinct texts: names, identifiers or notes"
    ),
}
"""The types that a draft tries, by name, in this order; no cells show that a column is a vector or a code."""
