"""What every question says of itself in public.

A question is what a stage of a plan asks of records. It has three files of the same name: one here (its parameters,
what a request carries, the answer's length, its sensitivity, its words), one in `silo.questions` (what
is computed from records) and one in `server.questions` (what is made of the answers).
"""

from abc import abstractmethod
from typing import ClassVar, Literal, Protocol, TypeAlias

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.domain import Domain
from ringfence.protocol.effort import NUMBER, PASS, Effort, at_once
from ringfence.protocol.losses import Loss
from ringfence.protocol.public import Public
from ringfence.protocol.schema import Schema

Unit: TypeAlias = Literal["record", "person"]
PersonRule: TypeAlias = Literal["mean", "rows", "sum"]


class Facts(Protocol):
    """The public facts of a plan that a question depends on."""

    @property
    def data(self) -> Schema:
        """What the records look like."""

    @property
    def loss(self) -> Loss:
        """The loss of one record, which questions about a model may ask for."""

    @property
    def domain(self) -> Domain:
        """The set that the weights stay in."""

    @property
    def dimension(self) -> int:
        """Number of weights; 0 where there is no model."""

    @property
    def unit(self) -> Unit:
        """What a record of the silo is: itself, or a person with all their rows."""

    @property
    def person_rule(self) -> PersonRule | None:
        """How a person's rows enter a gradient."""

    @property
    def rows_per_person(self) -> int | None:
        """The most rows of a person that count, by the rule `rows`."""


def often(rounds: int) -> str:
    """Say how many times, as the beginning of a sentence."""
    return "Once" if rounds == 1 else f"In each of {rounds} rounds"


class BaseQuestion(Public):
    """What gate, accountant, review and server need to know about a question.

    `trains`: its answers move the model's weights, so that without them there is no model. `about_model`: its answers
    depend on a loss, which the plan must name.
    """

    trains: ClassVar[bool] = False
    about_model: ClassVar[bool] = True

    def check(self, facts: Facts) -> None:
        """Raise ValueError, with a clause that says why, if it cannot be asked of such records."""
        del facts

    def argument_length(self, facts: Facts) -> int:
        """Return how many numbers a request carries. Unless a question needs other ones: the weights, if any."""
        return facts.dimension

    def accepts(self, facts: Facts, argument: FloatArray) -> bool:
        """Tell whether what a request carries, of the right length, may be asked about."""
        return facts.domain.contains(argument)

    @abstractmethod
    def length(self, facts: Facts) -> int:
        """Return how many numbers the answer has."""

    @abstractmethod
    def sensitivity(self, facts: Facts, batch: int) -> float:
        """Return how far replacing one of the `batch` records that take part can move the answer, in l2 norm."""

    @abstractmethod
    def largest(self, facts: Facts) -> float:
        """Return how large any number of the answer can be, if no more records take part than its batch."""

    def record_norm(self, facts: Facts) -> float | None:
        """Return the largest norm of one record's term, where the answer is the mean of such terms; else None.

        Such an answer can be computed from a sample or a part of the records, and be summed up through a shuffler.
        """
        return None

    def roundings(self, facts: Facts) -> int:
        """Return how often 2⁻⁵³ times records × sensitivity the computed answers of two neighbours may err in all.

        Unless a question does more than add up: twice, for an exact sum's quotient is rounded once for either.
        """
        return 2

    def terms_summed(self, facts: Facts) -> int:
        """Return how many coordinates are added up, per record, on the way to the answer: each is put on the grid.

        Unless a question needs more: the larger of the answer's length and the number of features.
        """
        return max(self.length(facts), facts.data.width)

    def breadth(self, facts: Facts) -> int:
        """Return about how many numbers a record takes while it is processed.

        Unless a question needs less, or more: its features, or its numbers in the answer.
        """
        return max(self.length(facts), facts.data.width)

    def effort(self, facts: Facts, records: int) -> Effort:
        """Return what computing the answer from that many records takes.

        Unless a question needs more, or knows better: a few passes over all features, and over the answer for each
        record.
        """
        breadth = self.breadth(facts)
        return Effort(PASS * records * breadth, 8 * NUMBER * breadth * at_once(records, breadth))

    @abstractmethod
    def reveals(self, facts: Facts, rounds: int) -> str:
        """Tell an operator, in a sentence without its full stop, what leaves the silo in that many rounds."""

    def purpose(self) -> str:
        """Say, as part of a sentence, why it is asked; nothing if it is training itself."""
        return ""

    def uncovered(self, facts: Facts) -> str:
        """Name what the question does, with these facts, that no loss bound covers; or nothing."""
        return ""

    def limits(self, facts: Facts) -> str:
        """Tell an operator how a single record's influence is limited, as the beginning of a sentence; or nothing."""
        return ""
