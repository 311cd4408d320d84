"""Maps are public functions of a record's own cells: what they make, how long that can be, and what is refused."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import SplineTransformer

from ringfence.errors import SchemaError
from ringfence.protocol import Schema, parse_schema
from ringfence.protocol.schema.encoding import encode_features
from ringfence.protocol.schema.maps.curves import basis
from ringfence.protocol.schema.maps.joint import directions, products
from tests.generated import examples

COLUMNS: dict[str, Any] = {
    "age": {"type": "numeric", "lower": 0, "upper": 100},
    "bmi": {"type": "numeric", "lower": 10, "upper": 60, "center": 25, "scale": 5},
    "day": {"type": "date", "lower": "2020-01-01", "upper": "2024-01-01"},
    "ward": {"type": "categorical", "categories": ["a", "b", "c"]},
    "note": {"type": "ignore"},
    "cost": {"type": "numeric", "lower": 0, "upper": 1},
}
TABLE = {
    "age": ["0", "100", "25", "37.5", "1e9"],
    "bmi": ["10", "60", "25", "31.25", "-4"],
    "day": ["2020-01-01", "2024-01-01", "2021-06-30", "2022-02-28T12:00", "2030-01-01"],
    "ward": ["a", "b", "c", "a", "b"],
}
SPLINE = {"type": "spline", "columns": ["age"]}
FOURIER = {"type": "fourier", "columns": ["age"], "features": 4, "seed": 1}
AGES = np.array([[0.0], [100.0], [25.0], [37.5], [100.0]])


def schema(*maps: dict[str, Any], target: str = "cost", **more: Any) -> Schema:
    return parse_schema({"columns": COLUMNS, "maps": list(maps), **more}, target=target)


def made(*maps: dict[str, Any], **more: Any) -> dict[str, np.ndarray]:
    """Return every feature of the table by its name."""
    own = schema(*maps, **more)
    return dict(zip(own.feature_names, encode_features(own, TABLE, source="the table").T, strict=True))


def refused(*maps: dict[str, Any], **more: Any) -> str:
    with pytest.raises(SchemaError) as caught:
        schema(*maps, **more)
    return str(caught.value)


# Splines


increasing = st.lists(st.floats(0.5, 99.5), min_size=1, max_size=8, unique_by=lambda knot: round(knot * 2)).map(sorted)


@examples(80)
@given(st.integers(2, 9) | increasing, st.integers(1, 5), st.lists(st.floats(0, 100), min_size=1, max_size=50))
def test_a_spline_is_that_of_scikit_learn_over_the_public_bounds_and_never_longer_than_its_bound(
    knots: int | list[float], degree: int, numbers: list[float]
) -> None:
    columns = {name: COLUMNS[name] for name in ("age", "cost")}
    map = SPLINE | {"degree": degree, "knots": knots}
    own = parse_schema({"columns": columns, "maps": [map], "intercept": False}, target="cost")
    at = np.array([*numbers, *np.linspace(0, 100, 501)])
    found = encode_features(own, {"age": at}, source="the table")
    inner = np.linspace(0, 100, knots) if isinstance(knots, int) else np.array([0.0, *knots, 100.0])
    known = SplineTransformer(degree=degree, knots=inner[:, None]).fit(at[:, None])
    assert found == pytest.approx(known.transform(at[:, None]), abs=1e-9)
    assert own.width == len(inner) + degree - 1
    assert found.min() >= 0
    assert np.abs(found.sum(axis=1) - 1).max() <= 1e-12
    assert np.linalg.norm(found, axis=1).max() <= own.feature_norm * (1 + 1e-12)


def test_explicit_knots_may_be_dates() -> None:
    found = made({"type": "spline", "columns": ["day"], "knots": ["2021-01-01", "2022-06-01"], "degree": 1})
    near = ["2020-01-01", "2021-01-01", "2022-06-01", "2024-01-01"]
    names = [f"day spline {place} (near {day})" for place, day in enumerate(near, 1)]
    assert [name for name in found if name.startswith("day")] == names
    assert [found[name][0] for name in names] == [1, 0, 0, 0]


def test_the_bound_of_a_spline_is_tight() -> None:
    even = schema(SPLINE).blocks[0].bound
    assert math.sqrt(0.5) <= even <= math.sqrt(0.5) * (1 + 1e-4)
    assert schema(SPLINE | {"degree": 1}).blocks[0].bound == 1.0
    crowded = schema(SPLINE | {"knots": [3, 50, 70], "degree": 2}).blocks[0].bound
    longest = np.linalg.norm(basis(np.linspace(0, 100, 100_001), (0, 3, 50, 70, 100), 2), axis=1).max()
    assert longest <= crowded <= longest * (1 + 1e-4)


# Cyclic time


def features(prefix: str, *maps: dict[str, Any]) -> list[str]:
    return [name for name in schema(*maps).feature_names if name.startswith(prefix)]


def test_cyclic_time_is_a_cosine_and_a_sine_of_norm_one_that_begin_again() -> None:
    map = {"type": "cyclic", "columns": ["age"], "period": 50, "harmonics": 2}
    found, angles = made(map), 2 * math.pi * AGES[:, 0] / 50
    waves = {"cos 50": np.cos(angles), "sin 50": np.sin(angles), "cos 50/2": np.cos(2 * angles)}
    waves["sin 50/2"] = np.sin(2 * angles)
    assert features("age", map) == [f"age {wave}" for wave in waves]
    for wave, expected in waves.items():
        assert found[f"age {wave}"] == pytest.approx(expected / math.sqrt(2), abs=1e-12)
    assert found["age cos 50"][0] == found["age cos 50"][1]
    assert schema(map).blocks[0].bound == 1.0


def test_a_trend_may_be_kept_beside_a_season_and_a_column_may_have_several_curves() -> None:
    year = {"type": "cyclic", "columns": ["day"], "period": 365.2425, "keep": True}
    week = {"type": "cyclic", "columns": ["day"], "period": 7}
    of_year, of_week = ["day cos 365.243", "day sin 365.243"], ["day cos 7", "day sin 7"]
    assert features("day", year) == ["day", *of_year]
    assert features("day", week | {"keep": True}, year) == ["day", *of_week, *of_year]
    assert features("day", week, year) == [*of_week, *of_year]


# Interactions


def test_interactions_are_all_products_of_two_columns_features() -> None:
    found = made({"type": "interaction", "columns": ["ward", "age", "bmi"]})
    pairs = [name for name in found if " × " in name]
    assert pairs == ["age × bmi", *(f"age × ward={ward}" for ward in "abc"), *(f"bmi × ward={ward}" for ward in "abc")]
    for name in pairs:
        one, other = name.split(" × ")
        assert found[name] == pytest.approx(found[one] * found[other], abs=1e-15)


def test_interactions_are_of_what_curves_leave_and_as_long_as_the_product_of_both() -> None:
    both = {"type": "interaction", "columns": ["age", "bmi"]}
    blocks = schema(SPLINE, both).blocks
    assert blocks[-1].width == 7
    assert blocks[-1].bound == pytest.approx(blocks[0].bound * 7.0)  # (60 − 25)/5
    assert blocks[-1].repeats.tolist() == [True, *[False] * 6]
    assert not schema(both).blocks[-1].repeats.any()


# Random Fourier features


def test_the_directions_of_fourier_features_are_the_same_on_every_machine_for_ever() -> None:
    known = [[0.05534267, -0.15355206, 1.88707256], [0.12244034, -0.13440514, 0.3002739]]
    assert directions(7, 2, 3) == pytest.approx(np.array(known), abs=1e-8)
    assert np.all(directions(7, 20, 3) * 2**20 == np.round(directions(7, 20, 3) * 2**20))
    assert not np.any(directions(8, 2, 3) == directions(7, 2, 3))


def test_fourier_features_have_norm_one_and_come_close_to_the_gaussian_kernel() -> None:
    own = FOURIER | {"columns": ["ward", "age"], "features": 4000, "scale": 0.7}
    found = made(own)
    waves = np.column_stack([values for name, values in found.items() if name.startswith("fourier 1 ")])
    assert np.linalg.norm(waves, axis=1) == pytest.approx(1.0, abs=1e-12)
    assert schema(own).blocks[-1].bound == 1.0
    plain = np.column_stack([found["age"], *(found[f"ward={ward}"] for ward in "abc")])
    distances = np.sum((plain[:, None] - plain[None]) ** 2, axis=2)
    # Each of 25 products is a mean of 2000 cosines: off by more than 0.13 with probability below 1e-6 (Hoeffding, over
    # seeds; this one is fixed, so that the test gives the same on every run).
    assert waves @ waves.T == pytest.approx(np.exp(-distances / (2 * 0.7**2)), abs=0.13)


@pytest.mark.parametrize(("length", "bound"), [(1, 1.0), (12, math.sqrt(12)), (12, 1e6), (900, 30.0), (5000, 1e-3)])
def test_a_record_s_fourier_features_are_its_own_whichever_records_stand_beside_it(length: int, bound: float) -> None:
    """A library multiplies a row otherwise if it is alone: then others' terms would hang on how many rows there are."""
    random, chosen = np.random.default_rng(length), directions(5, 20, length)
    rows = random.normal(size=(40, length))
    rows *= bound / np.linalg.norm(rows, axis=1, keepdims=True)
    together = products(rows, chosen, bound)
    for place, row in enumerate(rows):
        assert np.array_equal(products(row[None], chosen, bound)[0], together[place])
    assert np.array_equal(products(rows[:, ::-1], chosen[:, ::-1], bound), together)  # added up in another order
    precise = [[math.fsum(row * one) for one in chosen] for row in rows]
    left = 4 * math.sqrt(length) * 2.0**-50 + 2.0**-51  # of each number, by at least 25 bits in a limb; and roundings
    assert together == pytest.approx(np.array(precise), abs=left * bound * np.abs(chosen).sum(axis=1).max())


# Together


def test_no_feature_vector_is_longer_than_the_schema_says() -> None:
    maps: list[dict[str, Any]] = [
        SPLINE | {"knots": [10, 80]},
        {"type": "cyclic", "columns": ["day"], "period": 7, "harmonics": 3},
        {"type": "interaction", "columns": ["age", "day", "ward"]},
        FOURIER | {"columns": ["bmi", "day"], "features": 10},
    ]
    own, random = schema(*maps), np.random.default_rng(5)
    table = {
        "age": random.uniform(-10, 110, 500),
        "bmi": random.uniform(0, 70, 500),
        "day": [f"20{year:02}-03-0{1 + year % 9}" for year in random.integers(18, 26, 500).tolist()],
        "ward": random.choice(["a", "b", "c"], 500).tolist(),
    }
    vectors = encode_features(own, table, source="the table")
    assert vectors.shape == (500, own.width)
    assert np.linalg.norm(vectors, axis=1).max() <= own.feature_norm
    assert own.blocks.bound**2 == pytest.approx(sum(block.bound**2 for block in own.blocks))
    clipped = encode_features(schema(*maps, radius=0.5), table, source="the table")
    assert np.linalg.norm(clipped[:, :-1], axis=1) == pytest.approx(0.5)


WEEK = {"type": "cyclic", "columns": ["age"], "period": 7}
LINES = SPLINE | {"degree": 1, "knots": 3}


@pytest.mark.parametrize(
    ("maps", "given", "bound", "expected"),
    [
        ([LINES], {"missing": 50}, 1.0, [0, 1, 0, 1]),  # the curve of the stand-in
        ([LINES], {"indicator": True}, 1.0, [0, 0, 0, 1, 1]),  # none
        ([LINES], {"missing": 50, "indicator": True}, 1.0, [0, 0, 0, 1, 1]),
        ([WEEK, WEEK | {"period": 30}], {"indicator": True}, math.sqrt(2), [0, 0, 1, 0, 0, 1]),
        ([WEEK | {"keep": True}], {"indicator": True}, math.sqrt(2), [0, 1, 0, 0, 1]),
    ],
)
def test_an_empty_cell_has_the_curve_of_its_stand_in_or_none_beside_one_indicator(
    maps: list[dict[str, Any]], given: dict[str, Any], bound: float, expected: list[float]
) -> None:
    columns = {"age": COLUMNS["age"] | given, "cost": COLUMNS["cost"]}
    own = parse_schema({"columns": columns, "maps": maps}, target="cost")
    assert encode_features(own, {"age": [""]}, source="the table")[0].tolist() == expected
    assert own.blocks.bound == pytest.approx(bound)
    assert own.feature_names.count("age is missing") == ("indicator" in given)


def test_patterns_stand_for_the_schema_s_features_and_a_document_names_each() -> None:
    columns = {**{f"gene_{place}": COLUMNS["age"] for place in range(3)}, "gene_x": {"type": "ignore"}}
    content = {"columns": {**columns, "cost": COLUMNS["cost"]}, "maps": [{"type": "spline", "columns": ["gene_*"]}]}
    own = parse_schema(content, target="cost")
    assert own.maps is not None
    assert own.maps[0].columns == ("gene_0", "gene_1", "gene_2")
    content["maps"] = [{"type": "spline", "columns": ["*_{1..2}"]}, {"type": "interaction", "columns": ["*"]}]
    own = parse_schema(content, target="gene_0")
    assert own.maps is not None
    assert [each.columns for each in own.maps] == [("gene_1", "gene_2"), ("gene_1", "gene_2", "cost")]
    assert Schema.model_validate_json(own.canonical()) == own


# Refusals


@pytest.mark.parametrize(
    ("map", "said"),
    [
        (SPLINE | {"knots": [50, 120]}, "the spline map of the column 'age': a knot is outside the column's bounds"),
        (SPLINE | {"knots": [50, 20]}, "knots must increase: sort them, and name each once"),
        (SPLINE | {"knots": [50, 50]}, "knots must increase"),
        (SPLINE | {"knots": [50, 50 + 1e-12]}, "two knots are too close"),
        (SPLINE | {"knots": ["2020-05-01"]}, "a value is not a number: write it without quotes"),
        (SPLINE | {"columns": ["day"], "knots": ["May"]}, "a value is not an ISO 8601 date"),
        (SPLINE | {"knots": 1}, "greater than or equal to 2"),
        (SPLINE | {"knots": 2000}, "less than or equal to 1000"),
        (SPLINE | {"degree": 0}, "greater than or equal to 1"),
        (SPLINE | {"columns": []}, "at least 1 item"),
        (SPLINE | {"columns": [["age"]]}, "valid string"),
        (SPLINE | {"columns": ["weight"]}, "'weight', which is missing from the columns, or ignored"),
        (SPLINE | {"columns": ["note"]}, "'note', which is missing from the columns, or ignored: give it a type"),
        (SPLINE | {"columns": ["ward"]}, "a spline map needs numbers or dates, and the column 'ward' has neither"),
        (SPLINE | {"columns": ["cost"]}, "a map names the column 'cost', which is not a feature: leave it out"),
        (SPLINE | {"columns": ["height_*"]}, "no column matches the pattern 'height_*' of a map"),
        (SPLINE | {"frequency": 1}, "Extra inputs are not permitted"),
        ({"type": "wavelet", "columns": ["age"]}, "does not match any of the expected tags"),
        ({"type": "cyclic", "columns": ["age"]}, "period: Field required"),
        ({"type": "cyclic", "columns": ["age"], "period": 0}, "greater than 0"),
        ({"type": "interaction", "columns": ["age"]}, "an interaction map needs 2 columns or more: name another one"),
        ({"type": "interaction", "columns": ["age", "age"]}, "names the column 'age' twice: name it once"),
        ({"type": "fourier", "columns": ["age"], "features": 4}, "seed: it is missing: give a whole number"),
        (FOURIER | {"features": 5}, "`features` must be even"),
        (FOURIER | {"features": 20_000}, "less than or equal to 10000"),
        (FOURIER | {"scale": 0}, "greater than or equal to 0.000001"),
        (FOURIER | {"seed": -1}, "greater than or equal to 0"),
    ],
)
def test_a_map_that_cannot_be_made_is_refused_with_the_remedy(map: dict[str, Any], said: str) -> None:
    assert said in refused(map)


def test_too_many_features_and_the_same_feature_twice_are_refused() -> None:
    many = {"columns": {f"x{place}": COLUMNS["age"] for place in range(300)} | {"cost": COLUMNS["cost"]}}
    for maps in ([{"type": "interaction", "columns": ["x*"]}], [{"type": "spline", "columns": ["x*"], "knots": 50}]):
        with pytest.raises(SchemaError, match="more than the 10000 allowed: use fewer knots, harmonics, columns or F"):
            parse_schema({**many, "maps": maps}, target="cost")
    vector = {"type": "vector", "length": 100_000, "norm": 1, "extractor": "public", "digest": "0" * 64}
    content = {"columns": {"image": vector, "cost": COLUMNS["cost"]}}
    with pytest.raises(SchemaError, match="name fewer columns, or ask for fewer `features`"):
        parse_schema({**content, "maps": [FOURIER | {"columns": ["image"], "features": 1000}]}, target="cost")
    twice = refused(SPLINE, SPLINE | {"columns": ["bmi", "age"]})
    assert "two maps both make the feature 'age spline 1 (near -25)': leave one out" in twice
    assert "give each a `seed` of its own" in refused(FOURIER, FOURIER | {"columns": ["bmi"]})
