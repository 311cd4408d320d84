"""What `fit` was given, made sense of: the rows, what identifies each, and which silo's and whose each is."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self, get_args

import numpy as np
from numpy.typing import NDArray

from ringfence.estimators import tables
from ringfence.protocol import sections
from ringfence.protocol.encoding import encode_features, encode_target
from ringfence.protocol.schema import Schema
from ringfence.protocol.sections import Section
from ringfence.silo.marks import RowMarks
from ringfence.silo.persons import numbered
from ringfence.silo.records import Records
from ringfence.sources.cells import Table

SOURCE = "X (its first row counted as row 2, as in a spreadsheet)"


@dataclass(frozen=True)
class FitData:
    """Every row as a record, the bytes that identify it, the rows of each silo, and each row's person, if told."""

    rows: Records
    identity: Sequence[bytes]
    silos: Mapping[str, NDArray[np.int64]]
    persons: Sequence[str] | None

    @classmethod
    def of(
        cls,
        schema: Schema,
        table: Table,
        identity: Sequence[bytes],
        labels: tables.Labels,
        persons: Sequence[str] | None,
    ) -> Self:
        """Encode the table by the schema."""
        features = encode_features(schema, table, source=SOURCE)
        rows = Records(schema, features, encode_target(schema, table, source="y"))
        return cls(rows, identity, labels.by_silo(len(rows)), persons)

    @property
    def schema(self) -> Schema:
        """The public schema of the rows."""
        return self.rows.schema

    def identities(self) -> dict[str, list[bytes]]:
        """Return, by silo, what identifies each row."""
        return {name: [self.identity[row] for row in rows] for name, rows in self.silos.items()}

    def owners(self) -> dict[str, list[str]] | None:
        """Return, by silo, the person of each row, if the fit was told."""
        persons = self.persons
        return None if persons is None else {name: [persons[row] for row in rows] for name, rows in self.silos.items()}

    def sections(self, held_out: float | None) -> dict[str, list[Section | None]]:
        """Return, by silo, the section that each row is in, with its person's other rows; None where there are none."""
        found: dict[str, list[Section | None]] = {}
        for name, size in self.sizes().items():
            own: list[Section | None] = [None] * size
            if held_out is not None:
                for section in get_args(Section):
                    for number in sections.members(section, size, held_out).tolist():
                        own[number] = section
            found[name] = [own[number] for number in self._numbers(name).tolist()]
        return found

    def _numbers(self, silo: str) -> NDArray[np.int64]:
        """Return the number of each row's record among those of a silo: a person's, where they are the records."""
        rows = self.silos[silo]
        if self.persons is None:
            return np.arange(len(rows))
        return numbered([self.persons[row] for row in rows], source="`persons`")

    def part(self, silo: str, *, marked: bool) -> Records:
        """Return a silo's records; marked, they are a data set that has one ledger, whatever is to be predicted."""
        own = self.silos[silo]
        chosen = self.rows.take(own)
        marks = RowMarks(self.identity[row] for row in own) if marked else None
        of_row = None if self.persons is None else self._numbers(silo)
        return Records(chosen.schema, chosen.features, chosen.targets, marks, of_row)

    def sizes(self) -> dict[str, int]:
        """Return how many records each silo has: rows, or persons."""
        owners = self.owners()
        return {name: len(rows) if owners is None else len(set(owners[name])) for name, rows in self.silos.items()}

    def copies(self) -> dict[str, int]:
        """Return, by silo, how often a row occurs at most."""
        return {name: max(Counter(rows).values()) for name, rows in self.identities().items()}

    def spread(self) -> dict[str, int]:
        """Return, by silo, in how many silos a person of it has rows at most."""
        people = {name: set(owners) for name, owners in (self.owners() or {}).items()}
        silos_of = Counter(person for persons in people.values() for person in persons)
        return {name: max(silos_of[person] for person in persons) for name, persons in people.items()}
