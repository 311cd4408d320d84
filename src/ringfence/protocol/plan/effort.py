"""Estimated time and memory of a round at a silo, from public numbers, before a plan is approved.

A plan comes from somebody else, and could keep a silo's machine busy for hours. Queries, sampling rules and channels
each estimate their part of a round. The estimate uses the plan alone and the rates of a slow core, so it is cautious:
it distinguishes seconds from hours, and megabytes from more memory than there is."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Effort:
    """Seconds of one core, and bytes of memory on top of the records themselves."""

    seconds: float = 0.0
    memory: float = 0.0

    def __add__(self, other: "Effort") -> "Effort":
        """Add the seconds and the memory of two efforts."""
        return Effort(self.seconds + other.seconds, self.memory + other.memory)

    def most(self, other: "Effort") -> "Effort":
        """Return the larger effort of both, seconds and bytes each by themselves."""
        return Effort(max(self.seconds, other.seconds), max(self.memory, other.memory))


NUMBER = 8
"""Bytes of a number in an array."""

AT_ONCE = 2**21
"""About how many numbers of records are worked on at once, by all threads together."""

LEAST_AT_ONCE = 2**12
"""That many records are worked on at once, however long they are: whole sums of any size are made of each such part."""

MOST_THREADS = 8
"""How many threads work on a round at most."""

PART = 2**18
"""About how many numbers a thread has in its processor's cache."""


def at_once(records: int, breadth: int) -> int:
    """Return how many records are processed at once, if each takes that many numbers, to estimate the effort."""
    return min(records, max(LEAST_AT_ONCE, AT_ONCE // breadth))


# Rates, in seconds: twice to five times what was measured, once each, on a core of a shared machine in 2026.
PRODUCT = 2e-9
"""A multiplication and addition of two matrices' product."""
PASS = 5e-8
"""A number that is read, changed and written a few times, one array after the other."""
NOISE = 1e-6
"""A number of noise, discrete Gaussian or heads of coins, drawn exactly."""
THRESHOLD = 5e-6
"""An entry of the table that heads are looked up in, computed with whole numbers of any size."""
RANDOM = 1.5e-8
"""A byte of the system's randomness, with what is done to it."""
SEAL = 3e-4
"""A message that is sealed to a key."""
COLUMN = 4e-5
"""A column of the schema, which a round compares with that of the records and reads the bounds of."""
HASH = 4e-6
"""A record that gets its place by a hash."""
