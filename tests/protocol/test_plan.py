"""The plan: one strict public document whose digest covers everything that it says."""

import copy
import hashlib
import json
import math
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.errors import PlanError
from ringfence.protocol.plan import Plan

Edits = dict[str, Any]

DOCUMENT: dict[str, Any] = {
    "format": 1,
    "run": "trial-1",
    "data": {
        "columns": {
            "age": {"type": "numeric", "lower": 0.0, "upper": 100.0, "center": 40.0, "scale": 20.0, "missing": 50.0},
            "town": {
                "type": "categorical",
                "categories": ["a", "b", "c"],
                "ordered": False,
                "center": 0.25,
                "scale": 0.5,
                "missing": "b",
            },
            "note": {"type": "ignore"},
            "cost": {"type": "numeric", "lower": -1.0, "upper": 1.0, "center": None, "scale": None, "missing": None},
        },
        "target": "cost",
        "intercept": 1.0,
        "radius": 2.0,
    },
    "loss": {"name": "huber", "threshold": 0.5},
    "clip": 1.5,
    "domain": {"name": "box", "lower": -3.0, "upper": 4.0},
    "sampling": "fixed",
    "rounds": 20,
    "algorithm": {"name": "minibatch-sgd", "step": 0.1, "momentum": 0.5, "skip": 3, "growth": 1.25},
    "ridge": 0.01,
    "participation": {"silos": 1, "probability": None},
    "adjacency": "replace-one",
    "silos": [
        {"name": "north", "records": 40, "batch": 10, "sigma": 0.7, "epsilon": 1.0, "delta": 1e-6, "weight": 0.5},
        {"name": "süd", "records": 60, "batch": 15, "sigma": 0.6, "epsilon": 2.0, "delta": 1e-7, "weight": 0.5},
    ],
}


def edited(edits: Edits) -> dict[str, Any]:
    """Return a copy of the document with the values at the given dotted paths replaced."""
    document = copy.deepcopy(DOCUMENT)
    for path, value in edits.items():
        *steps, last = path.split(".")
        place: Any = document
        for step in steps:
            place = place[int(step) if isinstance(place, list) else step]
        place[int(last) if isinstance(place, list) else last] = value
    return document


def parse(content: dict[str, Any] | bytes) -> Plan:
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    return Plan.parse(raw, error=PlanError)


def refusal(content: dict[str, Any] | bytes) -> str:
    """Return the one sentence with which the plan is refused."""
    with pytest.raises(PlanError) as caught:
        parse(content)
    sentence = str(caught.value)
    assert sentence.startswith("This is not a valid Plan: ")
    assert sentence.endswith(".")
    assert "\n" not in sentence
    assert "http" not in sentence
    assert "input_value" not in sentence
    return sentence


def leaves(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, dict | list):
        for step, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, f"{path}.{step}" if path else str(step))
    else:
        yield path


def shuffled(value: Any, order: random.Random) -> Any:
    """Return the same document with the keys of every object in another order."""
    if isinstance(value, dict):
        keys = list(value)
        order.shuffle(keys)
        return {key: shuffled(value[key], order) for key in keys}
    return [shuffled(inner, order) for inner in value] if isinstance(value, list) else value


# Digest and canonical form


def test_a_plan_survives_its_canonical_bytes() -> None:
    plan = parse(DOCUMENT)
    again = parse(plan.canonical())
    assert again == plan
    assert again.canonical() == plan.canonical()
    assert again.digest() == plan.digest()


def test_the_canonical_bytes_say_everything_that_the_plan_says() -> None:
    assert json.loads(parse(DOCUMENT).canonical()) == DOCUMENT


def test_the_digest_is_the_sha256_of_sorted_compact_json() -> None:
    compact = json.dumps(DOCUMENT, sort_keys=True, separators=(",", ":")).encode()
    assert parse(DOCUMENT).digest() == hashlib.sha256(compact).hexdigest()


@pytest.mark.parametrize("seed", range(5))
def test_the_digest_does_not_depend_on_key_order_or_white_space(seed: int) -> None:
    other = json.dumps(shuffled(DOCUMENT, random.Random(seed)), indent=seed or None).encode()
    assert parse(other) == parse(DOCUMENT)
    assert parse(other).digest() == parse(DOCUMENT).digest()


def test_equal_plans_have_equal_digests_however_their_numbers_are_written() -> None:
    whole = parse(edited({"clip": 2, "silos.0.epsilon": 1, "data.columns.age.lower": 0}))
    for two, zero in ((b"2.0", b"0.0"), (b"0.2e1", b"0e5"), (b"2.00000000000000000001", b"1e-999")):
        content = whole.canonical().replace(b'"clip":2.0', b'"clip":' + two).replace(b'"lower":0.0', b'"lower":' + zero)
        assert parse(content) == whole
        assert parse(content).digest() == whole.digest()


def test_plans_that_differ_only_in_the_sign_of_a_zero_are_equal_and_so_are_their_digests() -> None:
    plus, minus = (parse(edited({"algorithm.momentum": zero})) for zero in (0.0, -0.0))
    assert plus == minus
    assert plus.digest() == minus.digest()


def test_defaults_that_are_written_out_do_not_change_the_digest() -> None:
    short = edited({})
    written = edited({"ridge": 0.0, "participation": {"silos": None, "probability": None}, "data.radius": None})
    written["algorithm"] = {"name": "minibatch-sgd", "step": 0.1, "momentum": 0.0, "skip": 0, "growth": 1.0}
    short["algorithm"] = {"step": 0.1}
    for path in ("format", "ridge", "participation", "adjacency"):
        del short[path]
    del short["data"]["radius"]
    assert parse(short).digest() == parse(written).digest()


CHANGES: list[Edits] = [
    {"run": "trial-2"},
    {"data.columns.age.lower": 1.0},
    {"data.columns.age.upper": 101.0},
    {"data.columns.age.center": 41.0},
    {"data.columns.age.center": None},
    {"data.columns.age.scale": 21.0},
    {"data.columns.age.missing": 51.0},
    {"data.columns.age": {"type": "ignore"}},
    {"data.columns.town.categories": ["a", "b", "d"]},
    {"data.columns.town.categories": ["b", "a", "c"]},
    {"data.columns.town.categories": ["a", "b"]},
    {"data.columns.town.missing": "a"},
    {"data.columns.town": {"type": "numeric", "lower": 0.0, "upper": 1.0}},
    {"data.columns.note": {"type": "numeric", "lower": 0.0, "upper": 1.0}},
    {"data.columns.cost.lower": -2.0},
    {"data.columns.cost.upper": 2.0},
    {"data.columns.cost.center": 0.0},
    {"data.columns.cost.scale": 1.0},
    {"data.columns.cost.missing": 0.0},
    {"data.columns.cost": {"type": "categorical", "categories": ["a", "b"]}, "loss": {"name": "logistic"}},
    {"data.columns.new": {"type": "ignore"}},
    {"data.target": "age"},
    {"data.intercept": 0.0},
    {"data.columns.town.ordered": True},
    {"data.columns.town.scale": 2.0},
    {"data.columns.town.center": 0.5},
    {"data.radius": 2.1},
    {"data.radius": None},
    {"loss.threshold": 0.6},
    {"loss": {"name": "squared"}},
    {"clip": 1.6},
    {"clip": math.nextafter(1.5, 2.0)},
    {"domain.lower": -3.5},
    {"domain.upper": 4.5},
    {"domain": {"name": "ball", "radius": 3.0}},
    {"domain": {"name": "whole-space"}},
    {"sampling": "poisson"},
    {"rounds": 21},
    {"algorithm.step": 0.2},
    {"algorithm.momentum": 0.6},
    {"algorithm.skip": 4},
    {"algorithm.growth": 1.5},
    {"ridge": 0.02},
    {"participation.silos": 2},
    {"participation": {"probability": 0.5}},
    {"silos.0.name": "south"},
    {"silos.0.records": 41},
    {"silos.0.batch": 11},
    {"silos.0.sigma": 0.8},
    {"silos.0.epsilon": 1.1},
    {"silos.0.delta": 2e-6},
    {"silos.0.weight": 0.4, "silos.1.weight": 0.6},
    {"silos.1.name": "south"},
    {"silos.1.records": 61},
    {"silos.1.batch": 16},
    {"silos.1.sigma": 0.61},
    {"silos.1.epsilon": 2.1},
    {"silos.1.delta": 2e-7},
    {"silos": DOCUMENT["silos"][::-1]},
]
FIXED = {"format", "adjacency", "algorithm.name"}
"""Fields that have one allowed value so far."""


@pytest.mark.parametrize("edits", CHANGES, ids=str)
def test_the_digest_changes_with_every_field(edits: Edits) -> None:
    assert parse(edited(edits)).digest() != parse(DOCUMENT).digest()


def test_no_two_different_plans_share_a_digest() -> None:
    assert len({parse(edited(edits)).digest() for edits in CHANGES}) == len(CHANGES)


def test_the_changes_tried_above_cover_every_field_of_a_plan() -> None:
    tried = {path for edits in CHANGES for path in edits}
    missed = {
        leaf
        for leaf in leaves(json.loads(parse(DOCUMENT).canonical()))
        if leaf not in FIXED and not any(leaf == path or leaf.startswith(path + ".") for path in tried)
    }
    assert not missed


def test_asking_for_a_digest_does_not_make_a_plan_unequal_to_itself() -> None:
    asked, fresh = parse(DOCUMENT), parse(DOCUMENT)
    asked.digest()
    asked.terms("north")
    assert asked == fresh
    assert asked.canonical() == fresh.canonical()


def test_a_changed_copy_of_a_plan_has_its_own_digest_and_terms() -> None:
    plan = parse(DOCUMENT)
    plan.digest()
    plan.terms("north")
    longer = plan.model_copy(update={"rounds": 21})
    assert longer.digest() == parse(edited({"rounds": 21})).digest()
    renamed = plan.model_copy(update={"silos": parse(edited({"silos.0.name": "south"})).silos})
    assert renamed.terms("north") is None


def test_a_plan_cannot_be_changed() -> None:
    plan = parse(DOCUMENT)
    with pytest.raises(ValueError, match="frozen"):
        plan.clip = 2.0


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
        "clip": clip,
        "silos.0.sigma": clip * noise,
        "silos.1.sigma": clip * noise,
        "silos.0.delta": delta,
        "silos.0.name": name + "!" if name == "süd" else name,
        "silos.0.weight": share,
        "silos.1.weight": 1.0 - share,
    }
    plan = parse(edited(edits))
    assert (plan.clip, plan.silos[0].delta, plan.silos[0].weight) == (clip, delta, share)
    again = parse(plan.canonical())
    assert again == plan
    assert again.canonical() == plan.canonical()


# What a plan refuses


def objects_of(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, dict | list):
        if isinstance(value, dict) and path != "data.columns":
            yield path
        for step, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from objects_of(inner, f"{path}.{step}" if path else str(step))


@pytest.mark.parametrize("path", list(objects_of(DOCUMENT)))
def test_a_field_that_a_plan_does_not_have_is_refused_wherever_it_stands(path: str) -> None:
    sentence = refusal(edited({f"{path}.surprise" if path else "surprise": 1}))
    assert "not permitted" in sentence


@pytest.mark.parametrize("path", [leaf for leaf in leaves(DOCUMENT) if "categories" not in leaf])
@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf], ids=str)
def test_nan_and_infinity_are_refused_in_every_field(path: str, poison: float) -> None:
    refusal(edited({path: poison}))


WRONG_TYPES: list[tuple[str, Any]] = [
    *[(path, "1") for path in ("clip", "rounds", "ridge", "silos.0.sigma", "silos.0.records", "silos.0.epsilon")],
    *[(path, 10.0) for path in ("rounds", "silos.0.records", "silos.0.batch", "algorithm.skip")],
    *[(path, True) for path in ("rounds", "clip", "silos.0.records", "silos.0.sigma")],
    *[(path, 1) for path in ("run", "sampling", "silos.0.name", "data.target")],
    ("data.intercept", "true"),
    ("format", "1"),
    ("format", 2),
    ("adjacency", "add-remove"),
    ("sampling", "shuffle"),
    ("algorithm.name", "local-sgd"),
    ("loss", {"name": "hinge"}),
    ("domain", "ball"),
    ("silos", {}),
    ("silos", []),
    ("clip", None),
    ("clip", [1.0]),
    ("data.columns.town.categories", "ab"),
    ("data.columns.town.categories", [True, False]),
]


@pytest.mark.parametrize(("path", "value"), WRONG_TYPES, ids=str)
def test_values_of_the_wrong_type_are_refused_and_not_converted(path: str, value: Any) -> None:
    assert path.split(".", maxsplit=1)[0] in refusal(edited({path: value}))


OUT_OF_RANGE: list[tuple[str, Any]] = [
    *[(path, 0.0) for path in ("clip", "algorithm.step", "silos.0.sigma", "silos.0.epsilon", "silos.0.delta")],
    *[(path, -1.0) for path in ("clip", "ridge", "algorithm.momentum", "silos.0.sigma", "silos.0.epsilon")],
    *[(path, 0) for path in ("rounds", "silos.0.records", "silos.0.batch", "participation.silos")],
    ("silos.0.delta", 1.0),
    ("silos.0.weight", 0.0),
    ("silos.0.weight", 1.1),
    ("algorithm.momentum", 1.0),
    ("algorithm.growth", 0.9),
    ("algorithm.skip", -1),
    ("rounds", 10_000_001),
    ("participation", {"probability": 0.0}),
    ("participation", {"probability": 1.1}),
    ("run", ""),
    ("run", "a b"),
    ("run", "../a"),
    ("run", "a\n"),
    ("run", "a" * 65),
    ("silos.0.name", ""),
    ("silos.0.name", "a/b"),
    ("silos.0.name", "a\nb"),
    ("silos.0.name", "a\n"),
    ("silos.0.name", "a" * 201),
]


@pytest.mark.parametrize(("path", "value"), OUT_OF_RANGE, ids=str)
def test_values_out_of_range_are_refused(path: str, value: Any) -> None:
    assert path.split(".", maxsplit=1)[0] in refusal(edited({path: value}))


@pytest.mark.parametrize(
    "path",
    ["run", "data", "loss", "clip", "domain", "sampling", "rounds", "algorithm", "silos"]
    + [f"silos.0.{name}" for name in ("name", "records", "batch", "sigma", "epsilon", "delta", "weight")],
)
def test_nothing_that_affects_privacy_has_a_default(path: str) -> None:
    document = edited({})
    *steps, last = path.split(".")
    place: Any = document
    for step in steps:
        place = place[int(step) if isinstance(place, list) else step]
    del place[last]
    assert f"{path}: Field required" in refusal(document)


def test_a_plan_with_two_silos_of_one_name_is_refused() -> None:
    assert "two silos have the same name" in refusal(edited({"silos.1.name": "north"}))


@pytest.mark.parametrize("weight", [0.5001, 0.4999, 1e-9])
def test_weights_that_do_not_add_up_to_one_are_refused(weight: float) -> None:
    assert "add up to 1" in refusal(edited({"silos.0.weight": weight}))


def test_weights_that_add_up_to_one_but_for_rounding_are_accepted() -> None:
    names = [f"s{i}" for i in range(49)]
    silos = [{**DOCUMENT["silos"][0], "name": name, "weight": 1.0 / 49} for name in names]
    assert len(parse(edited({"silos": silos})).silos) == 49


def test_a_batch_larger_than_its_silo_is_refused() -> None:
    assert "silo 'north' has 40 records" in refusal(edited({"silos.0.batch": 41}))
    assert parse(edited({"silos.0.batch": 40})).silos[0].batch == 40


def test_full_sampling_takes_all_records_of_every_silo() -> None:
    assert "silo 'north'" in refusal(edited({"sampling": "full"}))
    assert "silo 'süd'" in refusal(edited({"sampling": "full", "silos.0.batch": 40}))
    assert parse(edited({"sampling": "full", "silos.0.batch": 40, "silos.1.batch": 60})).sampling == "full"


def test_one_pass_that_needs_a_record_twice_is_refused() -> None:
    assert "one pass of 20 rounds of 10 records" in refusal(edited({"sampling": "one-pass"}))
    assert "silo 'süd'" in refusal(edited({"sampling": "one-pass", "rounds": 4, "silos.1.batch": 16}))
    assert "silo 'north'" in refusal(edited({"sampling": "one-pass", "rounds": 4, "silos.0.records": 39}))
    assert parse(edited({"sampling": "one-pass", "rounds": 4})).rounds == 4


def test_asking_more_silos_than_there_are_or_by_two_rules_is_refused() -> None:
    assert "more silos than there are" in refusal(edited({"participation.silos": 3}))
    assert "not both" in refusal(edited({"participation": {"silos": 1, "probability": 0.5}}))


def test_an_average_over_no_round_is_refused() -> None:
    assert "lower `skip`" in refusal(edited({"algorithm.skip": 20}))
    assert parse(edited({"algorithm.skip": 19})).rounds == 20


TWO, THREE = ({"type": "categorical", "categories": names} for names in (["a", "b"], ["a", "b", "c"]))
NUMBER = {"type": "numeric", "lower": 0.0, "upper": 1.0}


@pytest.mark.parametrize(
    ("loss", "fitting"),
    [
        ({"name": "logistic"}, [TWO]),
        ({"name": "softmax", "classes": 3}, [THREE]),
        ({"name": "softmax", "classes": 2}, []),
        ({"name": "squared"}, [NUMBER]),
        ({"name": "huber", "threshold": 1.0}, [NUMBER]),
    ],
    ids=str,
)
def test_a_loss_that_does_not_fit_the_target_is_refused(loss: Edits, fitting: list[Edits]) -> None:
    for target in (TWO, THREE, NUMBER):
        document = edited({"loss": loss, "data.columns.cost": target})
        if target in fitting:
            assert parse(document).loss.name == loss["name"]
        else:
            assert f"the {loss['name']} loss does not fit the target 'cost'" in refusal(document)


def test_noise_too_small_to_be_added_exactly_is_refused() -> None:
    # A poisson batch may hold all 40 records: the largest mean is clip·40/10.
    smallest = 1.5 * 40 / 10 * 2.0**-20
    assert "noise of silo 'north'" in refusal(edited({"silos.0.sigma": smallest * 0.999}))
    assert parse(edited({"silos.0.sigma": smallest * 1.001})).silos[0].name == "north"
    assert "noise of silo 'süd'" in refusal(edited({"silos.1.sigma": 1e-9}))


def test_noise_beyond_the_range_of_exact_arithmetic_is_refused() -> None:
    assert "out of the range" in refusal(edited({"silos.0.sigma": 1e300}))
    assert "out of the range" in refusal(edited({"clip": 1e-300, "silos.0.sigma": 1e-290, "silos.1.sigma": 1e-290}))


def test_a_silo_finds_its_own_terms_and_a_stranger_none() -> None:
    plan = parse(DOCUMENT)
    for terms in plan.silos:
        assert plan.terms(terms.name) is terms
    assert plan.terms("east") is None


def test_the_dimension_counts_every_feature_for_every_output() -> None:
    assert parse(DOCUMENT).dimension == 5  # age, three towns, intercept
    three = edited({"data.columns.cost": THREE, "loss": {"name": "softmax", "classes": 3}})
    assert parse(three).dimension == 15


def test_the_constants_are_those_of_the_loss_plus_the_ridge() -> None:
    plan = parse(edited({"loss": {"name": "squared"}}))
    longest = math.hypot(2.0, 1.0)
    reach = 4.0 * math.sqrt(5)
    assert plan.constants.lipschitz == pytest.approx(longest * (longest * reach + 1.0))
    assert plan.constants.smoothness == pytest.approx(5.0 + 0.01)
    assert plan.constants.strong_convexity == pytest.approx(0.01)


# Hostile bytes


def test_a_plan_larger_than_the_limit_is_not_read() -> None:
    padded = json.dumps(DOCUMENT).encode()
    padded += b" " * (16 * 2**20 - len(padded))
    assert parse(padded) == parse(DOCUMENT)
    with pytest.raises(PlanError, match="16777217 bytes"):
        parse(padded + b" ")


@pytest.mark.parametrize(
    "content",
    [b"", b"null", b"[]", b"3", b'"plan"', b"{", b"\xff\xfe", b"[" * 100_000, b'{"run":' * 100_000, b"9" * 100_000],
    ids=lambda content: repr(content[:8]),
)
def test_bytes_that_are_no_plan_are_refused(content: bytes) -> None:
    refusal(content)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=100))
def test_any_bytes_are_refused_in_one_sentence(content: bytes) -> None:
    refusal(content)


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(0, 400).map(lambda power: 10**power)
    | st.floats()
    | st.sampled_from([5e-324, 1e308, -1e308, 2**63, -(2**63), "", "\x00"])
    | st.text(max_size=5)
)
JSON = SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(st.text(max_size=5), SCALARS, max_size=3)


@settings(max_examples=300, deadline=None)
@given(path=st.sampled_from(list(leaves(DOCUMENT))), value=JSON)
def test_any_value_in_any_field_gives_a_plan_or_a_plan_error(path: str, value: Any) -> None:
    document = edited({path: value})
    try:
        plan = parse(document)
    except PlanError:
        return
    assert parse(plan.canonical()) == plan
    assert plan.dimension >= 1
    assert not math.isnan(plan.constants.lipschitz)


def test_numbers_of_records_too_large_to_compute_with_are_refused_in_a_sentence() -> None:
    assert "silo" in refusal(edited({"silos.0.records": 10**400}))


def test_a_column_too_narrow_to_compute_with_is_refused_in_a_sentence() -> None:
    narrow = {"type": "numeric", "lower": 0.0, "upper": 5e-324}
    assert "age" in refusal(edited({"data.columns.age": narrow}))


@pytest.mark.parametrize(
    "edits",
    [
        {"EVIL\nTEXT": 1},
        {"domain": {"name": "EVIL\nTEXT"}},
        {"loss.name": "EVIL\nTEXT"},
        {"data.columns.age.type": "EVIL\nTEXT"},
        {"sampling": "EVIL\nTEXT"},
        {"silos.0.name": "EVIL\nTEXT"},
        {"data.target": "EVIL\nTEXT"},
        {"data.columns.EVIL\nTEXT": {"type": "numeric"}},
    ],
    ids=str,
)
def test_a_refusal_stays_one_line_whatever_a_hostile_plan_says(edits: Edits) -> None:
    refusal(edited(edits))
