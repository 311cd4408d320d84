"""The evaluation: whatever weights, bin_edges and shares a request has, no record moves the answer by more than 1/n."""

import itertools
import math

import numpy as np
import pytest

from ringfence.protocol import Evaluation, FloatArray, Plan
from ringfence.protocol.queries.evaluation import CURVE, MARGIN, node_weights, path_signs
from tests.protocol.plan_document import COUNTED, plan_of
from tests.protocol.queries.neighbours import Setting, candidates, draw_record, worst
from tests.protocol.queries.test_gradient import LOSSES


def plan_with(loss: str) -> Plan:
    """A plan with that loss, and a target that suits it."""
    return plan_of(COUNTED, LOSSES[loss])


def drawn_request(query: Evaluation, plan: Plan, random: np.random.Generator) -> FloatArray:
    """Any weights, bin edges of any size in no order, and shares that are even, random, or all of one block."""
    weights = plan.domain.project(random.normal(size=plan.dimension) * random.choice([0.0, 0.1, 3.0]))
    other = plan.domain.project(random.normal(size=plan.dimension))
    blocks = query.blocks(plan)
    bin_edges = random.normal(size=sum(block.bin_edges for block in blocks)) * 10.0 ** random.integers(-3, 2)
    alone = np.eye(len(blocks))[random.integers(len(blocks))]
    shares = [alone, np.full(len(blocks), 1 / len(blocks)), random.dirichlet(np.ones(len(blocks)))][random.integers(3)]
    models = [weights] if query.against is None else [weights, other]
    return np.concatenate([*models, bin_edges, shares * (1 - 1e-12)])


@pytest.mark.parametrize(("loss", "block"), [("logistic", "confusion"), ("squared", "below"), ("softmax", "correct")])
def test_some_pair_moves_it_exactly_as_far_as_claimed(loss: str, block: str) -> None:
    plan, random, query = plan_with(loss), np.random.default_rng(1), Evaluation()
    argument = drawn_request(query, plan, random)
    argument[-len(query.blocks(plan)) :] = [own.name == block for own in query.blocks(plan)]
    setting = Setting(plan, query, argument, [draw_record(plan, random)], 2)
    moved, *_ = worst(setting, candidates(setting, random))
    assert moved == pytest.approx(setting.limit(), rel=1e-8)


@pytest.mark.parametrize("levels", [1, 2, 4, 6])
def test_two_leaves_of_a_tree_differ_most_where_they_part_at_the_root(levels: int) -> None:
    """The lemma's function itself, over all pairs of leaves, in one group and in two."""
    paths = path_signs(levels) * node_weights(levels)
    apart = np.sum((paths[:, None] - paths[None]) ** 2, axis=-1)
    bound = 4 + 2 * sum(2 ** (-level / 2) for level in range(1, levels))
    assert apart.max() == pytest.approx(bound)
    assert np.max(np.sum(paths**2, axis=1)[:, None] + np.sum(paths**2, axis=1)) <= bound * (1 + 1e-12)


def test_a_number_beside_its_square_moves_no_further_than_the_number_alone() -> None:
    x = np.linspace(-1, 1, 801)
    moved = (x[:, None] - x) ** 2 + CURVE**2 * (x[:, None] ** 2 - x**2) ** 2
    assert moved.max() == pytest.approx(4.0)
    worse = (x[:, None] - x) ** 2 + 2.9 * (x[:, None] ** 2 - x**2) ** 2
    assert worse.max() > 4.0, "a larger factor would break the bound"


def test_of_class_prediction_and_agreement_two_records_differ_in_two_at_most() -> None:
    points = [np.array([a * b, MARGIN * a, MARGIN * b]) for a, b in itertools.product([-1, 1], repeat=2)]
    assert max(float(np.sum((p - q) ** 2)) for p in points for q in points) == pytest.approx(6.0)


def test_a_request_with_shares_above_one_or_below_none_or_without_finite_bin_edges_is_refused() -> None:
    plan, query = plan_with("logistic"), Evaluation()
    fine = drawn_request(query, plan, np.random.default_rng(0))
    blocks = len(query.blocks(plan))
    for place, value in [(-1, 1.5), (-1, -0.1), (plan.dimension, math.nan), (plan.dimension, math.inf), (0, math.inf)]:
        spoilt = fine.copy()
        spoilt[place] = value
        assert not query.accepts(plan, spoilt)
    spoilt = fine.copy()
    spoilt[-blocks:] = 1.01 / blocks
    assert not query.accepts(plan, spoilt)
