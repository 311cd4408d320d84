"""The arguments of `fit`, checked and joined into one table, and its rows as records by silo."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from ringfence.errors import EstimatorError
from ringfence.protocol import FloatArray, Schema, Section
from ringfence.protocol.plan import sections
from ringfence.silo.records.marks import RowMarks
from ringfence.silo.records.persons import number_persons
from ringfence.silo.records.reading import TableRows
from ringfence.silo.records.records import Records
from ringfence.sources import frames

ALONE = "all"
"""The silo's name if no silos are given."""


def as_frame(X: Any) -> Any:
    """Return a table of polars or pyarrow as one of pandas, and anything else as it is."""
    return X.to_pandas() if frames.is_arrow_like(X) else X


class FitArguments(NamedTuple):
    """The rows of all silos in one table; `silos` has a label per row, and `order` the labels in the caller's order."""

    X: Any
    y: Any
    silos: Any
    persons: Any
    weights: Any
    order: Sequence[str] | None = None

    def rows_by_silo(self, count: int) -> dict[str, NDArray[np.int64]]:
        """Return the row numbers of every silo, sorted by label if they have no order; without labels, of one silo."""
        if self.silos is None:
            return {ALONE: np.arange(count)}
        found: dict[Any, list[int]] = {}
        for row, label in enumerate(_labels("silos", self.silos, count)):
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


def _labels(argument: str, labels: Any, count: int) -> list[Any]:
    """Return an argument of `fit` with a label per row as a list; EstimatorError if it has another length."""
    found = np.asarray(labels, dtype=object)
    if found.shape != (count,):
        raise EstimatorError(f"`{argument}` must have one label for each of the {count} rows of X.")
    return list(found.tolist())


def join_silos(X: Any, y: Any, silos: Any, persons: Any, weights: Any) -> FitArguments:
    """Return the rows of all silos in one table, whichever way the silos' tables were given.

    One table: `silos` has a label per row. A mapping of tables by silo, with y alike; or a list of tables, with a list
    of targets, where `silos`, if given, names each table. `persons` and `sample_weight`, if given, come as y does.
    """
    X = as_frame(X)
    beside = {"y": y, "`persons`": persons, "`sample_weight`": weights}
    given = {name: part for name, part in beside.items() if part is not None or name == "y"}
    if isinstance(X, Mapping) and not hasattr(X, "shape"):  # some sparse matrices are mappings too
        if silos is not None:
            raise EstimatorError("The keys of X already name the silos: leave `silos` out.")
        for name, part in given.items():
            if not isinstance(part, Mapping) or set(part) != set(X):
                raise EstimatorError(
                    f"X is a mapping from silo to table, so {name} must be a mapping from silo with the same keys."
                )
        by_silo = {name: [part[silo] for silo in X] for name, part in given.items()}
        return _stacked(list(map(str, X)), list(X.values()), by_silo)
    if isinstance(X, list | tuple) and X and all(hasattr(table, "shape") and np.ndim(table) == 2 for table in X):
        names = [f"silo-{number}" for number in range(1, len(X) + 1)] if silos is None else list(map(str, silos))
        for name, part in {**given, "`silos`": names}.items():
            if not isinstance(part, list | tuple) or len(part) != len(X):
                what = "names" if name == "`silos`" else "arrays"
                raise EstimatorError(
                    f"X is a list of {len(X)} tables, one per silo, so {name} must be a list of {len(X)} {what}."
                )
        return _stacked(names, X, given)
    return FitArguments(X, y, silos, persons, weights)


def _stacked(silos: Sequence[str], tables: Sequence[Any], given: Mapping[str, Sequence[Any]]) -> FitArguments:
    """Join the silos' tables into one, and what is given beside them."""
    if not tables:
        raise EstimatorError("X has no tables: give one for each silo.")
    if len(set(silos)) != len(silos):
        raise EstimatorError("Two tables belong to the same silo: join them, or rename one.")
    for argument, own in given.items():
        for silo, table, part in zip(silos, tables, own, strict=True):
            if len(table) != len(part):
                raise EstimatorError(
                    f"Silo '{silo}' has {len(table)} rows in X but {len(part)} in {argument}: give one entry for each "
                    "row."
                )
    if frames.is_pandas(tables[0]):
        import pandas as pd

        if not all(frames.is_pandas(table) and list(table.columns) == list(tables[0].columns) for table in tables):
            raise EstimatorError(
                "The silos' tables have different columns, or the same ones in another order: give all of them the "
                "same columns in the same order."
            )
        X: Any = pd.concat(tables, ignore_index=True)
    elif len({np.shape(table)[1] for table in tables}) != 1:
        raise EstimatorError("The silos' tables have different numbers of columns: give all of them the same columns.")
    else:
        X = np.concatenate([np.asarray(table) for table in tables])
    y = np.concatenate([np.asarray(target) for target in given["y"]])
    labels = [silo for silo, table in zip(silos, tables, strict=True) for _ in range(len(table))]
    rows = {name: [each for part in own for each in part] for name, own in given.items()}
    return FitArguments(X, y, labels, rows.get("`persons`"), rows.get("`sample_weight`"), silos)


def checked_weights(weights: Any, count: int, bound: float | None) -> FloatArray | None:
    """Return `sample_weight` as numbers from 0 to the public bound, if it is given."""
    if weights is None:
        return None
    if bound is None or not 0 < bound < np.inf:
        raise EstimatorError(
            "`sample_weight` is given without a positive `sample_weight_bound`: give the largest weight that a row may "
            "have, from public knowledge. It is not taken from the weights, because a bound read from private records "
            "leaks them."
        )
    try:
        numbers = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise EstimatorError("`sample_weight` must be an array with one number for each row of X.") from None
    if numbers.shape != (count,):
        raise EstimatorError(f"`sample_weight` must have one number for each of the {count} rows of X.")
    if (bad := np.flatnonzero(~((numbers >= 0) & (numbers <= bound)))).size:
        raise EstimatorError(
            f"Row {bad[0]} of `sample_weight` (the first is row 0) is not between 0 and `sample_weight_bound`: raise "
            "the bound, from public knowledge, or remove the row."
        )
    if not numbers.any():
        raise EstimatorError(
            "All sample weights are zero, so there is nothing to learn from: give some rows a positive weight."
        )
    return numbers


def checked_persons(persons: Any, count: int) -> list[str] | None:
    """Return the label of each row's person as a text, if `persons` is given."""
    if persons is None:
        return None
    found = texts(_labels("persons", persons, count))
    if "" in found:
        raise EstimatorError(
            f"Row {found.index('')} of `persons` (the first is row 0) has no label: say which person the row belongs "
            "to, or remove it."
        )
    return found


def unused_name(name: Any, default: str, taken: Collection[str]) -> str:
    """Return a name for a column that no other column has: its own, or the default if it has none."""
    free = name if isinstance(name, str) and name else default
    while free in taken:
        free += "_"
    return free


def per_silo(parameter: str, value: Any, silos: Sequence[str]) -> dict[str, float | None]:
    """Return a number for each silo, from one for all, one per silo in their order, or a mapping by name."""
    if isinstance(value, Mapping):
        named = {str(name): number for name, number in value.items()}
        unnamed = [name for name in silos if name not in named]  # of those named, a fold may have no record
        if unnamed:
            raise EstimatorError(f"`{parameter}` has no number for {', '.join(unnamed)}: give one for every silo.")
        values = [named[name] for name in silos]
    elif value is None or np.ndim(value) == 0:
        values = [value] * len(silos)
    else:
        values = list(value)
        if len(values) != len(silos):
            raise EstimatorError(
                f"`{parameter}` has {len(values)} numbers, but there are {len(silos)} silos ({', '.join(silos)}): give "
                "one each."
            )
    try:
        return {name: None if v is None else float(v) for name, v in zip(silos, values, strict=True)}
    except (TypeError, ValueError):
        raise EstimatorError(f"`{parameter}` must be one number for all silos, or one for each.") from None


def texts(values: Iterable[Any]) -> list[str]:
    """Return values as text cells; a missing value becomes an empty cell."""
    return [frames.text(value) for value in values]


SOURCE = "X (its first row counted as row 2, as in a spreadsheet)"


@dataclass(frozen=True)
class FitData:
    """The rows of a fit as its schema reads them, the rows of each silo, and each row's person, if they are given."""

    schema: Schema
    rows: TableRows
    silos: Mapping[str, NDArray[np.int64]]
    persons: Sequence[str] | None

    def identities(self) -> dict[str, list[bytes]]:
        """Return, by silo, the bytes that identify each row of the fit's data."""
        words = self.rows.marks.words
        return {name: [row.tobytes() for row in words[rows]] for name, rows in self.silos.items()}

    def owners(self) -> dict[str, list[str]] | None:
        """Return, by silo, the person of each row of the fit's data, if persons are given."""
        persons = self.persons
        return None if persons is None else {name: [persons[row] for row in rows] for name, rows in self.silos.items()}

    def sections(self, held_out: float | None) -> dict[str, list[Section | None]]:
        """Return, by silo, the section that each row is in, with its person's other rows; None where there are none."""
        found: dict[str, list[Section | None]] = {}
        for name, size in self.sizes().items():
            own: list[Section | None] = [None] * size
            for section in () if held_out is None else get_args(Section):
                for number in sections.members(section, size, held_out or 0.0).tolist():
                    own[number] = section
            found[name] = [own[number] for number in self._record_numbers(name).tolist()]
        return found

    def _record_numbers(self, silo: str) -> NDArray[np.int64]:
        """Return the number of each row's record among those of a silo: of its person, if persons are the records."""
        rows = self.silos[silo]
        if self.persons is None:
            return np.arange(len(rows))
        return number_persons([self.persons[row] for row in rows], source="`persons`")

    def records_of(self, silo: str, *, marked: bool) -> Records:
        """Return a silo's records; marked, they are a data set that has one ledger, whatever is to be predicted."""
        own = self.silos[silo]
        readings = {name: reading.take(own) for name, reading in self.rows.readings.items()}
        marks = RowMarks(self.rows.marks.words[own]) if marked else None
        of_row = None if self.persons is None else self._record_numbers(silo)
        return Records.of_cells(self.schema, readings, marks, of_row)

    def sizes(self) -> dict[str, int]:
        """Return how many records each silo has in the fit's data: rows, or persons."""
        owners = self.owners()
        return {name: len(rows) if owners is None else len(set(owners[name])) for name, rows in self.silos.items()}

    def remarks(self, equal_rows: str, *, ledgers: bool) -> dict[str, str]:
        """Return, by silo, a sentence about rows of one record, or person, that this run's numbers do not count.

        A ledger counts what its own silo releases, by the row or by the person, so it cannot count them: with
        `ledgers`, such rows are refused.
        """
        if equal_rows not in ("copies", "records"):
            raise EstimatorError('`equal_rows` must be "copies" or "records".')
        if (owners := self.owners()) is not None:
            silos_of = Counter(person for own in owners.values() for person in set(own))
            most = {name: max(silos_of[person] for person in own) for name, own in owners.items()}
            remark, refusal = _SPREAD, _SPREAD_REFUSED
        elif equal_rows == "copies":
            most = {name: max(Counter(rows).values()) for name, rows in self.identities().items()}
            remark, refusal = _COPIES, _COPIES_REFUSED
        else:
            return {}
        several = {name: number for name, number in most.items() if number > 1}
        if several and ledgers:
            raise EstimatorError(refusal.format(silo=next(iter(several))))
        return {name: remark.format(number=number) for name, number in several.items()}


_COPIES = (
    "A row occurs {number} times in this fit. The numbers of this run are for one row; the total of all runs counts "
    "{number} copies of one record. If rows with equal features are different records, say equal_rows='records'."
)
_COPIES_REFUSED = (
    "Some rows of silo '{silo}' have equal features, and a ledger charges every row as a separate record. Nothing was "
    "released. If they are copies of one record, as in a bootstrap sample, keep only one, or fit without `ledgers`; if "
    "they are different records, set equal_rows='records'."
)
_SPREAD = (
    "A person has rows in {number} silos of this fit. The numbers of this run are for a person's rows in one silo; the "
    "total of all runs counts what all these silos released. If one label means different persons in different silos, "
    "make their labels differ."
)
_SPREAD_REFUSED = (
    "A person of silo '{silo}' also has rows in other silos, but a ledger counts only what its own silo releases. "
    "Nothing was released. Give all rows of a person to one silo, or fit without `ledgers`. If you only need to "
    "protect a person's rows within each silo, or if one label means different persons, use different labels in each "
    "silo."
)
