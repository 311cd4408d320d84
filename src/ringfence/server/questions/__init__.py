"""What is made of the answers, one file for each question of `protocol.questions`, of the same name.

All of it is computed from noisy messages, and so free of further cost.
"""

from importlib import import_module
from typing import Any, Protocol, cast

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.questions import Question
from ringfence.server.learned import Answers, Learned


class QuestionAtServer(Protocol):
    """What a question's file offers here."""

    def argument(self, question: Any, learned: Learned, step: int) -> FloatArray:
        """Return what a request carries; `step` counts the rounds of all training stages before this one."""

    def receive(self, question: Any, learned: Learned, answers: Answers) -> Learned:
        """Return what is known after a round that somebody answered."""


def using(question: Question) -> QuestionAtServer:
    """Return the file of the question."""
    return cast(QuestionAtServer, import_module(f"{__name__}.{question.name.replace('-', '_')}"))
