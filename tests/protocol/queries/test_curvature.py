"""The curvature: no record moves the largest eigenvalue by more than X²/n, and some do."""

import numpy as np
import pytest

from ringfence.protocol import Curvature
from tests.protocol.plan_document import SURVEY, plan_of
from tests.protocol.queries.neighbours import Record, draw_record, draw_setting

PLAN, QUERY = plan_of(SURVEY), Curvature()
LARGEST = 2.0**2 + 1.0**2  # X²: the radius of the features, and the intercept


def test_some_record_moves_it_as_far_as_that() -> None:
    """Where all others are zero, or all in one direction, a record of full length counts as nothing or in full."""
    random = np.random.default_rng(0)
    longest = PLAN.data.feature_norm * np.eye(PLAN.data.width)[0]
    for others in ([Record(0 * longest, 0.0)] * 6, [Record(longest, 0.0)] * 6):
        setting = draw_setting(PLAN, QUERY, random, records=7)._replace(others=others)
        assert setting.moves(Record(longest, 1.0), Record(0 * longest, 1.0)) == pytest.approx(setting.limit())


def test_it_is_the_largest_eigenvalue_of_the_second_moments() -> None:
    random = np.random.default_rng(2)
    rows = [draw_record(PLAN, random) for _ in range(9)]
    setting = draw_setting(PLAN, QUERY, random, records=9)._replace(others=rows[1:])
    features = np.array([row.features for row in rows])
    direct = np.linalg.svd(features, compute_uv=False)[0] ** 2 / 9
    assert setting.answer(rows[0])[0] == pytest.approx(direct)


def test_it_is_no_mean_over_records_and_sums_up_every_feature() -> None:
    assert QUERY.record_norm(PLAN) is None
    assert QUERY.terms_summed(PLAN) == PLAN.data.width
    assert not QUERY.trains
