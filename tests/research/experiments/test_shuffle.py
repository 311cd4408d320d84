"""`ringfence reproduce shuffle` runs from the plans to the page, and says where its goal was missed."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ringfence.accounting import accountant
from ringfence.accounting.charges import plan_events
from ringfence.research.experiments import shuffle, shuffle_page, synthetic, trust
from ringfence.research.experiments.shuffle_page import Cost, ShuffleResults
from ringfence.research.experiments.synthetic import DIFFERENT
from ringfence.research.experiments.trust import (
    FULL_BATCH,
    MESSAGES,
    METHODS,
    MINIBATCH,
    NOBODY,
    ONE_PASS,
    SERVER,
    SHUFFLER,
    Method,
)
from ringfence.simulation.cells import Row
from tests.research.rehearsals import DATA, cells, needs_data, rehearse


def test_a_rehearsal_writes_page_figure_and_cells_and_then_has_nothing_left_to_do(tmp_path: Path) -> None:
    page = rehearse("shuffle", tmp_path, "excess-risk")
    for method in METHODS.values():
        assert f"| {method.algorithm} | {shuffle_page.NAMES[method.trust]} |" in page
    assert "proves no more" in page  # one message per silo
    assert "| seconds per round |" in page
    assert cells(tmp_path) == len(list(shuffle.wanted(quick=True)))


@needs_data
def test_digits_are_judged_by_their_best_model_and_are_the_same_records_together_and_apart() -> None:
    data = shuffle.digits(0, DATA)
    np.testing.assert_array_equal(data.apart.features, data.together.features)
    np.testing.assert_array_equal(data.apart.targets, data.together.targets)
    judged = data.judge(np.zeros((2, data.apart.features.shape[1])))
    assert np.all(
        (judged["empirical"] > 0.2) & (judged["empirical"] < math.log(2))
    )  # nothing learned: the loss is ln 2
    assert np.all(np.isnan(judged["population"]))
    assert judged["error"].shape == (2,)


@pytest.mark.parametrize("algorithm", [FULL_BATCH, ONE_PASS])
def test_all_levels_of_trust_keep_the_same_promise_and_have_the_same_records(algorithm: str) -> None:
    size = synthetic.QUICK
    for whom, silos in ((NOBODY, 4), (SHUFFLER, 4), (SERVER, 1)):
        plan = trust.plan_for(DIFFERENT, Method(algorithm, whom), size, 2.0)
        assert len(plan.silos) == silos
        assert sum(terms.records for terms in plan.silos) == size.silos * size.records
        for terms in plan.silos:
            assert (terms.guarantee.epsilon, terms.guarantee.delta) == (2.0, size.delta)
            proved = accountant.epsilon(plan_events(plan, terms), size.delta)
            assert 0.9 * 2.0 < proved <= 2.0


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
def test_a_shuffled_sum_is_nearly_as_exact_as_central_privacy_and_shuffled_messages_are_worse_than_no_shuffler(
    epsilon: float,
) -> None:
    noise = trust.noise(synthetic.FULL, FULL_BATCH, epsilon)
    assert 1.0 < noise.mixed < 1.1
    assert noise.apart == 5.0
    assert noise.messages > noise.apart
    assert noise.alone > epsilon


def test_a_message_per_silo_is_refused_with_what_to_do_instead() -> None:
    said = trust.refusal(synthetic.FULL, 2.0)
    assert "Shuffling 25 messages" in said
    assert "vector sum" in said
    assert math.isnan(trust.message_noise(25, 100, 2.0, 1e-6, 1.0))


def test_the_paper_s_rates_fall_with_trust_and_with_epsilon() -> None:
    many = replace(synthetic.FULL, silos=400)  # with 25, the logarithms of Theorem 5.2 take what it gains
    found = [shuffle_page.rates(many, epsilon) for epsilon in (0.5, 2.0, 8.0)]
    for rates in found:
        assert rates[NOBODY] > rates[SHUFFLER] > rates[SERVER]
    for whom in (NOBODY, SHUFFLER, SERVER):
        assert found[0][whom] > found[1][whom] > found[2][whom]


def results(shuffled: float) -> ShuffleResults:
    """What runs would look like in which central DP has an excess of 1, without a shuffler 5."""
    means = {NOBODY: 5.0, SHUFFLER: shuffled, SERVER: 1.0, MESSAGES: math.nan}
    rows: list[Row] = [
        {
            "problem": DIFFERENT,
            "method": name,
            "epsilon": 2.0,
            "seed": seed,
            "trial": 0,
            "rounds": 7,
            "population": means[method.trust] * (0.9 + 0.2 * seed),
            "empirical": 0.0,
            "error": math.nan,
        }
        for name, method in METHODS.items()
        for seed in range(2)
    ]
    noises = {name: [trust.noise(synthetic.QUICK, name, 2.0)] for name in (FULL_BATCH, ONE_PASS)}
    return ShuffleResults(synthetic.QUICK, shuffle_page.summary(rows), noises, Cost(0.5, 1.0, 3, 4, 5, 600), 2, 1)


def test_the_page_says_where_the_goal_is_missed_and_what_was_refused() -> None:
    missed, met = ("\n\n".join(shuffle_page.parts_of(results(shuffled), "command")) for shuffled in (1.6, 1.4))
    assert "missed by accelerated on different silos at ε = 2 (1.60 ± 0.23)" in missed
    assert "met everywhere" in met
    assert f"| {MINIBATCH} | {shuffle_page.NAMES[MESSAGES]} | refused |" in met
    assert "| in units of the plain round | 1 | 2.0 |" in met
    assert shuffle_page.ratios(results(1.4), NOBODY)[DIFFERENT, FULL_BATCH, 2.0][0] == pytest.approx(5.0)
