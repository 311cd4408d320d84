"""The losses with kinks and their smoothing: closed forms against brute force on the definitions."""

import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from ringfence.errors import PlanError
from ringfence.protocol import (
    Absolute,
    EpsilonInsensitive,
    Hinge,
    Huber,
    Logistic,
    Loss,
    Pinball,
    Softmax,
    Squared,
)

AnyNonSmooth = Hinge | Absolute | Pinball | EpsilonInsensitive

PLAIN: list[AnyNonSmooth] = [
    Hinge(),
    Absolute(),
    Pinball(quantile=0.8),
    Pinball(quantile=0.35),
    EpsilonInsensitive(margin=0.4),
    EpsilonInsensitive(margin=0.0),
]
every_loss = pytest.mark.parametrize("plain", PLAIN, ids=str)

scores_drawn = st.floats(-5.0, 5.0)
widths_drawn = st.floats(0.05, 4.0)
any_width = st.sampled_from([0.0, 1e-30, 1e-9]) | st.floats(1e-6, 100.0)


@st.composite
def losses_drawn(draw: st.DrawFn, widths: st.SearchStrategy[float]) -> tuple[AnyNonSmooth, float]:
    """Draw a loss of any kind, and a target for it."""
    width = draw(widths)
    kinds: list[AnyNonSmooth] = [
        Hinge(width=width),
        Absolute(width=width),
        Pinball(quantile=draw(st.floats(0.01, 0.99)), width=width),
        EpsilonInsensitive(margin=draw(st.floats(0.0, 2.0)), width=width),
    ]
    loss = draw(st.sampled_from(kinds))
    return loss, draw(st.sampled_from([-1.0, 1.0]) if loss.target_kind == "label" else scores_drawn)


def by_definition(loss: AnyNonSmooth, score: float, y: float) -> float:
    """Return the plain loss."""
    match loss:
        case Hinge():
            return max(0.0, 1.0 - y * score)
        case Absolute():
            return abs(score - y)
        case Pinball(quantile=q):
            return max(q * (y - score), (q - 1.0) * (y - score))
        case EpsilonInsensitive(margin=margin):
            return max(0.0, abs(score - y) - margin)


def steepest(loss: AnyNonSmooth) -> float:
    return max(loss.quantile, 1.0 - loss.quantile) if isinstance(loss, Pinball) else 1.0


def margin_of(loss: AnyNonSmooth) -> float:
    return loss.margin if isinstance(loss, EpsilonInsensitive) else 0.0


def at(loss: Loss, score: float, y: float) -> tuple[float, float]:
    """Return value and residual at one score."""
    scores, targets = np.array([[score]]), np.array([y])
    return float(loss.values(scores, targets)[0]), float(loss.residuals(scores, targets)[0, 0])


@given(losses_drawn(any_width), scores_drawn, scores_drawn)
def test_every_residual_is_a_subgradient_and_at_most_as_steep_as_the_loss(
    drawn: tuple[AnyNonSmooth, float], here: float, there: float
) -> None:
    loss, y = drawn
    value, residual = at(loss, here, y)
    assert at(loss, there, y)[0] >= value + residual * (there - here) - 1e-12
    assert abs(residual) <= steepest(loss)


@given(losses_drawn(widths_drawn), scores_drawn)
@settings(max_examples=400)
def test_smoothed_values_and_residuals_are_those_of_a_numerical_minimum(
    drawn: tuple[AnyNonSmooth, float], score: float
) -> None:
    loss, y = drawn

    def objective(u: float) -> float:
        return by_definition(loss, u, y) + (score - u) ** 2 / (2 * loss.width)

    # Ternary search, on |z − u*| ≤ ℓτ ≤ τ. (scipy's scalar minimiser stops at √ε·|u|: too coarse at a kink.)
    low, high = score - loss.width, score + loss.width
    for _ in range(100):
        left, right = (2 * low + high) / 3, (low + 2 * high) / 3
        low, high = (low, right) if objective(left) <= objective(right) else (left, high)
    value, residual = at(loss, score, y)
    assert value == pytest.approx(objective((low + high) / 2), abs=1e-12)
    # The objective is 1/τ-strongly convex, so rounding of 1e-13 in its values hides u* up to √(2τ·1e-13).
    assert residual == pytest.approx((score - (low + high) / 2) / loss.width, abs=math.sqrt(2e-13 / loss.width))
    # The closed form's own minimum is no worse than the one found.
    assert objective(score - loss.width * residual) == pytest.approx(value, rel=1e-12, abs=1e-12)


@given(losses_drawn(any_width), scores_drawn)
def test_smoothing_lowers_the_loss_of_the_definition_by_no_more_than_its_error(
    drawn: tuple[AnyNonSmooth, float], score: float
) -> None:
    loss, y = drawn
    gap = by_definition(loss, score, y) - at(loss, score, y)[0]
    assert -1e-12 <= gap <= loss.smoothing_error + 1e-12  # without a width, 0
    constants = loss.constants(3.0, 1.0, math.inf)
    assert loss.smoothing_error == pytest.approx(constants.lipschitz**2 / (2 * constants.smoothness))


@every_loss
def test_the_smoothing_error_is_attained_where_the_loss_is_steepest(plain: AnyNonSmooth) -> None:
    loss = plain.with_width(0.3)
    gaps = [at(plain, score, 1.0)[0] - at(loss, score, 1.0)[0] for score in (-4.0, 6.0)]
    assert max(gaps) == pytest.approx(loss.smoothing_error)


@every_loss
@pytest.mark.parametrize("smoothness", [0.5, 20.0])
def test_the_smoothness_is_attained_next_to_a_kink(plain: AnyNonSmooth, smoothness: float) -> None:
    loss = plain.smoothed(2.0, smoothness)
    kink, inward = 1.0 + margin_of(plain), -1.0 if isinstance(plain, Hinge) else 1.0
    near, far = (at(loss, kink + inward * share * loss.width, 1.0)[1] for share in (0.01, 0.11))
    ratio = 2.0 * abs(far - near) / (0.1 * loss.width / 2.0)
    assert ratio == pytest.approx(smoothness)


@every_loss
def test_at_a_kink_the_plain_residual_is_the_limit_of_the_smoothed_ones(plain: AnyNonSmooth) -> None:
    for kink in (1.0 - margin_of(plain), 1.0 + margin_of(plain)):
        assert at(plain, kink, 1.0) == (0.0, 0.0)
        assert at(plain.with_width(1e-12), kink, 1.0) == (0.0, 0.0)


@every_loss
def test_the_steepest_slope_bounds_gradients_and_the_smoothness_is_infinite_exactly_without_a_width(
    plain: AnyNonSmooth,
) -> None:
    assert plain.constants(3.0, 1.0, math.inf).smoothness == math.inf
    assert plain.smoothing_error == 0.0
    smooth = plain.with_width(0.5)
    for loss in (plain, smooth):
        assert loss.constants(3.0, 1.0, math.inf).lipschitz == pytest.approx(3.0 * steepest(plain))
    assert smooth.constants(3.0, 1.0, math.inf).smoothness == 18.0
    assert smooth.with_width(0.0) == smooth.unsmoothed() == plain
    # Features that are all 0 make the loss constant.
    assert plain.constants(0.0, 1.0, math.inf).smoothness == 0.0


@every_loss
@pytest.mark.parametrize("width", [0.0, 1e-30, 1.0, 1e30])
@pytest.mark.parametrize("size", [1e4, 1e100, 1e300])
def test_losses_with_kinks_stay_finite_and_silent_at_huge_scores(
    plain: AnyNonSmooth, width: float, size: float
) -> None:
    loss = plain.with_width(width)
    scores, targets = np.array([[size], [-size], [0.0]]), np.ones(3)
    values, residuals = loss.values(scores, targets), loss.residuals(scores, targets)
    assert np.all(np.isfinite(values) & (values >= 0.0))
    assert np.all(np.abs(residuals) <= steepest(loss))
    if size > 1e3 * width:
        expected = [by_definition(plain, score, 1.0) for score in (size, -size)]
        np.testing.assert_allclose(values[:2], expected, rtol=1e-3)


def test_a_right_answer_of_infinite_score_costs_nothing() -> None:
    assert at(Hinge(width=0.5), math.inf, 1.0) == at(Hinge(), math.inf, 1.0) == (0.0, 0.0)


@pytest.fixture(params=["float32", "float64"])
def dtype(request: pytest.FixtureRequest) -> Iterator[Any]:
    with jax.enable_x64(request.param == "float64"):
        yield np.dtype(request.param)


@every_loss
@pytest.mark.parametrize("width", [0.0, 1e-30, 0.3, 1e30])
def test_jax_and_numpy_give_the_same_numbers(plain: AnyNonSmooth, width: float, dtype: Any) -> None:
    loss = plain.with_width(width)
    generator = np.random.default_rng(5)
    targets = generator.choice([-1.0, 1.0], 200).astype(dtype)
    scores = generator.normal(scale=2.0, size=(200, 3, 1)).astype(dtype)
    tolerance = 8 * float(np.finfo(dtype).eps)
    # As the simulator does: the loss is a constant of the compiled program.
    for method in ("values", "residuals"):
        ours = getattr(loss, method)(scores, targets)
        theirs = jax.jit(getattr(type(loss), method), static_argnums=0)(loss, jnp.asarray(scores), jnp.asarray(targets))
        assert ours.dtype == theirs.dtype == dtype
        np.testing.assert_allclose(np.asarray(theirs), ours, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "content",
    [
        *({"name": "hinge", "width": width} for width in (-0.1, math.nan, math.inf, 1e-31, 1e31, "0.1")),
        *({"name": "pinball", "quantile": quantile} for quantile in (0.0, 1.0, -0.5, 1.5, math.nan)),
        *({"name": "epsilon-insensitive", "margin": margin} for margin in (-0.1, math.nan, math.inf)),
        {"name": "pinball"},
        {"name": "epsilon-insensitive"},
        {"name": "hinge", "quantile": 0.5},
        {"name": "squared", "width": 0.5},
    ],
    ids=str,
)
def test_bad_parameters_are_refused(content: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter[Any](Loss).validate_python(content)


@every_loss
def test_a_loss_survives_its_document_and_keeps_its_kind(plain: AnyNonSmooth) -> None:
    for loss in (plain, plain.with_width(0.25)):
        assert TypeAdapter[Any](Loss).validate_json(loss.canonical()) == loss
    with pytest.raises(ValidationError):
        plain.with_width(-1.0)


@every_loss
@pytest.mark.parametrize(
    ("feature_norm", "smoothness"),
    [(0.0, 1.0), (1.0, 0.0), (1.0, -1.0), (1.0, math.inf), (1.0, math.nan), (math.nan, 1.0), (1.0, 1e31), (1e16, 1.0)],
)
def test_a_smoothness_that_no_width_gives_is_refused(
    plain: AnyNonSmooth, feature_norm: float, smoothness: float
) -> None:
    with pytest.raises(PlanError, match=f"The {plain.name} loss cannot have the smoothness"):
        plain.smoothed(feature_norm, smoothness)


@pytest.mark.parametrize("loss", [Logistic(), Softmax(classes=3), Squared(), Huber(threshold=1.0)], ids=str)
def test_a_loss_without_kinks_is_smooth_and_says_so(loss: Loss) -> None:
    assert math.isfinite(loss.constants(1.0, 1.0, 1.0).smoothness)
    assert loss.smoothing_error == 0.0
    with pytest.raises(PlanError, match=f"The {loss.name} loss is already smooth"):
        loss.smoothed(1.0, 1.0)
