"""Recognise a data set: a mark for every row, and a keyed fingerprint of them all.

A row's mark is the hash of all its cells with their columns' names, in the order of these names: a file that was
copied, renamed, or written with its columns in another order has the same marks, whichever column is to be predicted.
Marks stay in the silo's process. The user's registry keeps only what is computed from them with a secret key, so that
nobody without the key can test whether a row is in the data.

A fingerprint has four parts: of the rows in their order; of the distinct rows, whatever their order, and how often
they occur, up to a common factor; a sketch, by which data that shares most of its rows with data known before (some
were added, edited or left out) is recognised; and sketches of the rows as sets of the columns that models read have
them (`silo.records.column_sets`), by which it is recognised although other columns changed.
"""

import base64
import bisect
import hashlib
import hmac
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Self

import numpy as np
import scipy  # loads its modules on first use
from numpy.typing import NDArray

from ringfence.protocol.arrays import pieces
from ringfence.silo.records.column_sets import ColumnSets, RowSample, most_common
from ringfence.silo.records.storage import Unpicklable
from ringfence.sources.cells import Cells
from ringfence.sources.words import mixed

SKETCH = 256
"""How many rows are kept in a sketch."""

FALSE_ALARM = 1e-6
"""How often, in one comparison, data of other records from the same population may be mistaken for known data."""

_OF_COLUMNS = FALSE_ALARM / 32
"""The same for one set of columns, of which two data sets share at most 13."""


class RowMarks(Unpicklable):
    """The marks of a data set's rows, in their order, and the file that they were read from, if there was one.

    `persons` is the number of persons, where the schema names a person column; `samples` are of sets of columns.
    """

    __slots__ = ("_marks", "persons", "samples", "source")

    def __init__(
        self,
        words: NDArray[np.uint64],
        source: Path | None = None,
        of_row: NDArray[np.int64] | None = None,
        samples: Mapping[str, RowSample] | None = None,
    ) -> None:
        """Mark rows by their words (`row_words`); `of_row` numbers the persons of the rows, if there are persons."""
        self.samples = samples or {}
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
        first = np.flatnonzero(np.append(True, in_order[1:] != in_order[:-1]))
        counts = np.diff(first, append=len(self))
        alone = in_order[first[counts == most_common(counts)]].tobytes()
        samples = {name: KeyedSample(key, sample) for name, sample in self.samples.items()}
        once = _keyed_marks(key, (alone[at : at + width] for at in range(0, len(alone), width)))
        return Fingerprint(
            records=len(self),
            ordered=_keyed(key, b"ordered", self._marks.tobytes()),
            rows=_keyed(key, b"rows", in_order.tobytes()),
            distinct=_keyed(key, b"rows", in_order[:: np.gcd.reduce(counts)].tobytes()),
            least=once[:SKETCH],
            persons=self.persons,
            parts={name: sample.part() for name, sample in samples.items()},
            once=once,
            samples=samples,
        )


def row_words(rows: int, table: Mapping[str, Cells], sets: ColumnSets | None = None) -> NDArray[np.uint64]:
    """Return 128 bits for each row, made of all its cells and their columns' names, in whatever order these come.

    They need not be hard to find again: what is kept of them is computed with a secret key. Rows that differ in one
    cell differ in their words: every cell is mixed with its column's name, one to one, and multiplied by two odd
    numbers that depend on that name, and the products are added up. Rows that differ in several may have equal words by
    accident, as rarely as 64 random bits agree; that is not proved, and an adversary can find such rows. The rows are
    also added to the samples of `sets`.
    """
    sets = sets or ColumnSets(())
    sums = sets.sums(rows)
    totals = np.zeros((2, rows), dtype=np.uint64)
    for name, cells in table.items():
        digest = hashlib.sha256(name.encode()).digest()
        own, *factors = (np.uint64(int.from_bytes(digest[at : at + 8], "little") | 1) for at in (0, 8, 16))
        for part in pieces(len(cells)):
            word = mixed(cells.words(part), own)
            for total, factor in zip(totals, factors, strict=True):
                total[part] += word * factor
            for place in sets.places.get(name, ()):
                sums[place, part] += word
    sets.add(sums)
    return np.stack([mixed(total, np.uint64(len(table))) for total in totals], axis=1)


def _keyed(key: bytes, purpose: bytes, marks: bytes) -> str:
    """Return the keyed hash of rows' marks, for a fingerprint."""
    return hmac.new(key, purpose + marks, hashlib.sha256).hexdigest()


def _keyed_marks(key: bytes, marks: Iterable[bytes]) -> NDArray[np.uint64]:
    """Return the keyed marks of rows, sorted."""
    keyed = b"".join(hashlib.blake2b(mark, digest_size=8, key=key).digest() for mark in marks)
    return np.sort(np.frombuffer(keyed, dtype="<u8"))


@dataclass(frozen=True, repr=False)
class Part:
    """What the registry keeps of the rows of a set of so many columns: the least keyed marks of a sample."""

    columns: int
    level: int
    least: NDArray[np.uint64]

    def to_text(self) -> str:
        """Return the marks as text, for the registry."""
        return base64.b64encode(self.least.astype("<u8").tobytes()).decode()

    @classmethod
    def of_text(cls, columns: int, level: int, text: str) -> Self:
        """Return the part whose marks the registry has as text."""
        return cls(columns, level, np.frombuffer(base64.b64decode(text), dtype="<u8"))


class KeyedSample(Unpicklable):
    """The rows of a set of columns that were sampled, with the key that their marks are made with."""

    __slots__ = ("_key", "_marks", "_sample")

    def __init__(self, key: bytes, sample: RowSample) -> None:
        """Keep a sample; its rows are marked when they are compared."""
        self._key, self._sample = key, sample
        self._marks: dict[int, NDArray[np.uint64]] = {}

    def marks(self, level: int) -> NDArray[np.uint64] | None:
        """Return the keyed marks, sorted, of the rows in a sample of this level; None if this one has fewer."""
        if level < self._sample.level:
            return None
        if level not in self._marks:
            hashes = self._sample.above(level).tolist()
            self._marks[level] = _keyed_marks(self._key, (b"columns" + own.to_bytes(8, "little") for own in hashes))
        return self._marks[level]

    def part(self) -> Part:
        """Return what the registry keeps of the sample."""
        level = self._sample.level_of(SKETCH)
        marks = self.marks(level)
        return Part(self._sample.columns, level, np.zeros(0, np.uint64) if marks is None else marks[:SKETCH])


@dataclass(frozen=True, repr=False, kw_only=True)
class Sketch:
    """What the registry keeps of a data set: numbers of rows and persons, keyed hashes, and least keyed marks.

    A keyed mark is a pseudorandom number of its row, so the rows with the least ones are a random sample of those that
    occur as often as most do: usually once. `rows` is of all rows; in `distinct` each occurs as rarely as a common
    factor allows. `parts` are by the hash of their columns' names, that of all columns first. Data that earlier
    builds registered has neither `distinct` nor `parts`.
    """

    records: int
    ordered: str
    rows: str
    distinct: str
    least: NDArray[np.uint64]
    persons: int | None
    parts: Mapping[str, Part]


@dataclass(frozen=True, repr=False, kw_only=True)
class Fingerprint(Unpicklable, Sketch):
    """A data set as it is now: its sketch, and the keyed marks, sorted, of all rows that occur `once`, as most do."""

    once: NDArray[np.uint64]
    samples: Mapping[str, KeyedSample]

    def has_order_of(self, known: Sketch) -> bool:
        """Tell whether the fingerprint is of the known rows, in the same order."""
        return self.ordered == known.ordered

    def is_mostly(self, known: Sketch) -> bool:
        """Tell whether this is data that was seen before: all its rows, or so many that it cannot be by chance.

        Rows are compared with all their columns, and with those that models read, if these are the same.
        """
        if self.rows == known.rows or self.distinct in (known.rows, known.distinct):
            return True
        all_read = next(iter(self.parts), "")
        return _share(self.once, self.records, known.least, known.records, FALSE_ALARM) or (
            all_read == next(iter(known.parts), None) and self._shares(known, all_read)
        )

    def resembles(self, known: Sketch) -> bool:
        """Tell whether most rows were seen before in some of the columns, two at least and a third of either's."""
        most = max((part.columns for part in (*self.parts.values(), *known.parts.values())), default=0)
        shared = [name for name, part in self.parts.items() if part.columns >= max(2, most / 3) and name in known.parts]
        return any(self._shares(known, name) for name in shared)

    def _shares(self, known: Sketch, name: str) -> bool:
        """Tell whether most rows were seen before in a set of columns; unknown if they are 30 times as many as then."""
        part = known.parts[name]
        marks = self.samples[name].marks(part.level)
        return marks is not None and _share(marks, self.records, part.least, known.records, _OF_COLUMNS)


def _share(
    once: NDArray[np.uint64], records: int, least: NDArray[np.uint64], known_records: int, chance: float
) -> bool:
    """Tell whether so many rows are shared with known data that it cannot be by chance.

    Compared are rows that occur as often as most do on each side, in two ways: of the sample of the known data's rows,
    how many are here; and of the sample that this data would have been kept by, how many were there. The first finds
    data that grew or was edited, the second data of which a part was left out.
    """
    places = np.searchsorted(once, least)
    inside = places < len(once)
    found = int(np.count_nonzero(once[places[inside]] == least[inside]))
    if found >= _too_many_for_chance(len(least), records, chance):
        return True
    beyond = np.inf if len(least) < SKETCH else least[-1]
    own = int(np.count_nonzero(once <= beyond))
    return found >= _too_many_for_chance(own, known_records, chance)


@lru_cache(maxsize=4096)
def _too_many_for_chance(sample: int, records: int, chance: float = FALSE_ALARM) -> float:
    """Return how many rows of a sample must be found in data of that many records to show that it is the same data.

    Suppose it is not: both are draws from one population, whatever that is. A row of the sample has some probability p
    in the population, and occurs m·p times on average among m records. It occurs exactly once with probability at most
    max over λ of λ·e^(−λ) = 1/e if the number of records is Poisson(m), and then the rows' counts are independent; so
    the number found is at most Binomial(sample, 1/e), stochastically. With exactly m records, an event is at most e·√m
    times as likely (Mitzenmacher and Upfal, Probability and Computing, 2nd edition, theorem 5.7). The least number
    whose probability is then at most `chance` is returned; infinity if there is none, because the sample is small.
    For 256 rows in 1,000 records that is 139. If three quarters of the rows are still there, 192 are found on average,
    and fewer than 139 with probability below 10⁻¹².

    Where most rows occur k > 1 times, 1/e becomes kᵏ·e^(−k)/k!, which is at most 2/e², and so much less likely that all
    these k together add little.
    """

    def is_shown(number: int) -> bool:
        """Return whether so many rows of the sample are found with at most that chance."""
        tail = float(scipy.special.bdtrc(number - 1, sample, 1 / math.e))
        return math.e * math.sqrt(records) * tail <= chance

    least = 1 + bisect.bisect_left(range(1, sample + 1), True, key=is_shown)
    return least if least <= sample else math.inf
