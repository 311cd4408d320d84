"""The sets that weights are kept in: true Euclidean projections, and membership that refuses what is hostile."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from ringfence.protocol import Ball, Box, FloatArray, WholeSpace

AnyDomain = Ball | Box | WholeSpace

BOUNDED: list[Ball | Box] = [
    Ball(radius=1.0),
    Ball(radius=0.01),
    Ball(radius=300.0),
    Box(lower=-1.0, upper=2.0),
    Box(lower=0.0, upper=0.5),
    Box(lower=-40.0, upper=0.0),
]
DOMAINS: list[AnyDomain] = [*BOUNDED, WholeSpace()]
every_domain = pytest.mark.parametrize("domain", DOMAINS, ids=str)
every_bounded_domain = pytest.mark.parametrize("domain", BOUNDED, ids=str)


@st.composite
def vectors(draw: st.DrawFn, count: int) -> list[FloatArray]:
    size = draw(st.integers(1, 6))
    entry = st.floats(-1e6, 1e6) | st.floats(-2.0, 2.0)
    return [np.array(draw(st.lists(entry, min_size=size, max_size=size))) for _ in range(count)]


def length(vector: FloatArray) -> float:
    return float(np.linalg.norm(vector))


def draw_members(domain: Ball | Box, generator: np.random.Generator, count: int, size: int) -> FloatArray:
    """Draw points of the set without the help of its projection."""
    if isinstance(domain, Box):
        return generator.uniform(domain.lower, domain.upper, size=(count, size))
    points = generator.normal(size=(count, size))
    lengths = domain.radius * np.minimum(1.0, generator.uniform(0.0, 1.5, size=(count, 1)))
    result: FloatArray = points / np.linalg.norm(points, axis=1, keepdims=True) * lengths
    return result


@every_domain
@settings(max_examples=60, deadline=None)
@given(points=vectors(1))
def test_projecting_twice_is_projecting_once_and_lands_inside(domain: AnyDomain, points: list[FloatArray]) -> None:
    projected = domain.project(points[0])
    np.testing.assert_allclose(domain.project(projected), projected, rtol=1e-15, atol=0)
    assert domain.contains(projected)
    assert length(projected) <= domain.reach(projected.size) * (1.0 + 1e-12)


@every_domain
@settings(max_examples=60, deadline=None)
@given(points=vectors(2))
def test_a_projection_never_moves_two_points_apart(domain: AnyDomain, points: list[FloatArray]) -> None:
    one, other = points
    apart = length(one - other)
    rounding = 1e-15 * (length(one) + length(other))
    assert length(domain.project(one) - domain.project(other)) <= apart * (1.0 + 1e-12) + rounding


@every_bounded_domain
@pytest.mark.parametrize("size", [1, 3, 20])
def test_no_member_is_nearer_than_the_projection(domain: Ball | Box, size: int) -> None:
    generator = np.random.default_rng(1)
    members = draw_members(domain, generator, 300, size)
    for scale in (0.1, 1.0, 100.0):
        for point in generator.normal(scale=scale * domain.reach(size), size=(20, size)):
            nearest = length(domain.project(point) - point)
            assert nearest <= np.linalg.norm(members - point, axis=1).min() * (1.0 + 1e-12)


@every_bounded_domain
def test_a_projection_leaves_members_where_they_are(domain: Ball | Box) -> None:
    for member in draw_members(domain, np.random.default_rng(2), 100, 4):
        np.testing.assert_allclose(domain.project(member), member, rtol=1e-14)
        assert domain.contains(member)


@every_domain
def test_the_origin_where_training_starts_is_a_member(domain: AnyDomain) -> None:
    assert domain.contains(np.zeros(3))


def test_the_whole_space_changes_nothing() -> None:
    point = np.array([1e40, -3.0])
    np.testing.assert_array_equal(WholeSpace().project(point), point)
    assert WholeSpace().contains(point)


@every_domain
@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf, 1e300, -1e300])
def test_weights_that_are_not_finite_or_absurd_are_not_contained(domain: AnyDomain, poison: float) -> None:
    for place in range(3):
        weights = np.zeros(3)
        weights[place] = poison
        assert not domain.contains(weights)


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_absurd_weights_are_refused_even_by_a_domain_of_absurd_size(poison: float) -> None:
    assert not Ball(radius=1e300).contains(np.array([poison]))
    assert not Box(lower=-1e300, upper=1e300).contains(np.array([poison]))


@every_bounded_domain
def test_points_a_little_outside_are_not_contained(domain: Ball | Box) -> None:
    for size in (1, 5):
        direction = np.ones(size) / math.sqrt(size)
        for side in (direction, -direction):
            boundary = domain.project(side * 1e5)
            assert domain.contains(boundary)
            outward = boundary + side * 1e-4 * domain.reach(size)
            assert not domain.contains(outward)


def test_a_corner_of_the_surrounding_cube_is_not_in_a_ball() -> None:
    assert not Ball(radius=1.0).contains(np.ones(100))
    assert not Ball(radius=1.0).contains(np.full(100, 0.101))
    assert Ball(radius=1.0).contains(np.full(100, 0.099))


@every_bounded_domain
@pytest.mark.parametrize("size", [1, 4])
def test_no_member_lies_beyond_the_reach_and_some_member_is_there(domain: Ball | Box, size: int) -> None:
    members = draw_members(domain, np.random.default_rng(3), 200, size)
    reach = domain.reach(size)
    assert np.linalg.norm(members, axis=1).max() <= reach * (1.0 + 1e-12)
    corners = [domain.project(np.full(size, side)) for side in (1e5, -1e5)]
    assert max(length(corner) for corner in corners) == pytest.approx(reach)


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        (Box, [{"lower": low, "upper": up} for low, up in ((0.1, 1.0), (-2.0, -1.0), (1.0, -1.0), (0.0, 0.0))]),
        (Ball, [{"radius": radius} for radius in (0.0, -1.0, math.nan, math.inf)]),
    ],
)
def test_a_domain_without_the_origin_without_room_or_without_bounds_is_refused(
    kind: type[Box | Ball], sizes: list[dict[str, float]]
) -> None:
    for size in sizes:
        with pytest.raises(ValidationError):
            kind(**size)  # type: ignore[arg-type]


def test_a_ball_projects_enormous_points_to_its_sphere_too() -> None:
    """A hostile silo's huge but finite update reaches the server's projection: its squares overflow."""
    np.testing.assert_allclose(Ball(radius=1.0).project(np.array([3e200, -4e200])), [0.6, -0.8])
