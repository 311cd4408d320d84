"""Sampling rules: which of a silo's records take part in a round.

Each rule states here what is public: the batches it allows, the part of the silo's fixed partition that a round takes,
how often a round's cost counts, and the words for an operator. `silo.gate.sampling` draws the records,
`accounting.sampling` has the cost and `simulation.sampling` the simulation; no other file asks which rule it has.
"""

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Annotated, ClassVar, Literal, NamedTuple, TypeAlias, get_args

from pydantic import Field

from ringfence.protocol.plan.effort import HASH, NUMBER, PASS, Effort
from ringfence.protocol.public import Public

SamplingName: TypeAlias = Literal["full", "fixed", "poisson", "one-pass", "phased"]
"""The rules' names, as users write them."""

SAMPLING_NAMES: tuple[SamplingName, ...] = get_args(SamplingName)


class Part(NamedTuple):
    """A part of a silo's fixed partition: its number, and its first position in the partition's order."""

    number: int
    first: int


class _Rule(Public):
    """The interface of sampling rules.

    `takes_all`: every record takes part in every round. `is_secret`: the batch is drawn afresh and never revealed.
    `is_fresh`: a record takes part in one round, or one phase, at most, so that answers are estimates for the
    population; the records' positions in the data set decide which, so that they must not change while a plan runs.
    `is_phased`: the phases of an algorithm divide the records.
    """

    takes_all: ClassVar[bool] = False
    is_secret: ClassVar[bool] = False
    is_fresh: ClassVar[bool] = False
    is_phased: ClassVar[bool] = False
    brief: ClassVar[str]
    """The batch, in a few words."""
    sentence: ClassVar[str]
    """The batch, in a sentence with places for `records`, `batch`, `rounds` and `unit`."""

    def check(self, silo: str, *, records: int, batch: int, rounds: int) -> None:
        """Raise ValueError if the sampling rule does not allow these numbers."""
        if batch > records:
            raise ValueError(f"silo '{silo}' has {records}, fewer than its batch")

    def part(self, *, records: int, batch: int, answered: int) -> Part | None:
        """Return the part of the partition that the next answer takes; None if the rule draws from all records."""
        return None

    def times(self, rounds: int) -> int:
        """Return how often the sampling rule lets a record take part in that many rounds: so often a cost counts."""
        return rounds

    def most(self, *, records: int, batch: int) -> int:
        """Return how many records may take part in one round by the sampling rule."""
        return batch

    def effort(self, records: int) -> Effort:
        """Return the effort of choosing who takes part: the order of a draw, or of a partition by hashes."""
        return Effort((HASH if self.is_fresh else PASS) * records, 4 * NUMBER * records)

    @abstractmethod
    def batch(self, silo: str, *, records: int, rounds: int, asked: int | None) -> int:
        """Return a silo's batch by the sampling rule; `asked` is the batch asked for, if any; ValueError if none is."""

    def most_rounds(self, records: int) -> int | None:
        """Return how many rounds the sampling rule allows with that many records; None if any number."""
        return None

    def uncovered(self, sizes: Sequence[tuple[int, int, float]], rounds: int) -> str:
        """Name what the rule does, with silos of these records, batches and weights, that no loss bound covers."""
        return ""

    def words(self, *, records: int, batch: int, rounds: int, unit: str) -> str:
        """Describe the sampling rule's batch to an operator; `unit` is record or person."""
        return self.sentence.format(records=records, batch=batch, rounds=rounds, unit=unit)


class Full(_Rule):
    """All records take part in every round."""

    takes_all: ClassVar[bool] = True
    brief: ClassVar[str] = "all of a silo's"
    name: Literal["full"] = "full"

    def check(self, silo: str, *, records: int, batch: int, rounds: int) -> None:
        """Require a batch of all records, for full sampling."""
        super().check(silo, records=records, batch=batch, rounds=rounds)
        if batch != records:
            raise ValueError(f"full sampling averages over all records: the batch of silo '{silo}' differs")

    def batch(self, silo: str, *, records: int, rounds: int, asked: int | None) -> int:
        """Return all records, for full sampling; refuse another batch."""
        if asked not in (None, records):
            raise ValueError("Full sampling uses every record in every round: leave the batch out, or choose poisson.")
        return records

    def words(self, *, records: int, batch: int, rounds: int, unit: str) -> str:
        """Describe full sampling."""
        return f"All {records} {unit}s take part{'' if rounds == 1 else ' in every round'}."


class _SecretDraw(_Rule):
    """A fresh draw of about `batch` records, which is never revealed."""

    is_secret: ClassVar[bool] = True

    def batch(self, silo: str, *, records: int, rounds: int, asked: int | None) -> int:
        """Return n/√R for a secret draw where no batch is asked for: over R rounds, √R times all records."""
        return max(1, round(records / math.sqrt(rounds))) if asked is None else asked

    def uncovered(self, sizes: Sequence[tuple[int, int, float]], rounds: int) -> str:
        """Name all secret draws: without a formula, the planner assumes the largest silo's batches."""
        return "sampled batches"


class FixedSize(_SecretDraw):
    """A fresh, secret set of `batch` distinct records."""

    brief: ClassVar[str] = "a fresh, secret draw of fixed size"
    sentence: ClassVar[str] = "In each round {batch} of {records} {unit}s take part, drawn afresh and in secret."
    name: Literal["fixed"] = "fixed"


class Poisson(_SecretDraw):
    """Each record independently, in secret, with probability batch / records."""

    brief: ClassVar[str] = "a fresh, secret draw, each by chance"
    sentence: ClassVar[str] = (
        "In each round every {unit} takes part by chance, in secret: {batch} of {records} on average."
    )
    name: Literal["poisson"] = "poisson"

    def most(self, *, records: int, batch: int) -> int:
        """Return all records: by chance, Poisson sampling may draw all."""
        return records


class OnePass(_Rule):
    """The next `batch` records of a fixed partition: each record once."""

    is_fresh: ClassVar[bool] = True
    brief: ClassVar[str] = "the next ones: each takes part at most once"
    sentence: ClassVar[str] = (
        "Each round takes the next {batch} of {records} {unit}s, so that a {unit} takes part in at most one round."
    )
    name: Literal["one-pass"] = "one-pass"

    def check(self, silo: str, *, records: int, batch: int, rounds: int) -> None:
        """Require enough records for one pass of all rounds."""
        super().check(silo, records=records, batch=batch, rounds=rounds)
        if batch * rounds > records:
            raise ValueError(
                f"one pass of {rounds} rounds of {batch} records needs more than the {records} records of silo '{silo}'"
            )

    def part(self, *, records: int, batch: int, answered: int) -> Part:
        """Return the next part of the one pass by the silo's own answers: a round that it missed wastes no record."""
        return Part(answered, answered * batch)

    def times(self, rounds: int) -> int:
        """Return 1: the disjoint parts of one pass cost together what one of them does."""
        return 1

    def batch(self, silo: str, *, records: int, rounds: int, asked: int | None) -> int:
        """Divide all records evenly over the rounds of one pass, where no batch is asked for."""
        if asked is not None:
            return asked
        if records < rounds:
            raise ValueError(
                f"One pass of {rounds} rounds needs a record, or person, for each, but silo '{silo}' has {records}: "
                "ask for fewer rounds."
            )
        return records // rounds

    def most_rounds(self, records: int) -> int:
        """Return the number of records: one pass needs a record for each round."""
        return records

    def uncovered(self, sizes: Sequence[tuple[int, int, float]], rounds: int) -> str:
        """Name one-pass batches that leave records out."""
        smaller = any(batch < records // rounds for records, batch, _ in sizes)
        return "one-pass batches that leave some out" if smaller else ""


class Phased(_Rule):
    """All records of one phase: phase i = 0, 1, … of n records has ⌊n/2^(i+1)⌋ of its own, of a fixed partition."""

    is_fresh: ClassVar[bool] = True
    is_phased: ClassVar[bool] = True
    brief: ClassVar[str] = "all of the phase's part: each takes part in one phase"
    name: Literal["phased"] = "phased"
    phase: int = Field(default=0, ge=0, lt=60)

    def check(self, silo: str, *, records: int, batch: int, rounds: int) -> None:
        """Require the phase's own number of records, for phased sampling, and that there are any."""
        super().check(silo, records=records, batch=batch, rounds=rounds)
        if self._size(records) == 0:
            raise ValueError(f"silo '{silo}' has too few records for this many phases, each half as large")
        if batch != self._size(records):
            raise ValueError(
                "the first phase takes half of the records, each later one half of the previous: the batch of silo "
                f"'{silo}' differs"
            )

    def part(self, *, records: int, batch: int, answered: int) -> Part:
        """Return the phase's part, which begins where the earlier phases' parts end."""
        return Part(self.phase, sum(records >> (earlier + 1) for earlier in range(self.phase)))

    def batch(self, silo: str, *, records: int, rounds: int, asked: int | None) -> int:
        """Return the size of the part of a phase, for phased sampling; refuse an explicit batch."""
        if asked is not None:
            raise ValueError("Phases take half of a silo, then half of the rest, …: leave the batch out.")
        if self._size(records) == 0:
            raise ValueError(
                f"Silo '{silo}' is too small for {self.phase + 1} phases, each half as large: use fewer phases."
            )
        return self._size(records)

    def uncovered(self, sizes: Sequence[tuple[int, int, float]], rounds: int) -> str:
        """Name silos that differ: for phased sampling, the planner assumes silos of one size."""
        return "phases of silos that differ" if len({(records, weight) for records, _, weight in sizes}) > 1 else ""

    def _size(self, records: int) -> int:
        """Return how many records a phase takes: half as many as the phase before."""
        return records >> (self.phase + 1)

    def words(self, *, records: int, batch: int, rounds: int, unit: str) -> str:
        """Describe a phase and its records."""
        return (
            f"The {rounds} rounds of phase {self.phase + 1} take {batch} of {records} {unit}s, which take part in no "
            "other phase."
        )


Sampling: TypeAlias = Annotated[Full | FixedSize | Poisson | OnePass | Phased, Field(discriminator="name")]

_RULES: dict[str, type[Sampling]] = {
    rule.model_fields["name"].default: rule for rule in get_args(get_args(Sampling)[0])
}


def sampling_named(name: str) -> Sampling:
    """Return the sampling rule of that name; for phases, the first."""
    return _RULES[name]()


def require_one_partition(rules: Iterable[Sampling]) -> None:
    """Raise ValueError if rules of one plan divide the records in two ways: parts that overlap are not disjoint."""
    divided = [rule for rule in rules if rule.is_fresh]
    if len(divided) > 1 and not all(isinstance(rule, Phased) for rule in divided):
        raise ValueError(
            "a plan divides its records only once: into the phases of its stages, or into one pass of one stage"
        )
