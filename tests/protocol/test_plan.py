"""The plan: one strict public document, named by its own bytes, in which every value counts."""

import hashlib
import json
import random
from collections.abc import Iterator
from functools import cache
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.errors import PlanError
from ringfence.protocol import Domain, Loss, Plan, Public
from tests.protocol import plan_document as plans
from tests.protocol.plan_document import Edits, at, coins_sigma, edited, leaves, parse, plan_of, shuffled_silo
from tests.support import clip_of, rebuilt

every_kind = pytest.mark.parametrize("edits", plans.KINDS.values(), ids=plans.KINDS)


def in_another_order(value: Any, order: random.Random) -> Any:
    """Return the same document with the keys of every object in another order."""
    if isinstance(value, dict):
        keys = list(value)
        order.shuffle(keys)
        return {key: in_another_order(value[key], order) for key in keys}
    return [in_another_order(inner, order) for inner in value] if isinstance(value, list) else value


# Bytes and names


@every_kind
def test_a_plan_keeps_the_bytes_that_it_was_read_from_and_is_named_by_them(edits: Edits) -> None:
    for content in (json.dumps(edited(edits)).encode(), json.dumps(edited(edits), indent=3).encode() + b"\n"):
        plan = parse(content)
        assert plan.content == content
        assert plan.digest() == hashlib.sha256(content).hexdigest()
        assert parse(plan.content).digest() == plan.digest()


def without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_none(inner) for name, inner in value.items() if inner is not None}
    return [without_none(inner) for inner in value] if isinstance(value, list) else value


@every_kind
def test_a_plan_that_is_made_here_has_canonical_bytes_that_say_all_that_it_says(edits: Edits) -> None:
    made = rebuilt(plan_of(edits))
    assert made.content == json.dumps(without_none(edited(edits)), sort_keys=True, separators=(",", ":")).encode()
    again = parse(made.content)
    assert again == made
    assert again.content == made.content
    assert again.digest() == made.digest() == hashlib.sha256(made.content).hexdigest()


def spellings() -> Iterator[bytes]:
    """Write the document in ways that say the same."""
    for seed in range(3):
        yield json.dumps(in_another_order(plans.DOCUMENT, random.Random(seed))).encode()
    yield json.dumps(plans.DOCUMENT, indent=1).encode()
    yield json.dumps(plans.DOCUMENT, ensure_ascii=False).encode()
    yield json.dumps(plans.DOCUMENT).encode() + b"\n"
    for clip in (b"15e-1", b"1.50", b"1.50000000000000000000001"):
        yield json.dumps(plans.DOCUMENT).encode().replace(b'"clip": 1.5', b'"clip": ' + clip)
    short = edited({})
    del short["unit"], short["adjacency"], short["stages"][0]["channel"]["correlation"], short["silos"][0]["key"]
    yield json.dumps(short).encode()


def test_a_plan_that_is_spelled_otherwise_says_the_same_and_is_another_plan() -> None:
    spelled = [parse(content) for content in spellings()]
    assert all(plan == parse(plans.DOCUMENT) for plan in spelled)
    assert len({plan.canonical() for plan in spelled}) == 1
    assert len({plan.digest() for plan in spelled}) == len(spelled)


def test_asking_for_a_digest_does_not_make_a_plan_unequal_to_itself() -> None:
    asked, fresh = parse(plans.DOCUMENT), parse(plans.DOCUMENT)
    asked.digest()
    asked.terms("north")
    assert asked.rounds == 20
    assert asked == fresh
    assert asked.canonical() == fresh.canonical()


def test_a_changed_copy_of_a_plan_has_its_own_bytes_digest_and_terms() -> None:
    plan = parse(json.dumps(plans.DOCUMENT, indent=1).encode())
    plan.digest()
    plan.terms("north")
    later = plan.model_copy(update={"run": "trial-2"})
    assert later.content == later.canonical() != plan.content
    assert later.digest() == rebuilt(plan, run="trial-2").digest() != plan.digest()
    renamed = plan.model_copy(update={"silos": parse(edited({"silos.0.name": "south"})).silos})
    assert renamed.terms("north") is None


def test_a_plan_cannot_be_changed() -> None:
    plan = parse(plans.DOCUMENT)
    with pytest.raises(ValueError, match="frozen"):
        plan.run = "trial-2"
    with pytest.raises(ValueError, match="frozen"):
        plan.stages[0].rounds = 21


@settings(max_examples=100, deadline=None)
@given(
    clip=st.floats(1e-6, 1e6),
    noise=st.floats(1e-3, 1e3),
    delta=st.floats(1e-300, 1.0, exclude_max=True),
    name=st.text(st.characters(codec="utf-8", exclude_characters="/\x7f", min_codepoint=32), min_size=1, max_size=200),
    share=st.floats(1e-6, 1.0, exclude_max=True),
)
def test_any_plan_survives_its_canonical_bytes(
    clip: float, noise: float, delta: float, name: str, share: float
) -> None:
    edits = {
        "stages.0.query.clip": clip,
        "silos.0.stages.0.sigma": clip * noise,
        "silos.1.stages.0.sigma": clip * noise,
        "silos.0.guarantees.0.delta": delta,
        "silos.0.name": name + "!" if name == "süd" else name,
        "silos.0.weight": share,
        "silos.1.weight": 1.0 - share,
    }
    plan = parse(edited(edits))
    own = plan.silos[0]
    assert (clip_of(plan), own.guarantee.delta, own.weight) == (clip, delta, share)
    again = parse(plan.canonical())
    assert again == plan
    assert again.content == again.canonical() == plan.canonical()


# Every value counts

ALTERNATIVES: list[Any] = [
    *(0, 1, 2, 3, 0.5, 2.5, -1.0, None, True, [], ["a", "b"], {}),
    *("", "other", "a", "age", "last", "b0" * 32),
]


def other_values(value: Any) -> list[Any]:
    """Return values near the given one, and some that are altogether different."""
    near: list[Any] = []
    if isinstance(value, int | float) and not isinstance(value, bool):
        near = [value + 1, value * 2, value * 3, value + value / 8, value * (1 + 2.0**-50)]
    elif isinstance(value, str):
        near = [value + "x", value[::-1]]
    elif isinstance(value, bool):
        near = [not value]
    return [other for other in [*near, *ALTERNATIVES] if other != value]


@cache
def plans_with_another(kind: str, leaf: str) -> list[Plan]:
    """Return the plans that result where only this value of the document is another."""
    document, found = edited(plans.KINDS[kind]), []
    for value in other_values(at(document, leaf)):
        try:
            found.append(parse(edited({leaf: value}, document)))
        except PlanError:
            continue
    return found


LEAVES = [
    (kind, leaf)
    for kind, edits in plans.KINDS.items()
    for leaf in leaves(edited(edits))
    if kind == "plain" or leaf.startswith(("training", "stages", "silos", "data.maps"))
]


@pytest.mark.parametrize(("kind", "leaf"), LEAVES)
def test_another_value_anywhere_is_refused_or_makes_another_plan(kind: str, leaf: str) -> None:
    original = plan_of(plans.KINDS[kind])
    for plan in plans_with_another(kind, leaf):
        assert plan != original
        assert plan.canonical() != original.canonical()
        assert plan.digest() != original.digest()


THREE: Edits = {
    "stages": edited(plans.SHUFFLED)["stages"],
    "stages.0.participation.silos": 3,
    "silos": [
        shuffled_silo(0, weight=0.25),
        shuffled_silo(1, weight=0.375),
        shuffled_silo(1, weight=0.375, name="west"),
    ],
}
TOGETHER: list[Edits] = [
    plans.COMPARED | {"stages.0.query.part": "losses"},
    {place: value for place, value in plans.PRECONDITIONED.items() if "sampling" not in place}
    | {"training.algorithm.axes": "rank-one", "stages.1.query.axes": "rank-one"},
    {"silos.0.weight": 0.4, "silos.1.weight": 0.6},
    plans.RESTARTED | {"training.algorithm.stages.0.rounds": 13, "training.algorithm.stages.1.rounds": 7},
    plans.LOCALIZED
    | {
        "training.algorithm.phases.0.rounds": 4,
        "stages.0.rounds": 4,
        "training.algorithm.phases.1.rounds": 1,
        "stages.1.rounds": 1,
    },
    plans.SHUFFLED
    | {
        "stages.0.query.clip": 3.0,
        "stages.0.channel.levels": 12,
        "stages.0.channel.coins": 100,
        "silos.0.stages.0.sigma": coins_sigma(40, clip=3.0, levels=12, coins=100),
        "silos.1.stages.0.sigma": coins_sigma(60, clip=3.0, levels=12, coins=100),
    },
    plans.LOCALIZED
    | plans.ACCELERATED
    | {"stages.1.sampling.phase": 0, "silos.0.stages.1.batch": 20, "silos.1.stages.1.batch": 30},
    THREE | {"stages.0.channel.quorum": 3},
    THREE | {"stages.0.channel.quorum": 3, "stages.0.channel.colluders": 1},
    plans.KINDS["counted"] | {"stages.0.query.columns": ["town", "age"]},
    plans.KINDS["counted"] | {"stages.0.query.cross": []},
    plans.KINDS["curve of survival"]
    | {
        "data.columns.span": plans.DOCUMENT["data"]["columns"]["age"],
        "data.columns.ended": {"type": "categorical", "categories": ["no", "yes"]},
        "stages.0.query.time": "span",
        "stages.0.query.event": "ended",
    },
    plans.KINDS["mapped"] | {"data.maps.3.columns": ["age"]},
    plans.KINDS["evaluated"] | {"stages.1.section": None, "silos.0.stages.1.batch": 40, "silos.1.stages.1.batch": 60},
]
"""Other words, and changes of several values at once, where one alone would not fit the others."""

ONE_VALUE = {"format", "adjacency", "unit", "data.maps.surveyed"}
"""Fields that have one allowed value so far."""

WHICH_KIND = {
    *("training.algorithm.name", "training.loss.name", "training.domain.name", "silos.guarantees.against"),
    *("stages.query.name", "stages.sampling.name", "stages.channel.name"),
    *(f"data.columns.{column}.type" for column in plans.DOCUMENT["data"]["columns"]),
    "data.maps.type",
}
"""Fields that say what kind the others beside them are of: the kinds above have other ones."""


def place_of(leaf: str) -> str:
    """Return the path of a field without the numbers of silos, stages and parts."""
    return ".".join(step for step in leaf.split(".") if not step.isdecimal())


def test_every_field_of_a_plan_can_be_another_and_then_it_is_another_plan() -> None:
    together = [plan_of(edits).canonical() for edits in TOGETHER]
    assert len(set(together)) == len(together)
    changed = {place_of(leaf) for edits in TOGETHER for leaf in edits}
    changed |= {place_of(leaf) for kind, leaf in LEAVES if plans_with_another(kind, leaf)}
    assert {place_of(leaf) for _, leaf in LEAVES} - changed == {*ONE_VALUE, *WHICH_KIND}


def models_in(kind: Any) -> Iterator[type[Public]]:
    """Name every kind of document that may stand in a field of that type."""
    if isinstance(kind, type) and issubclass(kind, Public):
        yield kind
        for field in kind.model_fields.values():
            yield from models_in(field.annotation)
    for inner in get_args(kind):
        yield from models_in(inner)


def fields_of(value: Any) -> Iterator[tuple[type[Public], str]]:
    """Name every field that a document has."""
    if isinstance(value, Public):
        for name in type(value).model_fields:
            yield type(value), name
            yield from fields_of(getattr(value, name))
    elif isinstance(value, tuple | dict):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from fields_of(inner)


def test_the_plans_tried_above_use_every_field_but_those_of_other_losses_and_domains() -> None:
    used = {field for edits in [*plans.KINDS.values(), plans.ACCELERATED] for field in fields_of(plan_of(edits))}
    known = {(model, name) for model in models_in(Plan) for name in model.model_fields}
    other_losses_and_domains = (*models_in(Loss), *models_in(Domain))
    assert {(model, name) for model, name in known - used if model not in other_losses_and_domains} == set()
