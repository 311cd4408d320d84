"""Common codes for a missing value: texts, numbers and dates that code books use everywhere.

The lists are public, so a draft may name one of them without telling a record's value.
"""

import json
import re
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ringfence.protocol.arrays import FloatArray
from ringfence.sources.cells import Cells, number_text

TOKENS = ("NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "-", "?", ".")
"""Texts that mean a missing value in a column of any type."""

_WORDS = frozenset(
    """
    na n/a nan null none nil - -- --- – — ? ?? ??? * #n/a #na #value! #null! #div/0! nd n/d nr nb ne ka k/a
    unknown unk unkn missing notknown notavailable notapplicable notrecorded notdone notmeasured nodata noanswer refused
    unbekannt unbek keineangabe keineangaben fehlt fehlend nichtbekannt nichterhoben nichtgemessen entfällt
    inconnu nonconnu manquant desconocido nodisponible sconosciuto mancante onbekend ontbreekt okänd ukendt ukjent
    """.split()  # noqa: SIM905 - a list of words reads better so
)
"""Texts that mean a missing value among numbers, dates or truth values, without capitals, spaces and points."""


def _number_codes() -> frozenset[float]:
    """Return −1 to −9, and 77, 88, 99, 777, 99.9, 997, 9999 and their like, of either sign."""
    repeated = [digit * count for digit in "789" for count in range(2, 9)]
    repeated += ["9" * count + last for last in "678" for count in range(2, 6)]
    texts = repeated + [f"{digits[:-1]}.{digits[-1]}" for digits in repeated if len(digits) > 2]
    positive = {*map(float, texts), 32767.0, 65535.0, 2147483647.0}
    return frozenset(positive | {-value for value in positive} | {-float(digit) for digit in range(1, 10)})


NUMBERS = _number_codes()

DIGITS = (7.0, 8.0, 9.0)
"""Codes among at most `FEW` categories or numbers."""

FEW = 3

DATES = ("0001-01-01", "1111-11-11", "1753-01-01", "1800-01-01", "1899-12-30", "1900-01-01",
         "2099-12-31", "2999-12-31", "9999-09-09", "9999-12-31")  # fmt: skip


def token_texts(cells: Cells) -> list[str]:
    """Return the distinct texts of cells that mean a missing value among numbers, dates or truth values."""
    short = {text for text in cells.coded()[1] if len(text) <= 25 and not text[-1:].isdigit()}
    return [text for text in sorted(short) if re.sub(r"[\s.()\[\]]", "", text).casefold() in _WORDS]


def number_texts(cells: Cells) -> list[str]:
    """Return the common numbers for a missing value that cells of another type hold, as texts."""
    values = np.unique(cells.numbers())
    return [code_text(value) for value in values[np.isin(values, [*NUMBERS, *DIGITS])].tolist()]


def outlying(values: FloatArray, common: Iterable[float] = NUMBERS) -> list[float]:
    """Return the common codes that occur twice or more, outside all other numbers of a column and far from them.

    Far is farther than the others are from each other; or negative where the others are not, unless many are.
    """
    distinct, counts = np.unique(values, return_counts=True)
    few = np.count_nonzero(~np.isin(distinct, [*common, *DIGITS])) <= FEW
    are_codes = np.isin(distinct, [*common, *(DIGITS if few else ())])
    others = distinct[~are_codes]
    if len(others) < 2:
        return []
    low, high = float(others[0]), float(others[-1])
    many = np.count_nonzero(distinct < 0) > FEW
    negative = -np.inf if many or low < 0 else -1.0 if low > 0 else -9.0
    found: list[float] = []
    for code in distinct[are_codes & (distinct > high)].tolist():
        if code > 2 * high - low:
            found.append(code)
        else:
            high = code  # near the others, so one of them
    for code in reversed(distinct[are_codes & (distinct < low)].tolist()):
        if code < 2 * low - high or code <= negative:
            found.append(code)
        else:
            low = code
    repeated = set(distinct[counts > 1].tolist())
    return [code for code in sorted(found) if code in repeated]


def beyond_bounds(values: FloatArray, low: float, high: float, common: Iterable[float] = NUMBERS) -> list[float]:
    """Return the numbers beyond a column's bounds that look like codes for a missing value.

    Common codes do if they are far out, or repeat and are most of the numbers on their side; others, if they are all
    of that and repeat ten times or more.
    """
    found: list[float] = []
    known = [*common, 0.0]
    for side in (values[values < low], values[values > high]):
        distinct, counts = np.unique(side, return_counts=True)
        far = np.maximum(low - distinct, distinct - high) > high - low
        are_codes = np.isin(distinct, known)
        most = 2 * counts[are_codes].sum() >= len(side)
        others = far & (counts >= 10) & (2 * counts >= len(side))
        found += distinct[(are_codes & (far | (most & (counts > 1)))) | others].tolist()
    return found


def token_line(tokens: Sequence[str]) -> str:
    """Return the line of a schema that names codes for a missing value."""
    return f"missing_tokens = [{', '.join(json.dumps(token, ensure_ascii=False) for token in tokens)}]"


def code_text(value: float) -> str:
    """Return a number as the text of a code for a missing value."""
    return number_text(value) if abs(value) < 1e15 else repr(value)


def cells_hold(mask: NDArray[np.bool_]) -> str:
    """Return the beginning of a sentence about the cells of a mask."""
    count = np.count_nonzero(mask)
    return "1 cell holds" if count == 1 else f"{count} cells hold"
