"""What a silo says of a model's predictions: the shares and means that the query names, of those who take part."""

import numpy as np
import pytest

from ringfence.estimates.answers import AnsweredRound, EvaluationAnswers, NoisyAnswer, read_rounds
from ringfence.estimates.evaluation import next_evaluation_request
from ringfence.protocol import Evaluation, FloatArray, parse_schema
from ringfence.protocol.queries.evaluation import CURVE, MARGIN
from ringfence.research.experiments.looking_evaluation import DESIGNS, Data, plan_of
from ringfence.silo.queries import compute
from ringfence.silo.records.records import Records

QUERY = Evaluation()


def found(
    design: str, data: Data, chosen: FloatArray | None = None, of_row: FloatArray | None = None
) -> EvaluationAnswers:
    """Read an answer without noise."""
    plan = plan_of(design, 1000)
    features, targets = data
    schema = plan.data
    people = None
    if of_row is not None:
        schema = parse_schema({**schema.model_dump(exclude={"target", "person"}), "person": "who"}, target="target")
        people = of_row.astype(np.int64)
    records = Records(schema, features, targets, of_row=people)
    taking_part = np.ones(len(records)) if chosen is None else chosen
    weights = np.eye(plan.loss.outputs).reshape(-1)
    asked = next_evaluation_request(QUERY, plan, weights, None, [], last=True)
    batch = int(taking_part.sum())
    vector = compute(QUERY, plan, asked.packed(), records, taking_part, batch)
    return read_rounds(QUERY, plan, [AnsweredRound(asked.packed(), {"clinic": NoisyAnswer(vector, 1e-9, batch)})])


def drawn(design: str, count: int = 300) -> Data:
    return DESIGNS[design].draw(np.random.default_rng(3), count)


def test_of_two_classes_it_tells_shares_brier_score_and_cut_loss() -> None:
    scores, targets = drawn("balanced")
    text = found("balanced", (scores, targets))
    score = scores[:, 0]
    predicted = np.where(score > 0, 1.0, -1.0)
    means = [np.mean(predicted * targets), MARGIN * np.mean(targets), MARGIN * np.mean(predicted)]
    assert text.latest("confusion").values == pytest.approx(means, abs=1e-6)
    chance = 1 / (1 + np.exp(-score))
    assert text.latest("brier").values[0] == pytest.approx(np.mean((chance - (targets > 0)) ** 2), abs=1e-6)
    cap = text.latest("loss").bin_edges[0]
    losses = np.minimum(np.log1p(np.exp(-targets * score)), cap)
    assert cap * text.latest("loss").values[0] == pytest.approx(np.mean(losses), abs=1e-6)


def test_of_numbers_it_tells_errors_that_are_cut_and_where_targets_lie() -> None:
    scores, targets = drawn("Gaussian errors")
    text = found("Gaussian errors", (scores, targets))
    cap = text.latest("squared").bin_edges[0]
    error = np.minimum(np.abs(scores[:, 0] - targets), cap)
    assert cap**2 * text.latest("squared").values[0] == pytest.approx(np.mean(error**2), rel=1e-4)
    assert cap * text.latest("absolute").values[0] == pytest.approx(np.mean(error), rel=1e-4)
    assert text.latest("below").values[0] == pytest.approx(np.mean(np.where(targets <= scores[:, 0], 1, -1)), abs=1e-6)
    mean, square = text.latest("target").values
    assert (mean, square / CURVE) == pytest.approx((np.mean(targets), np.mean(targets**2)), abs=1e-6)


@pytest.mark.parametrize("design", ["balanced", "five classes", "Gaussian errors"])
def test_who_takes_no_part_moves_nothing(design: str) -> None:
    scores, targets = drawn(design, 40)
    chosen = np.arange(40) % 3 > 0
    with_others = found(design, (scores, targets), chosen.astype(np.float64))
    alone = found(design, (scores[chosen], targets[chosen]))
    for name, means in alone.rounds[0].items():
        assert with_others.rounds[0][name].values.tolist() == means.values.tolist()


def test_of_a_person_the_mean_of_all_rows_counts_once() -> None:
    scores, targets = drawn("balanced", 6)
    text = found("balanced", (scores, targets), of_row=np.array([0, 0, 0, 0, 0, 1]))
    right = np.where(scores[:, 0] > 0, 1.0, -1.0) * targets
    assert text.latest("confusion").values[0] == pytest.approx((right[:5].mean() + right[5]) / 2, abs=1e-6)
