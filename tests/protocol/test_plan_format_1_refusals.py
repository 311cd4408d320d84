"""What a plan of format 1 refuses: always in one sentence, whatever the bytes."""

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.errors import PlanError
from ringfence.protocol.sampling import Full
from tests.protocol.plan_document import Edits, leaves, parse, refusal
from tests.protocol.plan_format_1_document import DOCUMENT, edited


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
    ("format", 0),
    ("format", -1),
    ("adjacency", "add-remove"),
    ("sampling", "shuffle"),
    ("algorithm.name", "local-sgd"),
    ("loss", {"name": "ramp"}),
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
    *[(path, 0) for path in ("silos.0.records", "silos.0.batch", "participation.silos")],
    ("rounds", -1),
    ("correlation", -0.1),
    ("correlation", 1.0),
    ("survey", {"margin": -1.0}),
    ("survey", {"statistic": "median"}),
    ("silos.0.survey_sigma", 0.0),
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
    assert "silo 'north' has 40, fewer than its batch" in refusal(edited({"silos.0.batch": 41}))
    assert parse(edited({"silos.0.batch": 40})).silos[0].stages[0].batch == 40


def test_full_sampling_takes_all_records_of_every_silo() -> None:
    assert "silo 'north'" in refusal(edited({"sampling": "full"}))
    assert "silo 'süd'" in refusal(edited({"sampling": "full", "silos.0.batch": 40}))
    plan = parse(edited({"sampling": "full", "silos.0.batch": 40, "silos.1.batch": 60}))
    assert plan.stages[0].sampling == Full()


def test_one_pass_that_needs_a_record_twice_is_refused() -> None:
    assert "one pass of 20 rounds of 10 records" in refusal(edited({"sampling": "one-pass"}))
    assert "silo 'süd'" in refusal(edited({"sampling": "one-pass", "rounds": 4, "silos.1.batch": 16}))
    assert "silo 'north'" in refusal(edited({"sampling": "one-pass", "rounds": 4, "silos.0.records": 39}))
    assert parse(edited({"sampling": "one-pass", "rounds": 4})).rounds == 4


def test_asking_more_silos_than_there_are_or_by_two_rules_is_refused() -> None:
    assert "more silos than the plan has" in refusal(edited({"participation.silos": 3}))
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
        ({"name": "hinge"}, [TWO]),
        ({"name": "absolute"}, [NUMBER]),
        ({"name": "pinball", "quantile": 0.9}, [NUMBER]),
        ({"name": "epsilon-insensitive", "margin": 0.1}, [NUMBER]),
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
    # A poisson batch may hold all 40 records: the largest mean is clip·40/10; one of fixed size, the clip.
    for sampling, largest in (("poisson", 1.5 * 40 / 10), ("fixed", 1.5)):
        smallest = largest * 2.0**-20
        edits: Edits = {"sampling": sampling, "silos.0.sigma": smallest * 0.999}
        assert "noise of silo 'north'" in refusal(edited(edits))
        assert parse(edited(edits | {"silos.0.sigma": smallest * 1.001})).silos[0].name == "north"
        assert "noise of silo 'süd'" in refusal(edited({"sampling": sampling, "silos.1.sigma": 1e-9}))


def test_noise_beyond_the_range_of_exact_arithmetic_is_refused() -> None:
    assert "too large or too" in refusal(edited({"silos.0.sigma": 1e300}))
    assert "too large or too" in refusal(edited({"clip": 1e-300, "silos.0.sigma": 1e-290, "silos.1.sigma": 1e-290}))


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
    assert parse(plan.content) == plan
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
