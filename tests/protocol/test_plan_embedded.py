"""A plan inside of another document, and in a file: always the very bytes that it is named by."""

import json
from pathlib import Path

import pytest

from ringfence.errors import MessageError, PlanError
from ringfence.protocol import EmbeddedPlan, Public, load_plan
from tests.protocol.plan_document import DOCUMENT, KINDS, Edits, edited, parse, plan_of

INDENTED = json.dumps(DOCUMENT, indent=2, ensure_ascii=False).encode() + b"\n"


class Folder(Public):
    """A document that holds plans."""

    plans: tuple[EmbeddedPlan, ...]
    other: EmbeddedPlan | None = None


def read_again(folder: Folder) -> Folder:
    return Folder.parse(folder.canonical(), error=MessageError)


@pytest.mark.parametrize("edits", KINDS.values(), ids=KINDS)
def test_a_plan_inside_of_a_document_keeps_its_bytes_and_its_name(edits: Edits) -> None:
    plan = plan_of(edits)
    (again,) = read_again(Folder(plans=(plan,))).plans
    assert again == plan
    assert again.content == plan.content
    assert again.digest() == plan.digest()


def test_that_holds_however_the_plan_is_spelled() -> None:
    plans = (parse(INDENTED), parse(DOCUMENT))
    again = read_again(Folder(plans=plans, other=plans[0]))
    assert [plan.content for plan in again.plans] == [plan.content for plan in plans]
    assert again.other is not None
    assert again.other.content == INDENTED
    assert len({plan.digest() for plan in plans}) == 2
    assert read_again(again).canonical() == again.canonical()


def test_a_plan_stands_in_a_document_as_text() -> None:
    written = json.loads(Folder(plans=(parse(INDENTED),)).canonical())
    assert written == {"plans": [INDENTED.decode()]}


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        ("{}", "plans.0: This is not a valid Plan: run: Field required"),
        ("", "plans.0: This is not a valid Plan: "),
        ({}, "plans.0"),
        ('{"format": 2}', "plans.0: This Plan has format 2, and this version of Ringfence reads formats up to 1"),
        (json.dumps(edited({"silos.0.weight": 0.9})), "the silos' weights must add up to 1"),
        ({"run": float("nan")}, "plans.0"),
        (3, "plans.0"),
        (None, "plans.0"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_document_with_something_else_in_a_plan_s_place_is_refused_in_one_sentence(plan: object, says: str) -> None:
    with pytest.raises(MessageError) as refused:
        Folder.parse(json.dumps({"plans": [plan]}).encode(), error=MessageError)
    sentence = str(refused.value)
    assert says in sentence
    assert "\n" not in sentence


def test_a_file_that_cannot_be_read_or_holds_no_plan_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"could not be read: No such file or directory\.$"):
        load_plan(tmp_path / "missing.json")
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(PlanError, match=r"other\.json is not a valid Plan: "):
        load_plan(tmp_path / "other.json")
