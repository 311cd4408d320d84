"""What is computed from records, one file for each question of `protocol.questions`, of the same name."""

from importlib import import_module
from typing import Any, Protocol, cast

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions import Question
from ringfence.silo.records import Records


class AnswerFromRecords(Protocol):
    """What a question's file offers here."""

    def compute(
        self, question: Any, plan: Plan, argument: FloatArray, records: Records, chosen: FloatArray, batch: int
    ) -> FloatArray:
        """Return the exact answer, to which noise is yet to be added: a pure function, not private by itself.

        `argument` is what the request carries. `chosen` is 1 for every record that takes part and 0 for others. Sums
        over records go through `silo.exact_sums`: then the charge covers their arithmetic.
        """


def computing(question: Question) -> AnswerFromRecords:
    """Return the file of the question."""
    return cast(AnswerFromRecords, import_module(f"{__name__}.{question.name.replace('-', '_')}"))
