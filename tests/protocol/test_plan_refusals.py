"""What a plan refuses: always in one sentence, whatever the bytes."""

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.errors import PlanError
from tests.protocol import plan_document as plans
from tests.protocol.plan_document import Edits, at, edited, leaves, parse, refusal

every_kind = pytest.mark.parametrize("edits", plans.KINDS.values(), ids=plans.KINDS)


def objects_of(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, dict | list):
        if isinstance(value, dict) and path != "data.columns" and not path.endswith(".synonyms"):
            yield path
        for step, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from objects_of(inner, f"{path}.{step}" if path else str(step))


@every_kind
def test_a_field_that_a_plan_does_not_have_is_refused_wherever_it_stands(edits: Edits) -> None:
    document = edited(edits)
    for path in objects_of(document):
        assert "not permitted" in refusal(edited({f"{path}.surprise" if path else "surprise": 1}, document)), path


@every_kind
@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf], ids=str)
def test_nan_and_infinity_are_refused_in_every_field(edits: Edits, poison: float) -> None:
    document = edited(edits)
    for path in leaves(document):
        if not any(texts in path for texts in ("categories", "missing_tokens", "synonyms")):  # a number is their text
            refusal(edited({path: poison}, document))


WRONG_TYPES: list[tuple[str, Any]] = [
    *[(f"stages.0.{path}", "1") for path in ("query.clip", "rounds", "channel.correlation")],
    *[(f"silos.0.{path}", "1") for path in ("records", "weight", "guarantees.0.epsilon", "stages.0.sigma")],
    *[(path, 10.0) for path in ("stages.0.rounds", "silos.0.records", "silos.0.stages.0.batch")],
    *[(path, True) for path in ("stages.0.rounds", "stages.0.query.clip", "silos.0.records", "silos.0.weight")],
    *[(path, 1) for path in ("run", "stages.0.sampling", "silos.0.name", "data.target", "silos.0.key")],
    ("training.ridge", "1"),
    ("training.algorithm.skip", 10.0),
    ("data.intercept", "true"),
    ("format", "1"),
    ("format", None),
    ("format", 0),
    ("adjacency", "add-remove"),
    ("unit", "patient"),
    ("stages.0.sampling.name", "shuffle"),
    ("stages.0.query.name", "everything"),
    ("stages.0.channel.name", "pigeon"),
    ("silos.0.guarantees.0.against", "nobody"),
    ("training.algorithm.name", "local-sgd"),
    ("training.loss", {"name": "ramp"}),
    ("training.domain", "ball"),
    ("silos", {}),
    ("silos", []),
    ("stages", {}),
    ("stages", []),
    ("silos.0.stages", 7),
    ("silos.0.guarantees", []),
    ("stages.0.query.clip", None),
    ("stages.0.query.clip", [1.0]),
    ("data.columns.town.categories", "ab"),
    ("data.columns.town.categories", [True, False]),
]


@pytest.mark.parametrize(("path", "value"), WRONG_TYPES, ids=str)
def test_values_of_the_wrong_type_are_refused_and_not_converted(path: str, value: Any) -> None:
    assert path.split(".", maxsplit=1)[0] in refusal(edited({path: value}))


OUT_OF_RANGE: list[tuple[str, Any]] = [
    *[(f"stages.0.{path}", -1.0) for path in ("query.clip", "channel.correlation", "participation.probability")],
    *[(f"stages.0.{path}", 0) for path in ("query.clip", "rounds", "participation.silos")],
    *[(f"silos.0.{path}", 0) for path in ("records", "weight", "guarantees.0.delta", "stages.0.batch")],
    *[(f"silos.0.{path}", -1.0) for path in ("weight", "guarantees.0.epsilon", "stages.0.sigma")],
    ("silos.0.stages.0.sigma", 0.0),
    ("silos.0.guarantees.0.delta", 1.0),
    ("silos.0.weight", 1.1),
    ("silos.0.key", "A0" * 32),
    ("stages.0.channel.correlation", 1.0),
    ("stages.0.rounds", 10_000_001),
    ("stages.0.participation", {"probability": 0.0}),
    ("stages.0.participation", {"probability": 1.1}),
    ("stages.0.sampling", {"name": "phased", "phase": -1}),
    ("stages.0.sampling", {"name": "phased", "phase": 60}),
    ("stages.0.query", {"name": "curvature", "margin": -1.0}),
    ("stages", [plans.GRADIENT] * 1001),
    ("training.algorithm.step", 0.0),
    ("training.algorithm.momentum", 1.0),
    ("training.algorithm.momentum", -1.0),
    ("training.algorithm.growth", 0.9),
    ("training.algorithm.skip", -1),
    ("training.ridge", -1.0),
    *[("run", name) for name in ("", "a b", "../a", "a\n", "a" * 65)],
    *[("silos.0.name", name) for name in ("", "a/b", "a\nb", "a\n", "a" * 201)],
]


@pytest.mark.parametrize(("path", "value"), OUT_OF_RANGE, ids=lambda value: str(value)[:40])
def test_values_out_of_range_are_refused(path: str, value: Any) -> None:
    assert path.split(".", maxsplit=1)[0] in refusal(edited({path: value}))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (plans.ACCELERATED, {"smoothness": 0.0, "upsilon": -1.0, "penalty": -1.0, "average": "best"}),
        (plans.RESTARTED, {"stages": [], "stages.0.rounds": 0, "stages.0.upsilon": -1.0}),
        (plans.LOCALIZED, {"phases": [], "phases.0.rounds": 0, "phases.0.penalty": 0.0}),
    ],
    ids=["accelerated", "restarted", "localized"],
)
def test_an_algorithm_s_values_out_of_range_are_refused(kind: Edits, values: Edits) -> None:
    for path, value in values.items():
        assert "training.algorithm" in refusal(edited(kind | {f"training.algorithm.{path}": value})), path


def test_a_promise_of_no_epsilon_or_of_any_is_refused() -> None:
    assert "silo 'north' must be promised a positive and finite epsilon" in refusal(
        edited({"silos.0.guarantees.0.epsilon": 0.0})
    )
    huge = json.dumps(plans.DOCUMENT).replace('"epsilon": 2.0', '"epsilon": 1e999').encode()
    assert "silo 'süd' must be promised a positive and finite epsilon" in refusal(huge)


@pytest.mark.parametrize(
    "path",
    ["run", "data", "training", "stages", "silos", "training.loss", "training.domain", "training.algorithm"]
    + [f"stages.0.{name}" for name in ("query", "rounds", "sampling", "query.clip")]
    + [f"silos.0.{name}" for name in ("name", "records", "weight", "guarantees", "stages")]
    + [f"silos.0.guarantees.0.{name}" for name in ("epsilon", "delta")]
    + [f"silos.0.stages.0.{name}" for name in ("batch", "sigma")],
)
def test_nothing_that_affects_privacy_has_a_default(path: str) -> None:
    document = edited({})
    *steps, last = path.split(".")
    place = at(document, ".".join(steps)) if steps else document
    del place[last]
    sentence = refusal(document)
    assert f"{last}: Field required" in sentence
    assert path.split(".", maxsplit=1)[0] in sentence


def test_a_plan_says_what_is_trained_or_which_loss_a_model_has_as_far_as_its_queries_need_it() -> None:
    loss = {"name": "huber", "threshold": 0.5}
    assert "without training one must name its loss" in refusal(edited(plans.EVALUATED_ONLY | {"model_loss": None}))
    for edits in (plans.EVALUATED_ONLY | {"training": plans.DOCUMENT["training"]}, plans.COUNTED | {"training": None}):
        assert "only a plan that asks about a model without" in refusal(edited(edits | {"model_loss": loss}))
    assert "The schema names no target" in refusal(edited(plans.EVALUATED_ONLY | {"data.target": plans.LEFT_OUT}))
    assert "The schema names no target" in refusal(edited({"data.target": plans.LEFT_OUT}))
    assert "the logistic loss does not fit" in refusal(
        edited(plans.EVALUATED_ONLY | {"model_loss": {"name": "logistic"}})
    )


def test_a_query_a_sampling_rule_or_a_channel_without_a_name_is_refused() -> None:
    for field in ("query", "sampling", "channel"):
        sentence = refusal(edited({f"stages.0.{field}": {}}))
        assert f"stages.0.{field}: Unable to extract tag using discriminator 'name'" in sentence


# What does not fit together


def test_a_plan_with_two_silos_of_one_name_is_refused() -> None:
    assert "two silos have the same name" in refusal(edited({"silos.1.name": "north"}))


@pytest.mark.parametrize("weight", [0.5001, 0.4999, 1e-9])
def test_weights_that_do_not_add_up_to_one_are_refused(weight: float) -> None:
    assert "add up to 1" in refusal(edited({"silos.0.weight": weight}))


def test_weights_that_add_up_to_one_but_for_rounding_are_accepted() -> None:
    silos = [{**plans.DOCUMENT["silos"][0], "name": f"s{i}", "weight": 1.0 / 49} for i in range(49)]
    assert len(parse(edited({"silos": silos})).silos) == 49


@pytest.mark.parametrize("change", [list.pop, lambda terms: terms.append(terms[0])], ids=["too few", "too many"])
@pytest.mark.parametrize("kind", ["plain", "surveyed", "localized"])
def test_every_silo_has_terms_for_every_stage_and_no_others(kind: str, change: Any) -> None:
    document = edited(plans.KINDS[kind])
    change(document["silos"][1]["stages"])
    stages = len(document["stages"])
    assert f"silo 'süd' must have terms for each of the plan's {stages} stages" in refusal(document)


def test_every_silo_has_one_guarantee_against_each_observer_the_one_that_counts_first() -> None:
    own = plans.DOCUMENT["silos"][0]["guarantees"][0]
    for wrong in ([own, own], [own | {"against": "server"}], [own | {"against": "server"}, own]):
        assert "silo 'north' must have one guarantee against each of: anyone" in refusal(
            edited({"silos.0.guarantees": wrong})
        )
    server, anyone = plans.SHUFFLED["silos"][1]["guarantees"]
    for wrong in ([anyone], [server], [anyone, server], [server, server], [server, anyone, anyone]):
        assert "silo 'süd' must have one guarantee against each of: server, anyone" in refusal(
            edited(plans.SHUFFLED | {"silos.1.guarantees": wrong})
        )


def test_asking_more_silos_than_there_are_or_by_two_rules_is_refused() -> None:
    assert "more silos than the plan has" in refusal(edited({"stages.0.participation.silos": 3}))
    assert "more silos than the plan has" in refusal(edited(plans.SURVEY | {"stages.0.participation.silos": 3}))
    assert "not both" in refusal(edited({"stages.0.participation": {"silos": 1, "probability": 0.5}}))


@pytest.mark.parametrize("query", [plans.CURVATURE["query"], plans.MEANS["query"]], ids=["curvature", "means"])
@pytest.mark.parametrize("kind", ["plain", "poisson", "one-pass", "localized"])
def test_a_query_that_is_no_mean_over_records_is_asked_of_all_of_them(query: Edits, kind: str) -> None:
    edits = plans.KINDS[kind] | {"stages.0.query": query}
    assert f"the {query['name']} is asked of all records: its sampling must be full" in refusal(edited(edits))


TWO, THREE = ({"type": "categorical", "categories": names} for names in (["a", "b"], ["a", "b", "c"]))
NUMBER = {"type": "numeric", "lower": 0.0, "upper": 1.0}


NUMERIC_LOSSES: list[Edits] = [
    *({"name": "squared"}, {"name": "huber", "threshold": 1.0}, {"name": "absolute"}),
    *({"name": "pinball", "quantile": 0.9}, {"name": "epsilon-insensitive", "margin": 0.1}),
]


@pytest.mark.parametrize(
    ("loss", "fitting"),
    [
        *(({"name": name}, [TWO]) for name in ("logistic", "hinge")),
        *(({"name": "softmax", "classes": classes}, fitting) for classes, fitting in ((3, [THREE]), (2, []))),
        *((loss, [NUMBER]) for loss in NUMERIC_LOSSES),
    ],
    ids=str,
)
def test_a_loss_that_does_not_fit_the_target_is_refused(loss: Edits, fitting: list[Edits]) -> None:
    for target in (TWO, THREE, NUMBER):
        document = edited({"training.loss": loss, "data.columns.cost": target})
        if target in fitting:
            assert parse(document).loss.name == loss["name"]
        else:
            assert f"the {loss['name']} loss does not fit the target 'cost'" in refusal(document)


# Hostile bytes


def test_a_plan_larger_than_the_limit_is_not_read() -> None:
    padded = json.dumps(plans.DOCUMENT).encode()
    padded += b" " * (16 * 2**20 - len(padded))
    assert parse(padded) == parse(plans.DOCUMENT)
    with pytest.raises(PlanError, match="16777217 bytes"):
        parse(padded + b" ")


@pytest.mark.parametrize(
    "content",
    [
        *(b'{"format":1}', b'{"format":1,"format":0}', b'{"format":1,"run":' + b"[" * 100_000, b'{"format":1}{}'),
        *(b"", b"null", b"[]", b"3", b'"plan"', b"{", b"\xff\xfe"),
        *(b"[" * 100_000, b'{"run":' * 100_000, b"9" * 100_000),
    ],
    ids=lambda content: repr(content[:24]),
)
def test_bytes_that_are_no_plan_are_refused(content: bytes) -> None:
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


@settings(max_examples=500, deadline=None)
@given(kind=st.sampled_from(sorted(plans.KINDS)), value=JSON, data=st.data())
def test_any_value_in_any_field_gives_a_plan_or_a_plan_error(kind: str, value: Any, data: st.DataObject) -> None:
    document = edited(plans.KINDS[kind])
    path = data.draw(st.sampled_from(list(leaves(document))))
    try:
        plan = parse(edited({path: value}, document))
    except PlanError:
        return
    assert parse(plan.content) == parse(plan.canonical()) == plan
    about_model = any(stage.query.about_model for stage in plan.stages) or plan.training is not None
    assert (plan.dimension >= 1) == about_model
    assert not about_model or not math.isnan(plan.constants.lipschitz)


def test_numbers_of_records_too_large_to_compute_with_are_refused_in_a_sentence() -> None:
    assert "silo" in refusal(edited({"silos.0.records": 10**400}))


EVIL = "EVIL\nTEXT"
NAMES = [f"stages.0.{part}.name" for part in ("sampling", "query", "channel")]
NAMES += ["training.loss.name", "data.columns.age.type", "silos.0.guarantees.0.against", "silos.0.name", "data.target"]


@pytest.mark.parametrize(
    "edits",
    [{EVIL: 1}, {"training.domain": {"name": EVIL}}, {f"data.columns.{EVIL}": {"type": "numeric"}}]
    + [{path: EVIL} for path in NAMES],
    ids=str,
)
def test_a_refusal_stays_one_line_whatever_a_hostile_plan_says(edits: Edits) -> None:
    assert "EVIL\n" not in refusal(edited(edits))
