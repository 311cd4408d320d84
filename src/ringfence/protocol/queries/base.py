"""What every query declares in public: parameters, the request's argument, the answer's length and its sensitivity.

A query is what a stage of a plan asks of records. `silo.queries` computes its answer from records, and `server.queries`
uses the answers. Most queries are a `MeanQuery`: the mean of one vector per record, from a set of known diameter.
"""

import itertools
import math
from abc import abstractmethod
from collections.abc import Hashable, Mapping
from typing import ClassVar, Literal, Protocol, TypeAlias, TypeVar

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.losses import Loss
from ringfence.protocol.plan.domain import Domain
from ringfence.protocol.plan.effort import NUMBER, PASS, Effort, at_once
from ringfence.protocol.public import Public
from ringfence.protocol.schema.schema import Schema

Unit: TypeAlias = Literal["record", "person"]
PersonRule: TypeAlias = Literal["mean", "rows", "sum"]
Key = TypeVar("Key", bound=Hashable)


class Facts(Protocol):
    """The public facts of a plan that a query depends on.

    `dimension` is the number of weights, 0 without a model. `unit` is the privacy unit: a record, or a person with all
    their rows. `person_rule` says how a person's rows enter a gradient, and `rows_per_person` how many count by the
    rule `rows`.
    """

    @property
    def data(self) -> Schema: ...

    @property
    def loss(self) -> Loss: ...

    @property
    def domain(self) -> Domain: ...

    @property
    def dimension(self) -> int: ...

    @property
    def unit(self) -> Unit: ...

    @property
    def person_rule(self) -> PersonRule | None: ...

    @property
    def rows_per_person(self) -> int | None: ...


def slices_of(lengths: Mapping[Key, int]) -> dict[Key, slice]:
    """Return the slice of each named block of a vector, of these lengths one after the other."""
    ends = itertools.accumulate(lengths.values(), initial=0)
    return {name: slice(*ends) for name, ends in zip(lengths, itertools.pairwise(ends), strict=True)}


def rounds_phrase(rounds: int) -> str:
    """Say how many rounds a query is asked, as the beginning of a sentence."""
    return "Once" if rounds == 1 else f"In each of {rounds} rounds"


class BaseQuery(Public):
    """The interface that gate, accountant, review and server use.

    `trains`: its answers change the model's weights, so that without them there is no model. `about_model`: its answers
    depend on a loss, which the plan must name. `about_features`: they depend on the records' features, so that a
    request places the knots of open curves before its argument. `rounds_for`: what its rounds are called beside others
    of a plan.
    """

    trains: ClassVar[bool] = False
    about_model: ClassVar[bool] = True
    about_features: ClassVar[bool] = True
    rounds_for: ClassVar[str] = "survey"

    def check(self, facts: Facts) -> None:
        """Raise ValueError, with a clause that says why, if the query cannot be asked of such records."""

    def knots(self, facts: Facts) -> int:
        """Return how many knots a request places before the query's own argument."""
        return facts.data.knots if self.about_features else 0

    def argument_length(self, facts: Facts) -> int:
        """Return how many numbers a request carries after knots. By default: the weights, if there is a model."""
        return facts.dimension

    def accepts(self, facts: Facts, argument: FloatArray) -> bool:
        """Return whether an argument of the right length is valid. By default: whether it is in the domain."""
        return facts.domain.contains(argument)

    @abstractmethod
    def length(self, facts: Facts) -> int:
        """Return how many numbers the answer has."""

    @abstractmethod
    def sensitivity(self, facts: Facts, batch: int) -> float:
        """Return the l2 sensitivity of the answer to replacing one of the `batch` records that take part."""

    @abstractmethod
    def largest(self, facts: Facts) -> float:
        """Return a bound on every number of the answer, if no more records take part than its batch."""

    def record_norm(self, facts: Facts) -> float | None:
        """Return the largest norm of one record's term, if a shuffler may add up such terms; else None."""
        return None

    def roundings(self, facts: Facts) -> int:
        """Return a bound on the rounding error of two neighbours' answers, in units of 2⁻⁵³ × records × sensitivity.

        By default 2: the quotient of an exact sum is rounded once for each neighbour.
        """
        return 2

    def terms_summed(self, facts: Facts) -> int:
        """Return how many coordinates per record are rounded to the grid and added up.

        By default: the larger of the answer's length and the number of features.
        """
        return max(self.length(facts), facts.data.width)

    def breadth(self, facts: Facts) -> int:
        """Return about how many numbers a record takes while it is processed. By default: its terms."""
        return self.terms_summed(facts)

    def effort(self, facts: Facts, records: int) -> Effort:
        """Return the seconds and the memory that the answer takes. By default: a few passes over every record."""
        breadth = self.breadth(facts)
        return Effort(PASS * records * breadth, 8 * NUMBER * breadth * at_once(records, breadth))

    def encoding_effort(self, facts: Facts, records: int) -> Effort:
        """Return the effort of encoding the records with the knots that a request places."""
        numbers = records * facts.data.width if self.knots(facts) else 0
        return Effort(20 * PASS * numbers, NUMBER * numbers)

    @abstractmethod
    def reveals(self, facts: Facts, rounds: int) -> str:
        """Tell an operator, in a sentence without its full stop, what leaves the silo in that many rounds."""

    @property
    def purpose(self) -> str:
        """Why the query is asked, as part of a sentence; by default empty, as for training itself."""
        return ""

    def explains(self) -> str | None:
        """Return the stated weights of the model that the query explains; by default there is none."""
        return None

    def uncovered(self, facts: Facts) -> str:
        """Name what no loss bound covers in a query; by default nothing."""
        return ""

    def limits(self, facts: Facts) -> str:
        """Tell an operator how a record's influence is limited, as the beginning of a sentence; or nothing."""
        return ""


class MeanQuery(BaseQuery):
    """The mean, over the batch, of one vector per record, from a set of known diameter.

    So replacing a record changes the answer by at most diameter/batch. At the silo such an answer is the sum of the
    records' terms, in whole numbers, over the batch: the sums of any parts of the records add up to that of all.
    """

    @abstractmethod
    def diameter(self, facts: Facts) -> float:
        """Return the largest distance between the vectors of two records in a query for a mean, in l2 norm."""

    def rounded(self, facts: Facts) -> float:
        """Return how much further apart rounding can move two vectors, in units of 2⁻³¹.

        By default the root of the length: each number is rounded towards zero to 31 bits.
        """
        return math.sqrt(self.length(facts))

    def sensitivity(self, facts: Facts, batch: int) -> float:
        """Return diameter/batch, with rounding: the sensitivity of a mean."""
        return (self.diameter(facts) + self.rounded(facts) * 2.0**-31) / batch

    def largest(self, facts: Facts) -> float:
        """Return 1, by default for queries of means: most vectors are in units of their largest number."""
        return 1.0
