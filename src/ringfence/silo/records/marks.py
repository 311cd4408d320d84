"""Recognise a data set: a mark for every row, and a keyed fingerprint of them all.

A row's mark is the hash of all its cells with their columns' names, in the order of these names: a file that was
copied, renamed, or written with its columns in another order has the same marks, whichever column is to be predicted.
Marks stay in the silo's process. The user's registry keeps only what is computed from them with a secret key, so that
nobody without the key can test whether a row is in the data.

A fingerprint has three parts: of the rows in their order, of the rows whatever their order, and a sketch, by which data
that shares most of its rows with data known before (some were added, edited or left out) is recognised.
"""

import hashlib
import hmac
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc

from ringfence.protocol.arrays import pieces
from ringfence.silo.records.storage import Unpicklable
from ringfence.sources.cells import Cells
from ringfence.sources.words import mixed

SKETCH = 256
"""How many rows are kept in a sketch."""

FALSE_ALARM = 1e-6
"""How often, in one comparison, data of other records from the same population may be mistaken for known data."""


class RowMarks(Unpicklable):
    """The marks of a data set's rows, in their order, and the file that they were read from, if there was one.

    `persons` is the number of persons, where the schema names a person column.
    """

    __slots__ = ("_marks", "persons", "source")

    def __init__(
        self, words: NDArray[np.uint64], source: Path | None = None, of_row: NDArray[np.int64] | None = None
    ) -> None:
        """Mark rows by their words (`row_words`); `of_row` numbers the persons of the rows, if there are persons."""
        self._marks = np.ascontiguousarray(words).view("V16").reshape(-1)
        self.source = source
        self.persons = None if of_row is None else int(of_row.max()) + 1

    @property
    def words(self) -> NDArray[np.uint64]:
        """The words that rows were marked by, for a process inside the silo."""
        return self._marks.view(np.uint64).reshape(len(self._marks), -1)

    def __len__(self) -> int:
        """Return the number of marked rows."""
        return len(self._marks)

    def __repr__(self) -> str:
        """Describe the rows' marks without showing them."""
        return f"<marks of {len(self)} rows, hidden>"

    def fingerprint(self, key: bytes) -> "Fingerprint":
        """Return the keyed fingerprint of the marks."""
        width = self._marks.dtype.itemsize
        in_order = np.sort(self._marks.view(f"S{width}"))
        differs = np.ones(len(self) + 1, dtype=bool)
        differs[1:-1] = in_order[1:] != in_order[:-1]
        alone = in_order[differs[1:] & differs[:-1]].tobytes()
        marks = (alone[at : at + width] for at in range(0, len(alone), width))
        keyed = b"".join(hashlib.blake2b(mark, digest_size=8, key=key).digest() for mark in marks)
        once = np.sort(np.frombuffer(keyed, dtype="<u8"))
        ordered, rows = _keyed(key, b"ordered", self._marks.tobytes()), _keyed(key, b"rows", in_order.tobytes())
        return Fingerprint(len(self), ordered, rows, once[:SKETCH], self.persons, once)


def row_words(rows: int, table: Mapping[str, Cells]) -> NDArray[np.uint64]:
    """Return 128 bits for each row, made of all its cells and their columns' names, in whatever order these come.

    They need not be hard to find again: what is kept of them is computed with a secret key. Rows that differ in one
    cell differ in their words: every cell is mixed with its column's name, one to one, and multiplied by two odd
    numbers that depend on that name, and the products are added up. Rows that differ in several may have equal words by
    accident, as rarely as 64 random bits agree; that is not proved, and an adversary can find such rows.
    """
    totals = np.zeros((2, rows), dtype=np.uint64)
    for name, cells in table.items():
        digest = hashlib.sha256(name.encode()).digest()
        own, *factors = (np.uint64(int.from_bytes(digest[at : at + 8], "little") | 1) for at in (0, 8, 16))
        for part in pieces(len(cells)):
            word = mixed(cells.words(part), own)
            for total, factor in zip(totals, factors, strict=True):
                total[part] += word * factor
    return np.stack([mixed(total, np.uint64(len(table))) for total in totals], axis=1)


def _keyed(key: bytes, purpose: bytes, marks: bytes) -> str:
    """Return the keyed hash of rows' marks, for a fingerprint."""
    return hmac.new(key, purpose + marks, hashlib.sha256).hexdigest()


@dataclass(frozen=True, repr=False)
class Sketch:
    """What the registry keeps of a data set: numbers of rows and persons, two keyed hashes, and the least keyed marks.

    A keyed mark is a pseudorandom number of its row, so the rows with the least ones are a random sample of those that
    occur once.
    """

    records: int
    ordered: str
    rows: str
    least: NDArray[np.uint64]
    persons: int | None


@dataclass(frozen=True, repr=False)
class Fingerprint(Unpicklable, Sketch):
    """A data set as it is now: its sketch, and the keyed marks, sorted, of all rows that occur `once` in it."""

    once: NDArray[np.uint64]

    def has_order_of(self, known: Sketch) -> bool:
        """Tell whether the fingerprint is of the known rows, in the same order."""
        return self.ordered == known.ordered

    def is_mostly(self, known: Sketch) -> bool:
        """Tell whether this is data that was seen before: all its rows, or so many that it cannot be by chance.

        Compared are rows that occur once on both sides, in two ways: of the sample of the known data's rows, how many
        are here; and of the sample that this data would have been kept by, how many were there. The first finds data
        that grew or was edited, the second data of which a part was left out.
        """
        if self.rows == known.rows:
            return True
        places = np.searchsorted(self.once, known.least)
        inside = places < len(self.once)
        found = int(np.count_nonzero(self.once[places[inside]] == known.least[inside]))
        if found >= _too_many_for_chance(len(known.least), self.records):
            return True
        beyond = np.inf if len(known.least) < SKETCH else known.least[-1]
        own = int(np.count_nonzero(self.once <= beyond))
        return found >= _too_many_for_chance(own, known.records)


@lru_cache(maxsize=4096)
def _too_many_for_chance(sample: int, records: int) -> float:
    """Return how many rows of a sample must be found in data of that many records to show that it is the same data.

    Suppose it is not: both are draws from one population, whatever that is. A row of the sample has some probability p
    in the population, and occurs m·p times on average among m records. It occurs exactly once with probability at most
    max over λ of λ·e^(−λ) = 1/e if the number of records is Poisson(m), and then the rows' counts are independent; so
    the number found is at most Binomial(sample, 1/e), stochastically. With exactly m records, an event is at most e·√m
    times as likely (Mitzenmacher and Upfal, Probability and Computing, 2nd edition, theorem 5.7). The least number
    whose probability is then at most FALSE_ALARM is returned; infinity if there is none, because the sample is small.
    For 256 rows in 1,000 records that is 139. If three quarters of the rows are still there, 192 are found on average,
    and fewer than 139 with probability below 10⁻¹².
    """
    for number in range(sample + 1):
        if math.e * math.sqrt(records) * bdtrc(number - 1, sample, 1 / math.e) <= FALSE_ALARM:
            return number
    return math.inf
