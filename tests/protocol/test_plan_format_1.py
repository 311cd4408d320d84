"""Plans of format 1 keep their names and their meaning: what 0.1.0 approved is approved, at the same cost."""

import hashlib
import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.accounting.charges import plan_events, task_event
from ringfence.accounting.events import Event
from ringfence.protocol.plan import Plan, load_plan
from ringfence.protocol.schedule import task
from tests.protocol.plan_document import Edits, leaves, parse
from tests.protocol.plan_format_1_document import (
    ACCELERATED,
    DOCUMENT,
    LOCALIZED,
    ONE_PASS,
    SHUFFLED,
    STAGES,
    SURVEY,
    edited,
)
from tests.support import clip_of

KINDS: dict[str, Edits] = {
    "plain": {},
    "poisson": {"sampling": "poisson"},
    "full": {"sampling": "full", "silos.0.batch": 40, "silos.1.batch": 60},
    "accelerated": ACCELERATED,
    "staged": STAGES,
    "localized": LOCALIZED,
    "surveyed and localized": SURVEY | LOCALIZED,
    "shuffled": SHUFFLED,
    "surveyed, correlated": SURVEY | ONE_PASS | {"correlation": 0.5},
    "moments": SURVEY | {"survey.statistic": "moments"},
    "moments only": SURVEY | {"survey.statistic": "moments", "rounds": 0},
}


GOLDEN = sorted((Path(__file__).parents[1] / "golden" / "v0_1_0" / "plans").glob("*.json"))


def shuffled(value: Any, order: random.Random) -> Any:
    """Return the same document with the keys of every object in another order."""
    if isinstance(value, dict):
        keys = list(value)
        order.shuffle(keys)
        return {key: shuffled(value[key], order) for key in keys}
    return [shuffled(inner, order) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize("edits", KINDS.values(), ids=KINDS)
def test_a_plan_survives_its_own_bytes(edits: Edits) -> None:
    plan = parse(edited(edits))
    assert json.loads(plan.content) == edited(edits)
    again = parse(plan.content)
    assert again == plan
    assert again.content == plan.content
    assert again.digest() == plan.digest()


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
        content = whole.content.replace(b'"clip":2.0', b'"clip":' + two).replace(b'"lower":0.0', b'"lower":' + zero)
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
    short["algorithm"] = {"name": "minibatch-sgd", "step": 0.1}
    for path in ("format", "ridge", "participation", "adjacency", "correlation", "survey", "trust", "shuffle"):
        del short[path]
    del short["data"]["radius"]
    for silo in short["silos"]:
        for path in ("survey_sigma", "alone_epsilon", "key"):
            del silo[path]
    assert parse(short).digest() == parse(written).digest()


THREE = SHUFFLED | {  # the third like the second
    "silos": [
        SHUFFLED["silos.0"] | {"weight": 0.25},
        SHUFFLED["silos.1"] | {"weight": 0.375},
        SHUFFLED["silos.1"] | {"weight": 0.375, "name": "west"},
    ],
    "participation.silos": 3,
}
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
    SURVEY,
    SURVEY | {"survey.statistic": "moments"},
    SURVEY | {"survey.margin": 3.0},
    SURVEY | {"silos.0.survey_sigma": 2.0},
    SURVEY | {"silos.1.survey_sigma": 2.0},
    SURVEY | {"rounds": 0},
    ONE_PASS,
    ONE_PASS | {"correlation": 0.5},
    ONE_PASS | {"correlation": 0.6},
    ACCELERATED,
    ACCELERATED | {"algorithm.smoothness": 6.0},
    ACCELERATED | {"algorithm.pace": 0.0},
    ACCELERATED | {"algorithm.penalty": 0.0},
    ACCELERATED | {"algorithm.average": "last"},
    ACCELERATED | {"algorithm.average": "tail"},
    STAGES,
    STAGES | {"algorithm.smoothness": 6.0},
    STAGES | {"algorithm.stages.0.rounds": 13, "algorithm.stages.1.rounds": 7},
    STAGES | {"algorithm.stages.0.pace": 11.0},
    STAGES | {"algorithm.penalty": 0.2},
    STAGES | {"algorithm.average": "last"},
    LOCALIZED,
    LOCALIZED | {"algorithm.smoothness": 6.0},
    LOCALIZED | {"algorithm.phases.0.rounds": 2, "algorithm.phases.1.rounds": 3},
    LOCALIZED | {"algorithm.phases.1.penalty": 0.9},
    LOCALIZED | {"algorithm.average": "tail"},
    SHUFFLED,
    SHUFFLED
    | {"shuffle.levels": 12, "silos.0.sigma": 0.125 * (25 / 40) ** 0.5, "silos.1.sigma": 0.125 * (25 / 60) ** 0.5},
    SHUFFLED | {"shuffle.coins": 100, "silos.0.sigma": 0.5 * (25 / 40) ** 0.5, "silos.1.sigma": 0.5 * (25 / 60) ** 0.5},
    THREE,
    THREE | {"shuffle.quorum": 3},
    SHUFFLED | {"shuffle.slack": 2e-9},
    SHUFFLED | {"shuffle.shares": 101},
    SHUFFLED | {"shuffle.block": 9},
    SHUFFLED | {"shuffle.width": 3},
    SHUFFLED | {"shuffle.server_key": "6e" * 32},
    SHUFFLED | {"shuffle.shuffler_key": "6f" * 32},
    *[SHUFFLED | {f"silos.{silo}.alone_epsilon": 5.0} for silo in range(2)],
    *[SHUFFLED | {f"silos.{silo}.key": "b0" * 32} for silo in range(2)],
]
FIXED = {"format", "adjacency"}
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
        for edits in ({}, SURVEY, ACCELERATED, STAGES, LOCALIZED, SHUFFLED)
        for leaf in leaves(json.loads(parse(edited(edits)).content))
        if leaf not in FIXED and not any(leaf == path or leaf.startswith(path + ".") for path in tried)
    }
    assert not missed


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
    own = plan.silos[0]
    assert (clip_of(plan), own.guarantee.delta, own.weight) == (clip, delta, share)
    again = parse(plan.content)
    assert again == plan
    assert again.content == plan.content


# The same plan in today's format


def without_partitions(events: list[tuple[Event, int]], plan: Plan) -> list[tuple[dict[str, Any], int]]:
    """Return events as data, the plan's own partition by a name that does not depend on its format."""
    return [
        ({name: "own" if value == plan.digest() else value for name, value in event.to_dict().items()}, count)
        for event, count in events
    ]


@pytest.mark.parametrize("edits", KINDS.values(), ids=KINDS)
def test_a_plan_and_its_upgrade_say_the_same_and_are_two_plans(edits: Edits) -> None:
    former = parse(edited(edits))
    upgraded = parse(former.canonical())
    assert json.loads(upgraded.content)["format"] == 2
    assert upgraded == former
    assert upgraded.digest() != former.digest()


@pytest.mark.parametrize("edits", KINDS.values(), ids=KINDS)
def test_a_plan_and_its_upgrade_cost_the_same_round_by_round_and_in_all(edits: Edits) -> None:
    shares = {"shuffle.shares": 400} if "shuffle" in edits else {}  # as many as hide whose counts are whose
    former = parse(edited(edits | shares))
    upgraded = parse(former.canonical())
    for terms in former.silos:
        found, expected = (without_partitions(plan_events(plan, terms), plan) for plan in (upgraded, former))
        assert found == expected
        for round in range(former.rounds):
            charges = [
                without_partitions([(task_event(plan, terms, task(plan, terms, round, 0)), 1)], plan)
                for plan in (upgraded, former)
            ]
            assert charges[0] == charges[1]


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_a_plan_that_0_1_0_wrote_keeps_its_name_when_spelled_otherwise_and_its_cost_when_upgraded(path: Path) -> None:
    former = load_plan(path)
    assert parse(json.dumps(json.loads(path.read_bytes()), indent=1).encode()).digest() == former.digest()
    upgraded = parse(former.canonical())
    assert upgraded == former
    for terms in former.silos:
        found, expected = (without_partitions(plan_events(plan, terms), plan) for plan in (upgraded, former))
        assert found == expected


def test_a_survey_becomes_a_stage_of_its_own_that_asks_everybody_about_all_records() -> None:
    plan = parse(edited(SURVEY | {"survey.margin": 3.0, "silos.0.survey_sigma": 2.5}))
    survey, rounds = plan.stages
    assert survey.model_dump() == {
        "question": {"name": "curvature", "margin": 3.0},
        "rounds": 1,
        "sampling": {"name": "full"},
        "channel": {"name": "own-noise", "correlation": 0.0},
        "participation": {"silos": None, "probability": None},
    }
    assert (rounds.question.name, rounds.rounds, rounds.participation.silos) == ("gradient", 20, 1)
    assert [(own.batch, own.sigma) for own in plan.silos[0].stages] == [(40, 2.5), (10, 0.7)]


def test_every_phase_becomes_a_stage_with_its_records_and_its_noise() -> None:
    plan = parse(edited(LOCALIZED))
    assert [(stage.rounds, stage.sampling.model_dump()) for stage in plan.stages] == [
        (3, {"name": "phased", "phase": 0}),
        (2, {"name": "phased", "phase": 1}),
    ]
    first, second = plan.silos[0].stages
    assert (first.batch, first.sigma, second.batch) == (20, 0.7, 10)
    # R rounds over m records have the shift 2L√R/(mσ), the same in every phase.
    assert second.sigma == pytest.approx(0.7 * math.sqrt(2 / 3) * 2, rel=2e-6)


def test_a_silo_s_epsilon_alone_becomes_its_guarantee_against_anyone() -> None:
    promised = [guarantee.model_dump() for guarantee in parse(edited(SHUFFLED)).silos[0].guarantees]
    assert promised == [
        {"epsilon": 1.0, "delta": 1e-6, "against": "server"},
        {"epsilon": 3.0, "delta": 1e-6, "against": "anyone"},
    ]
    assert [guarantee.against for guarantee in parse(DOCUMENT).silos[0].guarantees] == ["anyone"]
