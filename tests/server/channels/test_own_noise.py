"""Noisy vectors become their mean by the silos' public weights; what is no such vector is not used."""

import itertools
import math

import numpy as np
import pytest

from ringfence.protocol import Answer, RefusalReason, RoundRequest, SealedUpdate
from ringfence.server.channels import RECEIVERS
from ringfence.server.channels.own_noise import mean_update
from tests.server.quadratics import make_plan, refuse, update
from tests.server.surveyed import surveyed


def test_with_equal_weights_the_update_is_the_plain_mean_over_those_that_answered() -> None:
    plan = make_plan((0.25,) * 4)
    vectors = {"s0": np.array([1.0, 5.0]), "s2": np.array([3.0, -1.0]), "s3": np.array([2.0, 2.0])}
    for count in (1, 2, 3):
        some = dict(itertools.islice(vectors.items(), count))
        np.testing.assert_allclose(mean_update(plan, some), np.mean(list(some.values()), axis=0), rtol=1e-14)


def test_with_other_weights_the_update_is_scaled_by_silos_over_answers() -> None:
    plan = make_plan((0.1, 0.2, 0.7))
    one, two = np.array([1.0, 5.0]), np.array([3.0, -1.0])
    np.testing.assert_allclose(mean_update(plan, {"s0": one}), 3 * 0.1 * one)
    np.testing.assert_allclose(mean_update(plan, {"s0": one, "s2": two}), 3 / 2 * (0.1 * one + 0.7 * two))
    np.testing.assert_allclose(mean_update(plan, {"s2": two, "s0": one}), 3 / 2 * (0.1 * one + 0.7 * two))


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
    digest = plan.digest()

    def is_usable(number: int, vector: list[float]) -> bool:
        request, channel = RoundRequest.at(digest, number, np.zeros(2)), plan.stages[number].channel
        return RECEIVERS[type(channel)].is_usable(
            channel, plan, number, request, update(request, "s0", np.array(vector))
        )

    assert is_usable(0, [0.5])
    assert is_usable(1, [0.5, -0.5])
    assert is_usable(1, [1e100, -1e100])
    assert not is_usable(0, [0.5, -0.5])
    assert not is_usable(1, [0.5])
    for number in (math.nan, math.inf, -math.inf, 1.1e100, -1e300):
        assert not is_usable(1, [0.5, number])


def test_an_answer_of_another_kind_is_not_used() -> None:
    plan = make_plan()
    request, channel = RoundRequest.at(plan.digest(), 0, np.zeros(2)), plan.stages[0].channel
    sealed = SealedUpdate(plan=plan.digest(), round=0, silo="s0", envelope="AAAA", signature="0" * 128)
    others: list[Answer] = [refuse(request, "s0", RefusalReason.BUDGET), sealed]
    for answer in others:
        assert not RECEIVERS[type(channel)].is_usable(channel, plan, 0, request, answer)


def test_without_an_answer_there_is_no_mean() -> None:
    plan = make_plan()
    channel = plan.stages[0].channel
    assert RECEIVERS[type(channel)].mean(channel, plan, 0, {}, None) is None
