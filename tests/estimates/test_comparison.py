"""Differences of losses have intervals that hold all at once, though the same records chose the best."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from ringfence.estimates.answers import NoisyAnswer
from ringfence.estimates.comparison import ComparedLosses, difference_clip, difference_edges, hidden_difference
from ringfence.estimates.intervals import bonferroni_critical_value
from ringfence.protocol import Comparison
from ringfence.protocol.queries.comparison import SIZE_LEVELS
from ringfence.protocol.queries.evaluation import CURVE
from ringfence.silo.queries import compute
from tests.protocol.queries.neighbours import draw_record, records_of
from tests.protocol.queries.test_evaluation import plan_with

MODELS, RECORDS, SIGMA = 6, 400, 0.01


def test_intervals_of_all_candidates_hold_together_as_often_as_they_say_whichever_is_best() -> None:
    """2,000 choices among equals, where choosing flatters most. Fewer than 92.6 % covered has probability 1e-6."""
    query, random = Comparison(models=MODELS, part="losses"), np.random.default_rng(3)
    covered, runs = 0, 2000
    for _ in range(runs):
        sampled = random.normal(0.0, 0.3 / math.sqrt(RECORDS), MODELS)
        sampled -= sampled.mean()
        square = (MODELS - 1) * 0.3**2  # of a record's differences: equal variances in all directions but one
        exact = query.scale * np.append(sampled, CURVE * square)
        found = ComparedLosses.of(query, 1.0, NoisyAnswer(exact + random.normal(0, SIGMA, MODELS + 1), SIGMA, RECORDS))
        above = [found.above_best(model) for model in range(MODELS)]
        covered += all(one.low is not None and one.high is not None and one.low <= 0 <= one.high for one in above)
        assert above[found.best].value == above[found.best].low == above[found.best].high == 0.0
    assert binom.cdf(covered, runs, 0.95) > 1e-6


def test_all_pairs_of_more_models_need_wider_intervals_and_two_need_the_usual_one() -> None:
    assert bonferroni_critical_value(1) == pytest.approx(1.95996, abs=1e-5)
    assert bonferroni_critical_value(15) == pytest.approx(2.935, abs=1e-3)
    assert hidden_difference(2, 0.1) == pytest.approx(1.95996 * math.sqrt(2) * 0.2, rel=1e-5)


@pytest.mark.parametrize("loss", ["logistic", "squared", "softmax", "hinge"])
def test_no_record_differs_by_more_than_the_last_edge(loss: str) -> None:
    plan, random = plan_with(loss), np.random.default_rng(len(loss))
    models = random.normal(size=(4, plan.dimension))
    records = records_of(plan, [draw_record(plan, random) for _ in range(200)])
    shaped = [own.reshape(plan.data.width, -1) for own in models]
    losses = np.array([plan.loss.values(records.features @ own, records.targets) for own in shaped])
    largest = np.linalg.norm(losses - losses.mean(axis=0), axis=0).max()
    assert largest <= difference_edges(plan, models)[-1]


def test_without_noise_nothing_is_clipped_and_with_more_of_it_ever_more_is() -> None:
    plan, random = plan_with("logistic"), np.random.default_rng(1)
    models = 0.5 * random.normal(size=(3, plan.dimension))
    records = records_of(plan, [draw_record(plan, random) for _ in range(500)])
    query, asked = Comparison(models=3, part="sizes"), difference_edges(plan, models)
    assert len(asked) == 2**SIZE_LEVELS - 1
    exact = compute(query, plan, np.concatenate([models.reshape(-1), asked]), records, np.ones(500), 500)
    losses = np.array(
        [plan.loss.values(records.features @ own.reshape(plan.data.width, -1), records.targets) for own in models]
    )
    sizes = np.linalg.norm(losses - losses.mean(axis=0), axis=0)
    clips = [difference_clip(query, asked, NoisyAnswer(exact, 1e-9, 500), sigma) for sigma in (1e-6, 0.02, 0.2)]
    assert clips[0] >= 0.99 * sizes.max()
    assert clips == sorted(clips, reverse=True)
    assert float(np.mean(sizes > clips[1])) == pytest.approx(2 * 0.02 * math.sqrt(2), abs=0.05)
