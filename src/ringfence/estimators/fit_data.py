"""The rows that a fit was given, as records by silo; and what the privacy statement does not count about them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, get_args

import numpy as np
from numpy.typing import NDArray

from ringfence.errors import EstimatorError
from ringfence.estimators.arguments import FitArguments
from ringfence.protocol import Schema, Section
from ringfence.protocol.plan import sections
from ringfence.protocol.schema.encoding import require_within
from ringfence.silo.records.marks import RowMarks
from ringfence.silo.records.persons import number_persons
from ringfence.silo.records.reading import TableRows, read_rows
from ringfence.silo.records.records import Records
from ringfence.sources.cells import Cells, as_cells
from ringfence.sources.frames import CellTable

SOURCE = "X (its first row counted as row 2, as in a spreadsheet)"


@dataclass(frozen=True)
class FitData:
    """The rows of a fit as its schema reads them, the rows of each silo, and each row's person, if they are given."""

    schema: Schema
    rows: TableRows
    silos: Mapping[str, NDArray[np.int64]]
    persons: Sequence[str] | None

    @classmethod
    def read(
        cls,
        schema: Schema,
        X: Mapping[str, Cells],
        beside: Mapping[str, Any],
        given: FitArguments,
        persons: Sequence[str] | None,
    ) -> Self:
        """Read the columns of X, and those beside it, by the schema.

        A row is recognised in another fit by its cells in X, whatever the columns are called: the same people, another
        target.
        """
        identity = {f"x{place}": cells for place, cells in enumerate(X.values())}
        columns = {**X, **{name: as_cells(cells) for name, cells in beside.items()}}
        rows = read_rows(CellTable(columns, identity, SOURCE, dict.fromkeys(beside, "y")), schema)
        require_within(schema, rows.readings)
        return cls(schema, rows, given.rows_by_silo(len(rows.marks)), persons)

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
