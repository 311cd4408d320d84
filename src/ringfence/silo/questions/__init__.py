"""What is computed from records, one file for each question of `protocol.questions`, of the same name.

An answer is a function of a sum over records, in whole numbers: so some records after the others, on several threads or
by several machines, give the same bytes as all at once.
"""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, Protocol, cast

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions import Question
from ringfence.silo.exact_sums import Counts
from ringfence.silo.records import Records


class Summed(Protocol):
    """What is needed of records: their sums (`Records.total`)."""

    def total(self, add_up: Callable[[Records, FloatArray], Counts], chosen: FloatArray, breadth: int) -> Counts:
        """Return what `add_up` gives for all records together, of which `chosen` take part."""


class Total(Protocol):
    """The function `total` of a question's file."""

    def __call__(self, question: Any, plan: Plan, argument: FloatArray, records: Records, chosen: FloatArray) -> Counts:
        """Return whole numbers, which add up over records: a pure function.

        `argument` is what the request carries. `chosen` is 1 for every record that takes part and 0 for others. The
        numbers are made by `silo.exact_sums`: then the charge covers their arithmetic. Each record's must be a function
        of that record and the request alone.
        """


class FromTotal(Protocol):
    """The function `answer` of a question's file."""

    def __call__(self, question: Any, plan: Plan, argument: FloatArray, total: Counts, batch: int) -> FloatArray:
        """Return the answer, to which noise is yet to be added, from the total of all records."""


class AnswerFromRecords(Protocol):
    """What a question's file offers here."""

    total: Total
    answer: FromTotal


def computing(question: Question) -> AnswerFromRecords:
    """Return the file of the question."""
    return cast(AnswerFromRecords, import_module(f"{__name__}.{question.name.replace('-', '_')}"))


def compute(
    question: Question, plan: Plan, argument: FloatArray, records: Summed, chosen: FloatArray, batch: int
) -> FloatArray:
    """Return the exact answer, to which noise is yet to be added: a pure function, not private by itself."""
    file = computing(question)
    total = records.total(partial(file.total, question, plan, argument), chosen, question.breadth(plan))
    return file.answer(question, plan, argument, total, batch)
