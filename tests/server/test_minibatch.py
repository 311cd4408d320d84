"""Minibatch SGD without the noise: where it converges, and that it is the paper's Algorithm 2 to the letter."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from ringfence.protocol import Answer, RoundRequest, unpack
from ringfence.server.rounds import Ask, run
from tests.server.quadratics import Journal, make_plan, quadratics, update


def last_point(rounds: int, **algorithm: float) -> dict[str, float]:
    """Set the algorithm so that the model is the last query_weights point alone."""
    return {"skip": rounds - 1, **algorithm}


@pytest.mark.parametrize(
    ("domain", "optimum"),
    [
        ({"name": "ball", "radius": 1.0}, [0.6, 0.8]),
        ({"name": "box", "lower": -1.0, "upper": 3.5}, [3.0, 3.5]),
        ({"name": "whole-space"}, [3.0, 4.0]),
    ],
    ids=str,
)
def test_every_query_stays_in_the_domain_and_ends_at_the_constrained_optimum(
    domain: dict[str, object], optimum: list[float]
) -> None:
    plan = make_plan(rounds=300, domain=domain, algorithm=last_point(300, step=1.5, momentum=0.5), ridge=0.0)
    journal = Journal(quadratics((2, 4), (4, 4)))
    model = run(plan, journal).weights
    assert len(journal.queries) == 300
    for query_weights in journal.queries:
        assert plan.domain.contains(query_weights)
    assert plan.domain.contains(model)
    np.testing.assert_allclose(model, optimum, atol=1e-6)


@pytest.mark.parametrize("momentum", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("ridge", [0.0, 0.7])
def test_the_steps_are_those_of_the_formula(momentum: float, ridge: float) -> None:
    """v ← momentum·v − step·(g + ridge·w), w ← Proj(w + v)."""
    plan = make_plan(
        rounds=12, ridge=ridge, domain={"name": "ball", "radius": 2.5}, algorithm={"step": 0.4, "momentum": momentum}
    )
    journal = Journal(quadratics((2, 4), (4, -1)))
    run(plan, journal)
    weights = velocity = np.zeros(2)
    outside = 0
    for query_weights in journal.queries:
        np.testing.assert_allclose(query_weights, weights, rtol=1e-12, atol=1e-15)
        gradient = ((weights - [2, 4]) + (weights - [4, -1])) / 2 + ridge * weights
        velocity = momentum * velocity - 0.4 * gradient
        weights = weights + velocity
        length = float(np.linalg.norm(weights))
        outside += length > 2.5
        weights = weights * min(1.0, 2.5 / length)
    assert outside or ridge  # the projection was put to the test


@pytest.mark.parametrize("skip", [0, 1, 4, 8])
@pytest.mark.parametrize("growth", [1.0, 1.3, 7.0])
def test_the_model_is_the_weighted_average_of_the_query_points(skip: int, growth: float) -> None:
    plan = make_plan(rounds=9, algorithm={"step": 0.3, "skip": skip, "growth": growth})
    journal = Journal(quadratics((2, 4), (4, -1)))
    model = run(plan, journal).weights
    shares = [growth**round if round >= skip else 0.0 for round in range(9)]
    expected = sum(share * query_weights for share, query_weights in zip(shares, journal.queries, strict=True)) / sum(
        shares
    )
    np.testing.assert_allclose(model, expected, rtol=1e-12)


def answering(ask: Ask, rounds: set[int]) -> Ask:
    """Let the silos answer in the given rounds only."""
    return lambda request, asked: ask(request, asked) if request.round in rounds else {}


@pytest.mark.parametrize("growth", [1.0, 1.5])
def test_rounds_without_an_answer_do_not_count_in_the_average(growth: float) -> None:
    plan = make_plan(rounds=10, algorithm={"step": 0.3, "skip": 2, "growth": growth})
    answered = {0, 2, 3, 5, 8}
    journal = Journal(answering(quadratics((2, 4), (4, -1)), answered))
    model = run(plan, journal).weights
    counted = sorted(answered - {0})
    expected = sum(growth**r * journal.queries[r] for r in counted) / sum(growth**r for r in counted)
    np.testing.assert_allclose(model, expected, rtol=1e-12)


def test_the_model_is_the_last_point_if_no_answered_round_is_late_enough_for_the_average() -> None:
    plan = make_plan(rounds=10, algorithm={"step": 0.5, "skip": 5})
    model = run(plan, answering(quadratics((2, 4), (4, 4)), {0})).weights
    np.testing.assert_allclose(model, [1.5, 2.0])


@pytest.mark.parametrize("growth", [1.0, 1.5, 1e300])
def test_growing_shares_do_not_overflow_in_ten_thousand_rounds(growth: float) -> None:
    plan = make_plan((1.0,), dimension=1, rounds=10_000, algorithm={"step": 0.001, "growth": growth})
    journal = Journal(quadratics((1.0,)))
    model = run(plan, journal).weights
    shares = [growth**-age for age in range(10_000)]  # from the last round back
    expected = sum(
        share * query_weights for share, query_weights in zip(shares, journal.queries[::-1], strict=True)
    ) / sum(shares)
    np.testing.assert_allclose(model, expected, rtol=1e-9)


@pytest.mark.parametrize("last", [935, 500])
def test_the_average_keeps_its_precision_when_the_silos_leave_long_before_the_last_round(last: int) -> None:
    """With growth 2 and 2,000 rounds, round 935 has the share 2⁻¹⁰⁶⁴: a float of ten bits. Round 500 has none."""
    plan = make_plan((1.0,), dimension=1, rounds=2000, algorithm={"step": 0.5, "growth": 2.0})

    def swinging(request: RoundRequest, asked: Sequence[str]) -> Mapping[str, Answer]:
        """Move the weights between 0 and 0.6, whatever they are."""
        weights = unpack(request.argument)
        return {name: update(request, name, 4.0 * (weights - 0.3)) for name in asked}

    journal = Journal(answering(swinging, set(range(last + 1))))
    model = run(plan, journal).weights
    recent = journal.queries[last::-1][:60]
    shares = [2.0**-age for age in range(60)]
    expected = sum(share * query_weights for share, query_weights in zip(shares, recent, strict=True)) / sum(shares)
    np.testing.assert_allclose(model, expected, rtol=1e-9)
