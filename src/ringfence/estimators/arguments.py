"""From the arguments of `fit` to one table with a silo's name for each row. No value is interpreted here."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringfence.errors import EstimatorError
from ringfence.protocol.arrays import FloatArray
from ringfence.sources import frames

ALONE = "all"
"""The silo's name if no silos are given."""


def is_frame(X: Any) -> bool:
    """Tell whether this is a table with named columns, as of pandas."""
    return frames.is_pandas(X)


def as_frame(X: Any) -> Any:
    """Return a table of polars or pyarrow as one of pandas, and anything else as it is."""
    return X.to_pandas() if frames.is_arrow_like(X) else X


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
            if frames.is_missing(label):
                raise EstimatorError(
                    "`silos` has a row without a label, but every record belongs to a silo: label the row or remove it."
                )
            found.setdefault(label, []).append(row)
        try:
            order = sorted(found) if self.order is None else self.order
        except TypeError:  # labels of several types
            order = sorted(found, key=str)
        if len({str(label) for label in order}) != len(order):
            raise EstimatorError(
                "`silos` has two labels with the same text but different types, such as 1 and '1': use one type."
            )
        return {str(label): np.array(found[label], dtype=np.int64) for label in order}


class Joined(NamedTuple):
    """All silos' rows, one below the other: X, y, which silo's each is, whose, and how much it counts, if told."""

    X: Any
    y: Any
    labels: Labels
    persons: Any
    weights: Any


def join(X: Any, y: Any, silos: Any, persons: Any, weights: Any = None) -> Joined:
    """Return the rows, whichever way the silos' tables were given.

    One table: `silos` has a label per row. A mapping of tables by silo, with y alike; or a list of tables, with a list
    of targets, where `silos`, if given, names each table. `persons` and `sample_weight`, if given, come as y does.
    """
    X = as_frame(X)
    beside = {"persons": persons, "sample_weight": weights}
    if isinstance(X, Mapping) and not hasattr(X, "shape"):  # some sparse matrices are mappings too
        if silos is not None:
            raise EstimatorError("The keys of X already name the silos: leave `silos` out.")
        if not isinstance(y, Mapping) or set(y) != set(X):
            raise EstimatorError(
                "X is a mapping from silo to table, so y must be a mapping from silo to targets with the same keys."
            )
        for name, given in beside.items():
            if given is not None and (not isinstance(given, Mapping) or set(given) != set(X)):
                raise EstimatorError(
                    f"X is a mapping from silo to table, so `{name}` must be a mapping from silo with the same keys."
                )
        parts = {name: None if own is None else [own[silo] for silo in X] for name, own in beside.items()}
        return _stacked(list(X.values()), [y[name] for name in X], parts, list(X))
    if isinstance(X, list | tuple) and X and all(hasattr(table, "shape") and np.ndim(table) == 2 for table in X):
        names = [f"silo-{number}" for number in range(1, len(X) + 1)] if silos is None else list(silos)
        if not isinstance(y, list | tuple) or len(y) != len(X) or len(names) != len(X):
            raise EstimatorError(
                f"X is a list of {len(X)} tables, one per silo, so y must be a list of {len(X)} arrays, and `silos`, "
                f"if given, a list of {len(X)} names."
            )
        for name, given in beside.items():
            if given is not None and (not isinstance(given, list | tuple) or len(given) != len(X)):
                raise EstimatorError(f"X is a list of {len(X)} tables, so `{name}` must be a list of {len(X)} arrays.")
        return _stacked(list(X), list(y), beside, names)
    return Joined(X, y, Labels(silos), persons, weights)


def _stacked(
    tables: Sequence[Any], targets: Sequence[Any], beside: Mapping[str, Sequence[Any] | None], names: Sequence[Any]
) -> Joined:
    texts = [str(name) for name in names]
    if len(set(texts)) != len(texts):
        raise EstimatorError("Two tables belong to the same silo: join them, or rename one.")
    for given, parts in {"y": targets, **{f"`{name}`": own for name, own in beside.items()}}.items():
        for name, table, part in zip(texts, tables, targets if parts is None else parts, strict=True):
            if len(table) != len(part):
                raise EstimatorError(
                    f"Silo '{name}' has {len(table)} rows in X but {len(part)} in {given}: give one entry for each row."
                )
    if not tables:
        raise EstimatorError("X has no tables: give one for each silo.")
    if is_frame(tables[0]):
        import pandas as pd

        if not all(is_frame(table) and list(table.columns) == list(tables[0].columns) for table in tables):
            raise EstimatorError(
                "The silos' tables have different columns, or the same ones in another order: give all of them the "
                "same columns in the same order."
            )
        X: Any = pd.concat(tables, ignore_index=True)
    else:
        if len({np.shape(table)[1] for table in tables}) != 1:
            raise EstimatorError(
                "The silos' tables have different numbers of columns: give all of them the same columns."
            )
        X = np.concatenate([np.asarray(table) for table in tables])
    y = np.concatenate([np.asarray(target) for target in targets])
    labels = [name for name, table in zip(texts, tables, strict=True) for _ in range(len(table))]
    rows = {name: None if own is None else [each for part in own for each in part] for name, own in beside.items()}
    return Joined(X, y, Labels(labels, texts), rows["persons"], rows["sample_weight"])


def weights(given: Any, count: int, bound: float | None) -> FloatArray | None:
    """Return how much each row counts, if somebody says so: from 0 to the public bound."""
    if given is None:
        return None
    if bound is None or not 0 < bound < np.inf:
        raise EstimatorError(
            "`sample_weight` is given without a positive `sample_weight_bound`: give the largest weight that a row may "
            "have, from public knowledge. It is not taken from the weights, because a bound read from private records "
            "leaks them."
        )
    try:
        found = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise EstimatorError("`sample_weight` must be an array with one number for each row of X.") from None
    if found.shape != (count,):
        raise EstimatorError(f"`sample_weight` must have one number for each of the {count} rows of X.")
    bad = np.flatnonzero(~((found >= 0) & (found <= bound)))
    if bad.size:
        raise EstimatorError(
            f"Row {bad[0]} of `sample_weight` (the first is row 0) is not between 0 and `sample_weight_bound`: raise "
            "the bound, from public knowledge, or remove the row."
        )
    if not found.any():
        raise EstimatorError(
            "All sample weights are zero, so there is nothing to learn from: give some rows a positive weight."
        )
    return found


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
            f"Row {found.index('')} of `persons` (the first is row 0) has no label: say which person the row belongs "
            "to, or remove it."
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
            raise EstimatorError(f"`{what}` has no number for {', '.join(unnamed)}: give one for every silo.")
        values = [named[name] for name in silos]
    elif value is None or np.ndim(value) == 0:
        values = [value] * len(silos)
    else:
        values = list(value)
        if len(values) != len(silos):
            raise EstimatorError(
                f"`{what}` has {len(values)} numbers, but there are {len(silos)} silos ({', '.join(silos)}): give one "
                "each."
            )
    try:
        return {name: None if v is None else float(v) for name, v in zip(silos, values, strict=True)}
    except (TypeError, ValueError):
        raise EstimatorError(f"`{what}` must be one number for all silos, or one for each.") from None


def cells(frame: Any) -> dict[str, list[str]]:
    """Return a frame's columns as the text cells that a CSV file would have; what is missing is empty."""
    return {str(name): texts(frame[name]) for name in frame.columns}


def texts(values: Iterable[Any]) -> list[str]:
    """Return values as text cells; what is missing is empty."""
    return [frames.text(value) for value in values]


def row_bytes(columns: Mapping[str, Sequence[str]] | NDArray[np.float64]) -> Iterator[bytes]:
    """Return what identifies each row: its numbers, or its cells in the order of the columns' names."""
    if isinstance(columns, np.ndarray):
        positive = np.ascontiguousarray(columns + 0.0)  # −0 becomes 0
        yield from (row.tobytes() for row in positive)
    else:
        names = sorted(columns)
        for row in zip(*(columns[name] for name in names), strict=True):
            yield repr(row).encode()
