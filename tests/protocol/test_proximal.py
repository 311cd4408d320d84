"""The proximal step is the minimiser that it is said to be, over every kind of domain."""

from typing import Any

import jax
import numpy as np
import pytest

from ringfence.protocol import Ball, Box, Domain, Proximal, WholeSpace

DOMAINS: list[Domain] = [Ball(radius=0.7), Box(lower=-0.2, upper=0.5), WholeSpace()]


@pytest.mark.parametrize("domain", DOMAINS, ids=lambda domain: domain.name)
@pytest.mark.parametrize("constants", [0, 2])
def test_no_point_of_the_domain_has_a_smaller_value(domain: Domain, constants: int) -> None:
    generator, size = np.random.default_rng(5), 6
    pulled = np.arange(size) < size - constants
    for _ in range(50):
        point, step, lasso = generator.normal(size=size), generator.uniform(0, 2), generator.uniform(0.01, 1)
        found = Proximal(domain, lasso, constants)(point, step)
        assert domain.contains(found)

        def value(w: np.ndarray, point: np.ndarray = point, pull: float = step * lasso) -> float:
            return float(0.5 * np.sum((w - point) ** 2) + pull * np.sum(np.abs(w[pulled])))

        for size_of_move in (1e-3, 1e-1, 1.0):
            for move in generator.normal(size=(40, size)) * size_of_move:
                assert value(found) <= value(domain.project(found + move)) + 1e-12


def test_small_weights_become_exactly_zero_and_the_intercept_is_left_alone() -> None:
    step = Proximal(WholeSpace(), lasso=0.5, constants=1)
    np.testing.assert_array_equal(step(np.array([0.2, -0.3, 0.9, 0.1]), 0.8), [0.0, 0.0, 0.5, 0.1])


def test_without_a_lasso_it_is_the_projection_to_the_bit() -> None:
    point = np.random.default_rng(1).normal(size=9)
    for domain in DOMAINS:
        np.testing.assert_array_equal(Proximal(domain)(point, 3.0), domain.project(point))


def test_jax_takes_the_same_step() -> None:
    point, step = np.linspace(-1, 1, 8), Proximal(Ball(radius=0.5), lasso=0.3, constants=2)
    compiled: Any = jax.jit(step)(point, 0.7)
    np.testing.assert_allclose(compiled, step(point, 0.7), atol=1e-6)
