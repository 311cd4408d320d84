"""Recognising a data set again: a mark for every row, and a keyed fingerprint of them all.

A row's mark is the hash of all its cells with their columns' names, in the order of these names: a file that was
copied, renamed, or written with its columns in another order has the same marks, whichever column is to be predicted.
Marks live in the silo's process. What is kept of them, in the user's registry alone, is computed with a secret key, so
that whoever finds it without the key cannot try rows out.

A fingerprint has three parts: of the rows in their order, of the rows whatever their order, and a sketch, by which data
that shares most of its rows with data known before (some were added, edited or left out) is recognised.
"""

import hashlib
import hmac
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc

from ringfence.silo.unpicklable import Unpicklable

SKETCH = 256
"""How many rows are kept in a sketch."""

FALSE_ALARM = 1e-6
"""How often data of other records, from the same population, may be taken for known data, in one comparison."""


class RowMarks(Unpicklable):
    """The marks of a data set's rows, in their order, and the file that they were read from, if there was one.

    `persons` is how many persons the rows are of, where they are told apart.
    """

    __slots__ = ("_marks", "persons", "source")

    def __init__(self, rows: Iterable[bytes], source: Path | None = None, persons: int | None = None) -> None:
        self._marks = [hashlib.sha256(row).digest() for row in rows]
        self.source = source
        self.persons = persons

    @classmethod
    def of_table(
        cls, table: Mapping[str, Sequence[str]], source: Path | None = None, of_row: NDArray[np.int64] | None = None
    ) -> "RowMarks":
        """Mark the rows of a table of text cells; `of_row` numbers the persons of the rows, if they are told apart."""
        names = sorted(table)
        head = repr(names).encode()
        cells = zip(*(table[name] for name in names), strict=True)
        persons = None if of_row is None else int(of_row.max()) + 1
        return cls((head + repr(row).encode() for row in cells), source, persons)

    def __len__(self) -> int:
        return len(self._marks)

    def __repr__(self) -> str:
        return f"<marks of {len(self)} rows, hidden>"

    def fingerprint(self, key: bytes) -> "Fingerprint":
        """Return what may be kept of the marks."""
        occurrences = Counter(self._marks)
        once = [mark for mark, count in occurrences.items() if count == 1]
        keyed = b"".join(hashlib.blake2b(mark, digest_size=8, key=key).digest() for mark in once)
        return Fingerprint(
            records=len(self),
            ordered=_keyed(key, b"ordered", self._marks),
            rows=_keyed(key, b"rows", sorted(self._marks)),
            once=np.sort(np.frombuffer(keyed, dtype="<u8")),
            persons=self.persons,
        )


def _keyed(key: bytes, purpose: bytes, marks: Sequence[bytes]) -> str:
    return hmac.new(key, purpose + b"".join(marks), hashlib.sha256).hexdigest()


@dataclass(frozen=True, repr=False)
class Sketch:
    """What is kept of a data set that was seen: how many rows it had, of how many persons, and the least keyed marks.

    A keyed mark is as good as a random number that belongs to the row. So the rows with the least ones are a random
    sample of those that occur once.
    """

    records: int
    ordered: str
    rows: str
    least: NDArray[np.uint64]
    persons: int | None = None

    def to_bytes(self) -> bytes:
        """Return the keyed marks for keeping."""
        return self.least.astype("<u8").tobytes()


@dataclass(frozen=True, repr=False)
class Fingerprint(Unpicklable):
    """A data set at hand. `once` has the keyed marks, sorted, of the rows that occur once in it."""

    records: int
    ordered: str
    rows: str
    once: NDArray[np.uint64]
    persons: int | None = None

    def sketch(self) -> Sketch:
        """Return what is kept of it."""
        return Sketch(self.records, self.ordered, self.rows, self.once[:SKETCH], self.persons)

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
    """Return how many rows of a sample must be found in data of so many records to show that it is the same data.

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
