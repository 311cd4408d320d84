"""Noisy vectors become their mean by the silos' public weights; what is no such vector is not used."""

import itertools
import math

import numpy as np
import pytest

from ringfence.protocol import OwnNoise, RefusalReason, RoundRequest, SealedUpdate
from ringfence.server.channels import own_noise
from ringfence.server.channels.own_noise import mean_update
from tests.server.quadratics import make_plan, refuse, update
from tests.server.surveyed import surveyed


def test_with_equal_weights_the_update_is_the_plain_mean_and_with_others_scaled_by_silos_over_answers() -> None:
    one, two = np.array([1.0, 5.0]), np.array([3.0, -1.0])
    equal, other = make_plan((0.25,) * 4), make_plan((0.1, 0.2, 0.7))
    np.testing.assert_allclose(mean_update(equal, {"s0": one, "s2": two}), (one + two) / 2, rtol=1e-14)
    np.testing.assert_allclose(mean_update(other, {"s0": one}), 3 * 0.1 * one)
    np.testing.assert_allclose(mean_update(other, {"s2": two, "s0": one}), 3 / 2 * (0.1 * one + 0.7 * two))


@pytest.mark.parametrize("answering", [1, 2, 3, 4])
def test_the_update_is_unbiased_over_all_sets_of_silos_that_may_answer(answering: int) -> None:
    shares = (0.1, 0.2, 0.3, 0.4)
    plan = make_plan(shares)
    vectors = np.random.default_rng(1).normal(size=(4, 2))
    updates = [
        mean_update(plan, {f"s{silo}": vectors[silo] for silo in group})
        for group in itertools.combinations(range(4), answering)
    ]
    np.testing.assert_allclose(np.mean(updates, axis=0), np.array(shares) @ vectors, rtol=1e-12)


def test_an_answer_must_have_the_length_of_its_own_stage_s_query_and_numbers_to_compute_with() -> None:
    plan = surveyed(dimension=2)

    def is_usable(number: int, vector: list[float]) -> bool:
        request = RoundRequest.at(plan.digest(), number, np.zeros(2))
        return own_noise.is_usable(plan, number, update(request, "s0", np.array(vector)))

    assert is_usable(0, [0.5])
    assert is_usable(1, [0.5, -0.5])
    assert is_usable(1, [1e100, -1e100])
    assert not is_usable(0, [0.5, -0.5])
    assert not is_usable(1, [0.5])
    for number in (math.nan, math.inf, -math.inf, 1.1e100, -1e300):
        assert not is_usable(1, [0.5, number])


def test_an_answer_of_another_kind_is_not_used_and_without_answers_there_is_no_mean() -> None:
    plan = make_plan()
    refused = refuse(RoundRequest.at(plan.digest(), 0, np.zeros(2)), "s0", RefusalReason.BUDGET)
    sealed = SealedUpdate(plan=plan.digest(), round=0, silo="s0", envelope="AAAA", signature="0" * 128)
    assert not own_noise.is_usable(plan, 0, refused)
    assert not own_noise.is_usable(plan, 0, sealed)
    assert own_noise.average(OwnNoise(), plan, 0, {}, None) is None
