"""Every question has its place in every room, and none is left untested."""

from pathlib import Path
from typing import get_args

from ringfence.protocol.questions import Question
from ringfence.server.questions import using
from ringfence.silo.questions import computing
from tests.protocol.plan_document import KINDS, plan_of

QUESTIONS = get_args(get_args(Question)[0])


def test_every_question_has_tests_of_its_sensitivity() -> None:
    names = {kind.model_fields["name"].default.replace("-", "_") for kind in QUESTIONS}
    tested = {path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py")}
    assert names == tested - {"questions"}


def test_every_question_is_computed_at_a_silo_and_made_use_of_at_the_server() -> None:
    asked = {type(stage.question): stage.question for edits in KINDS.values() for stage in plan_of(edits).stages}
    assert set(asked) == set(QUESTIONS), "the plans of these tests ask them all"
    for question in asked.values():
        assert callable(computing(question).total)
        assert callable(computing(question).answer)
        assert callable(using(question).argument)
        assert callable(using(question).receive)
