"""From what people pass to `fit` to one table with a silo's name per row; no value is interpreted here."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringfence.errors import EstimatorError

ALONE = "all"
"""The name of the one silo where nobody names any."""


def is_frame(X: Any) -> bool:
    """Tell whether this is a table with named columns, as of pandas."""
    return hasattr(X, "columns") and hasattr(X, "iloc")


@dataclass(frozen=True)
class Labels:
    """Which silo each row is of: a label per row, and the silos in order if somebody gave them one."""

    rows: Any = None
    order: Sequence[str] | None = None

    def by_silo(self, count: int) -> dict[str, NDArray[np.int64]]:
        """Return the row numbers of every silo, sorted by label if they have no order; without labels, of one silo."""
        if self.rows is None:
            return {ALONE: np.arange(count)}
        labels = np.asarray(self.rows, dtype=object)
        if labels.shape != (count,):
            raise EstimatorError(f"`silos` must have one label for each of the {count} rows of X.")
        found: dict[Any, list[int]] = {}
        for row, label in enumerate(labels.tolist()):
            if is_missing(label):
                raise EstimatorError("`silos` has a row without a label: every record belongs to a silo.")
            found.setdefault(label, []).append(row)
        try:
            order = sorted(found) if self.order is None else self.order
        except TypeError:  # labels of several types
            order = sorted(found, key=str)
        if len({str(label) for label in order}) != len(order):
            raise EstimatorError("`silos` has two labels that read the same: make them of one type.")
        return {str(label): np.array(found[label], dtype=np.int64) for label in order}


def join(X: Any, y: Any, silos: Any, persons: Any) -> tuple[Any, Any, Labels, Any]:
    """Return X, y, the silos' labels and the persons', whichever way the silos' tables were given.

    One table: `silos` has a label per row. A mapping of tables by silo, with y alike; or a list of tables, with a list
    of targets, where `silos`, if given, names each table. `persons`, if given, come as y does.
    """
    if isinstance(X, Mapping) and not hasattr(X, "shape"):  # some sparse matrices are mappings too
        if silos is not None:
            raise EstimatorError("X names its silos by its keys, and `silos` names some too: leave `silos` out.")
        if not isinstance(y, Mapping) or set(y) != set(X):
            raise EstimatorError("X is a mapping of tables by silo, so y must be one of targets, with the same keys.")
        if persons is not None and (not isinstance(persons, Mapping) or set(persons) != set(X)):
            raise EstimatorError("X is a mapping of tables by silo, so `persons` must be one too, with the same keys.")
        owners = None if persons is None else [persons[name] for name in X]
        return _stacked(list(X.values()), [y[name] for name in X], owners, list(X))
    if isinstance(X, list | tuple) and X and all(hasattr(table, "shape") and np.ndim(table) == 2 for table in X):
        names = [f"silo-{number}" for number in range(1, len(X) + 1)] if silos is None else list(silos)
        if not isinstance(y, list | tuple) or len(y) != len(X) or len(names) != len(X):
            raise EstimatorError(
                f"X is a list of {len(X)} tables, one per silo, so y must be a list of as many targets, and `silos`, "
                "if given, a list of as many names."
            )
        if persons is not None and (not isinstance(persons, list | tuple) or len(persons) != len(X)):
            raise EstimatorError(f"X is a list of {len(X)} tables, so `persons` must be a list of as many arrays.")
        return _stacked(list(X), list(y), persons, names)
    return X, y, Labels(silos), persons


def _stacked(
    tables: Sequence[Any], targets: Sequence[Any], persons: Sequence[Any] | None, names: Sequence[Any]
) -> tuple[Any, Any, Labels, Any]:
    texts = [str(name) for name in names]
    if len(set(texts)) != len(texts):
        raise EstimatorError("Two tables name the same silo: join them, or rename one.")
    for given, parts in (("y", targets), ("`persons`", persons or targets)):
        for name, table, part in zip(texts, tables, parts, strict=True):
            if len(table) != len(part):
                raise EstimatorError(f"Silo '{name}' has {len(table)} rows in X and {len(part)} in {given}.")
    if not tables:
        raise EstimatorError("There is no table: give one per silo.")
    if is_frame(tables[0]):
        import pandas as pd

        if not all(is_frame(table) and list(table.columns) == list(tables[0].columns) for table in tables):
            raise EstimatorError("The silos' tables must have the same columns in the same order.")
        X: Any = pd.concat(tables, ignore_index=True)
    else:
        if len({np.shape(table)[1] for table in tables}) != 1:
            raise EstimatorError("The silos' tables must have the same number of columns.")
        X = np.concatenate([np.asarray(table) for table in tables])
    y = np.concatenate([np.asarray(target) for target in targets])
    labels = [name for name, table in zip(texts, tables, strict=True) for _ in range(len(table))]
    owners = None if persons is None else [person for part in persons for person in part]
    return X, y, Labels(labels, texts), owners


def owners(persons: Any, count: int) -> list[str] | None:
    """Return each row's person as a text, if somebody says whose rows are whose."""
    if persons is None:
        return None
    labels = np.asarray(persons, dtype=object)
    if labels.shape != (count,):
        raise EstimatorError(f"`persons` must have one label for each of the {count} rows of X.")
    found = texts(labels.tolist())
    if "" in found:
        raise EstimatorError(
            f"Row {found.index('')} of `persons` (the first is row 0) does not say whose it is: give it a label, or "
            "remove the row."
        )
    return found


def unused(name: Any, default: str, taken: Collection[str]) -> str:
    """Return a column's name, or the default if it is none, that no other column has."""
    free = name if isinstance(name, str) and name else default
    while free in taken:
        free += "_"
    return free


def without(X: Any, column: str | None) -> Any:
    """Return a frame without that column, if it has it."""
    return X.drop(columns=column) if column in X.columns else X


def per_silo(what: str, value: Any, silos: Sequence[str]) -> dict[str, float | None]:
    """Return a number for each silo, from one for all, one per silo in their order, or a mapping by name."""
    if isinstance(value, Mapping):
        named = {str(name): number for name, number in value.items()}
        unnamed = [name for name in silos if name not in named]  # of those named, a fold may have no record
        if unnamed:
            raise EstimatorError(f"`{what}` must have a number for every silo, but has none for {', '.join(unnamed)}.")
        values = [named[name] for name in silos]
    elif value is None or np.ndim(value) == 0:
        values = [value] * len(silos)
    else:
        values = list(value)
        if len(values) != len(silos):
            raise EstimatorError(f"`{what}` has {len(values)} numbers for {len(silos)} silos: {', '.join(silos)}.")
    try:
        return {name: None if v is None else float(v) for name, v in zip(silos, values, strict=True)}
    except (TypeError, ValueError):
        raise EstimatorError(f"`{what}` must be a number, or one per silo.") from None


def cells(frame: Any) -> dict[str, list[str]]:
    """Return a frame's columns as the text cells that a CSV file would have; what is missing is empty."""
    return {str(name): texts(frame[name]) for name in frame.columns}


def texts(values: Iterable[Any]) -> list[str]:
    """Return values as text cells; what is missing is empty."""
    return [_text(value) for value in values]


def is_missing(value: Any) -> bool:
    """Tell whether a cell holds nothing: None, NaN, or what pandas writes instead."""
    if isinstance(value, float | np.floating):
        return bool(np.isnan(value))
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def _text(value: Any) -> str:
    if is_missing(value):
        return ""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))  # pandas makes 1.0 of 1 where a column has gaps, and "1" is the category
    return str(value).strip()


def row_bytes(columns: Mapping[str, Sequence[str]] | NDArray[np.float64]) -> Iterator[bytes]:
    """Return what identifies each row: its numbers, or its cells in the order of the columns' names."""
    if isinstance(columns, np.ndarray):
        positive = np.ascontiguousarray(columns + 0.0)  # −0 becomes 0
        yield from (row.tobytes() for row in positive)
    else:
        names = sorted(columns)
        for row in zip(*(columns[name] for name in names), strict=True):
            yield repr(row).encode()
