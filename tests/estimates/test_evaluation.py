"""Figures of an evaluation: right without noise, honest with much of it, and never without an interval."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from ringfence.errors import PlanError
from ringfence.estimates import metrics
from ringfence.estimates.answers import (
    AnsweredRound,
    BlockMeans,
    CellShares,
    EvaluationAnswers,
    NoisyAnswer,
    largest_score,
    read_rounds,
)
from ringfence.estimates.classification import ScoreShares, average_precision, binary_metrics
from ringfence.estimates.evaluation import chosen_figures, evaluation_report, model_metrics, next_evaluation_request
from ringfence.estimates.intervals import Z, ratio_interval
from ringfence.estimates.metrics import CLIPPED, EvaluationReport, ModelMetrics
from ringfence.protocol import (
    Evaluation,
    FloatArray,
    Hinge,
    Logistic,
    Pinball,
    Plan,
    Softmax,
    Squared,
    pack,
    parse_schema,
)
from ringfence.protocol.queries.evaluation import MARGIN
from ringfence.research.experiments.looking_evaluation import (
    DESIGNS,
    REACH,
    Data,
    clipped_metrics,
    evaluate,
    exact_metrics,
    plan_of,
)
from ringfence.silo.queries import compute
from ringfence.silo.records.records import Records, load_records

QUIET = 1e-9
"""Noise that hides nothing."""
FALSE_ALARM = 1e-6


def asked_twice(
    plan: Plan, silos: dict[str, Data], sigma: float, query: Evaluation | None = None, seed: int = 0
) -> list[AnsweredRound]:
    """Evaluate the model with weights 1, in two rounds, as a server does."""
    query, random = query or Evaluation(), np.random.default_rng(seed)
    against = None if query.against is None else np.zeros(plan.dimension)
    answered: list[AnsweredRound] = []
    for last in (False, True):
        weights = np.eye(plan.loss.outputs).reshape(-1)
        argument = next_evaluation_request(query, plan, weights, against, answered, last=last).packed()
        assert query.accepts(plan, argument)
        answers = {}
        for name, (scores, targets) in silos.items():
            count = len(targets)
            exact = compute(query, plan, argument, Records(plan.data, scores, targets), np.ones(count), count)
            answers[name] = NoisyAnswer(exact + sigma * random.normal(size=len(exact)), sigma, count)
        answered.append(AnsweredRound(argument, answers))
    return answered


def drawn(design: str, count: int, seed: int = 1) -> Data:
    return DESIGNS[design].draw(np.random.default_rng(seed), count)


def ends(metric: metrics.Metric) -> tuple[float, float]:
    assert metric.low is not None
    assert metric.high is not None
    return metric.low, metric.high


def metrics_of(plan: Plan, data: Data, sigma: float, query: Evaluation | None = None) -> ModelMetrics:
    query = query or Evaluation()
    return model_metrics(read_rounds(query, plan, asked_twice(plan, {"clinic": data}, sigma, query)))


@pytest.mark.parametrize("design", ["balanced", "5 % positives", "far out", "five classes", "poor model"])
def test_without_noise_the_metrics_are_those_of_the_records(design: str) -> None:
    """But for what bins hide of an AUC."""
    plan, data = plan_of(design, 1000), drawn(design, 3000)
    rounds = asked_twice(plan, {"clinic": data}, QUIET)
    found = model_metrics(read_rounds(Evaluation(), plan, rounds))
    bin_edges = Evaluation().read(plan, rounds[-1].argument).bin_edges
    rough = {"AUC": 0.01, "expected calibration error": 0.1, "average precision": 0.05}
    for name, exact in (exact_metrics(plan.loss, data) | clipped_metrics(plan.loss, data, bin_edges)).items():
        if name.endswith((CLIPPED, "of clipped targets")):
            continue  # nothing is clipped
        metric = found.metric(name)
        if np.isnan(exact):  # a precision where nothing is predicted
            assert metric.value is None
            continue
        low, high = ends(metric)
        assert low <= exact <= high, name
        if metric.usable:  # sampling alone may leave too little of an average precision
            assert metric.value == pytest.approx(exact, abs=1e-4, rel=rough.get(name, 1e-4)), name
        else:
            assert name == "average precision"


@pytest.mark.parametrize(
    ("design", "figures", "blocks"),
    [
        ("balanced", ("accuracy",), {"confusion"}),
        ("balanced", ("recall", "AUC"), {"confusion", "scores"}),
        ("balanced", ("Brier score",), {"brier"}),
        ("balanced", ("log loss",), {"confusion", "scores", "loss"}),
        ("five classes", ("log loss",), {"loss"}),
        ("five classes", ("accuracy", "log loss"), {"correct", "cells", "loss"}),
        ("poor model", ("MAE",), {"residuals", "absolute"}),
        ("Gaussian errors", ("share of targets below the prediction",), {"below"}),
    ],
)
def test_only_what_the_figures_need_is_asked_and_without_noise_they_are_those_of_the_records(
    design: str, figures: tuple[str, ...], blocks: set[str]
) -> None:
    plan, data, query = plan_of(design, 1000), drawn(design, 3000), Evaluation(figures=figures)
    rounds = asked_twice(plan, {"clinic": data}, QUIET, query)
    shares = [query.read(plan, one.argument).shares for one in rounds]
    assert {name for each in shares for name, share in each.items() if share} == blocks
    found = model_metrics(read_rounds(query, plan, rounds), figures)
    exact = exact_metrics(plan.loss, data) | clipped_metrics(
        plan.loss, data, query.read(plan, rounds[-1].argument).bin_edges
    )
    assert {metric.name.partition(" of guessing ")[0].partition(" above ")[0] for metric in found.metrics} == set(
        figures
    )
    for name in figures:
        assert found.metric(name).value == pytest.approx(exact[name], abs=1e-4, rel=0.02), name


def test_an_evaluation_that_names_no_figures_is_the_document_that_it_was_before_figures_could_be_named() -> None:
    assert Evaluation().canonical() == b'{"name":"evaluation"}'


@pytest.mark.parametrize("design", ["balanced", "five classes", "Gaussian errors"])
def test_three_records_or_one_class_give_no_number_without_an_interval(design: str) -> None:
    plan = plan_of(design, 1000)
    scores, targets = drawn(design, 3)
    for own in (targets, np.full(3, targets[0])):
        for sigma in (QUIET, 0.1, 10.0):
            for metric in metrics_of(plan, (scores, own), sigma).metrics:
                assert (metric.value is None) == (not metric.usable) == bool(metric.unknown)
                assert (metric.low is None) == (metric.high is None) == (metric.half_width is None)
                if metric.low is None:
                    assert metric.sentence().startswith(f"{metric.name} is unknown: ")
                elif metric.value is None:
                    assert metric.sentence().startswith(f"{metric.name} is between ")
                else:
                    low, high = ends(metric)
                    assert low <= metric.value <= high


def test_one_class_alone_has_no_auc_and_says_why() -> None:
    plan = plan_of("balanced", 1000)
    scores, _ = drawn("balanced", 500)
    found = metrics_of(plan, (scores, np.ones(500)), 1e-3)
    assert found.metric("AUC").value is None
    assert "too few records of one class" in found.metric("AUC").sentence()


def test_the_noise_in_all_cells_is_what_their_intervals_count_on() -> None:
    """What noise does to the 64 cells, in units of its stated covariance, has 63 squares that add up to a chi-square.

    Of 10 draws, that alarms falsely once in 10⁶. If noise were 1.5 times as large or as small as is stated, the sum
    would lie beyond the accepted interval but for once in 10⁶ (computed below).
    """
    plan, query, random = plan_of("balanced", 1000), Evaluation(), np.random.default_rng(0)
    rounds = asked_twice(plan, {"clinic": drawn("balanced", 50)}, QUIET)
    freedom, total = 10 * 63, 0.0
    for _ in range(10):
        noisy = []
        for one in rounds:
            answer = one.answers["clinic"].vector
            noise = 0.02 * random.normal(size=len(answer))
            noisy.append(AnsweredRound(one.argument, {"clinic": NoisyAnswer(answer + noise, 0.02, 50)}))
        cells, exact = (ScoreShares.of(read_rounds(query, plan, answered)).cells for answered in (noisy, rounds))
        moved = cells.shares - exact.shares
        total += float(moved @ np.linalg.pinv(cells.noise, rcond=1e-10) @ moved)
    low, high = chi2(freedom).ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2])
    assert low <= total <= high
    assert chi2(freedom).cdf(high / 1.5**2) <= 1e-6
    assert chi2(freedom).sf(low * 1.5**2) <= 1e-6


def test_an_evaluation_of_several_classes_or_of_numbers_has_no_positive_class() -> None:
    for design in ("five classes", "Gaussian errors"):
        plan = plan_of(design, 1000)
        found = evaluation_report(Evaluation(), plan, asked_twice(plan, {"clinic": drawn(design, 100)}, QUIET))
        assert found.positive is None
        assert "positive" not in str(found)
        assert b"positive" not in found.canonical()


def test_silos_are_pooled_by_their_records_and_each_has_its_own_metrics() -> None:
    plan = plan_of("balanced", 1000)
    silos = {"large": drawn("balanced", 900), "small": drawn("balanced", 100, seed=2)}
    found = evaluation_report(Evaluation(), plan, asked_twice(plan, silos, QUIET))
    right = {name: exact_metrics(plan.loss, data)["accuracy"] for name, data in silos.items()}
    assert found.together.records == 1000
    assert found.together.metric("accuracy").value == pytest.approx(
        0.9 * right["large"] + 0.1 * right["small"], abs=1e-5
    )
    for name, own in right.items():
        assert found.silos[name].metric("accuracy").value == pytest.approx(own, abs=1e-5)
    again = EvaluationReport.model_validate_json(found.canonical())
    assert again == found
    assert json.loads(found.canonical())["coverage"] == 0.95
    assert len(found.together.roc) == 31
    assert found.positive == plan.data.target_column.classes[1]
    assert f"; positive class: '{found.positive}'\n" in str(found)
    assert sum(cell.share.value or 0.0 for cell in found.together.confusion) == pytest.approx(1.0, abs=1e-3)


def test_two_models_are_compared_record_by_record_and_with_guessing() -> None:
    plan, data = plan_of("balanced", 1000), drawn("balanced", 2000)
    query = Evaluation(against=pack(np.zeros(1)))
    rounds = asked_twice(plan, {"clinic": data}, QUIET, query)
    found, cap = (
        model_metrics(read_rounds(query, plan, rounds)),
        query.read(plan, rounds[-1].argument).bin_edges["paired"],
    )
    other = float(np.mean(data[1] < 0))  # scores of 0 are predicted negative
    above = found.metric("accuracy above the other model's")
    assert above.value == pytest.approx(exact_metrics(plan.loss, data)["accuracy"] - other, abs=1e-4)
    losses = np.clip(plan.loss.values(*data) - plan.loss.values(0 * data[0], data[1]), -cap, cap)
    below = found.metric("loss below the other model's")
    assert below.value == pytest.approx(-float(np.mean(losses)), abs=1e-4)
    assert "difference counts" in below.sentence(), "what is taken for granted is said"
    [sentence] = [line for line in found.sentences() if line.startswith("accuracy 0")]
    assert "; guessing the larger class gives 0.5" in sentence


@pytest.mark.parametrize(("design", "loss"), [("balanced", Hinge()), ("Gaussian errors", Pinball(quantile=0.9))])
def test_other_losses_have_their_own_mean_no_probabilities_and_quantiles_a_coverage(design: str, loss: Any) -> None:
    plan = plan_of(design, 1000).model_copy(update={"model_loss": loss})
    data = drawn(design, 2000)
    found = metrics_of(plan, data, QUIET)
    name = "hinge loss" if loss.name == "hinge" else "pinball loss of scaled targets"
    assert found.metric(name).value == pytest.approx(float(np.mean(loss.values(*data))), rel=0.02)
    assert not {"log loss", "Brier score", "expected calibration error"} & {metric.name for metric in found.metrics}
    assert found.calibration == ()
    if loss.name == "pinball":
        share = found.metric("share of targets below the prediction")
        assert share.value == pytest.approx(float(np.mean(data[1] <= data[0][:, 0])), abs=1e-4)
        assert share.sentence().endswith("(the model aims at 0.9)")


def test_errors_up_to_the_largest_that_the_bounds_allow_count_where_noise_allows() -> None:
    plan, count = plan_of("Gaussian errors", 1000), 1000
    scores = np.where(np.arange(count) < 3, REACH, 0.01 * np.arange(count) / count)
    targets = np.where(np.arange(count) < 3, -1.0, 0.0)
    found = metrics_of(plan, (scores[:, None], targets), QUIET)
    errors = np.abs(scores - targets)
    assert errors.max() == REACH + 1
    for name, exact in (("RMSE", np.sqrt(np.mean(errors**2))), ("MAE", np.mean(errors))):
        low, high = ends(found.metric(name))
        assert low < exact < high, "three large errors in a thousand leave it uncertain"
    assert not [metric.name for metric in found.metrics if metric.name.endswith(CLIPPED)]


@pytest.mark.parametrize("radius", [None, 1.5])
def test_no_record_scores_above_the_bound_that_errors_are_counted_up_to(tmp_path: Path, radius: float | None) -> None:
    columns = {
        "age": {"type": "numeric", "lower": 0, "upper": 100},
        "ward": {"type": "categorical", "categories": ["a", "b", "c"]},
        "cost": {"type": "numeric", "lower": 0, "upper": 9},
    }
    data = parse_schema({"columns": columns, "intercept": 0.7, "radius": radius}, target="cost")
    table = tmp_path / "clinic.csv"
    table.write_text("age,ward,cost\n" + "".join(f"{age},{ward},1\n" for age in (-5, 0, 40, 100) for ward in "abc"))
    features, random = load_records(table, data).features, np.random.default_rng(0)
    for weights in random.normal(size=(100, data.width)):
        most, largest = float(np.abs(features @ weights).max()), largest_score(data, Squared(), weights)
        assert most <= largest <= data.feature_norm * np.linalg.norm(weights) * (1 + 1e-12)


def test_where_noise_hides_large_errors_the_rmse_of_clipped_ones_stands_in_and_says_so() -> None:
    plan, data = plan_of("Gaussian errors", 1000), drawn("Gaussian errors", 4000)
    rounds = asked_twice(plan, {"clinic": data}, 0.003)
    clip = float(Evaluation().read(plan, rounds[-1].argument).bin_edges["squared"][0])
    found = model_metrics(read_rounds(Evaluation(), plan, rounds))
    shown = metrics.three_digits(clip)
    for name in ("RMSE", "MAE", "R²"):
        assert found.metric(name).value is None
        assert found.metric(name + CLIPPED).low is not None
        assert f"at most {shown}: noise hides how much larger 0.0% to " in found.metric(name + CLIPPED).note
    assert "narrower bounds of the target, more records" in found.metric("RMSE").unknown
    [line] = [line for line in found.sentences() if line.startswith("RMSE")]
    assert line.startswith("RMSE of clipped errors 0.")
    assert "; guessing the mean" in line
    assert found.score == found.metric("R²" + CLIPPED)


def test_a_request_for_an_rmse_brings_what_stands_in_for_it() -> None:
    plan, query = plan_of("Gaussian errors", 1000), Evaluation(figures=("RMSE",))
    rounds = asked_twice(plan, {"clinic": drawn("Gaussian errors", 4000)}, 0.003, query)
    names = {metric.name for metric in evaluation_report(query, plan, rounds).together.metrics}
    assert {"RMSE", "RMSE" + CLIPPED} <= names
    assert not {"MAE", "MAE" + CLIPPED, "R²"} & names


def test_an_r_squared_is_reported_only_where_the_errors_are() -> None:
    """Noise that hides all errors may put the cut far below them: next to the targets' variance they would be none."""
    plan, data = plan_of("Gaussian errors", 1000), drawn("Gaussian errors", 1)
    hidden = 0
    for seed in range(50):
        found = model_metrics(read_rounds(Evaluation(), plan, asked_twice(plan, {"clinic": data}, 10.0, seed=seed)))
        if found.metric("RMSE").value is None:
            hidden += 1
            assert found.metric("R²").value is None
    assert hidden > 25


def test_the_interval_of_an_average_precision_holds_every_order_within_cells() -> None:
    """All records lie in one cell: the order that ranks positives first and the one that ranks them last both fit."""
    cells = CellShares(np.array([0.0, 0.5, 0.0, 0.5]), np.zeros((4, 4)), 10**12)
    found = average_precision(cells)
    last = 1 - math.log(2)  # the mean of a/(a + ½) over a from 0 to ½
    assert found.low == pytest.approx(last, abs=1e-3)
    assert found.high == pytest.approx(1.0, abs=1e-3)
    apart = average_precision(CellShares(np.array([0.5, 0.0, 0.0, 0.5]), np.zeros((4, 4)), 10**12))
    assert apart.low == pytest.approx(1.0, abs=1e-3)


def test_a_ratio_whose_denominator_may_be_nothing_is_unknown() -> None:
    assert ratio_interval(0.01, 0.02, (1e-4, 1.1e-4, 0.0)) is None
    wide = ratio_interval(0.01, 0.02, (1e-4, 1e-4, 0.0))
    assert metrics.bounded_metric("precision", 0.5, wide, least=0.0, most=1.0).value is None
    interval = ratio_interval(0.2, 0.4, (1e-6, 1e-6, 0.0))
    precision = metrics.bounded_metric("precision", 0.5, interval, least=0.0, most=1.0)
    assert precision.sentence() == "precision 0.500, between 0.495 and 0.505"


@pytest.mark.parametrize(
    ("number", "shown"), [(0.0, "0.000"), (0.8234, "0.823"), (0.00226, "0.00226"), (1243.7, "1240"), (12.345, "12.3")]
)
def test_numbers_are_written_with_three_digits_and_money_without_powers_of_ten(number: float, shown: str) -> None:
    assert metrics.three_digits(number) == shown


def test_a_value_beyond_what_it_can_be_does_not_look_precise() -> None:
    """An interval of ±0.1 around 1.09 would leave 0.99 to 1, as if the noise had made the metric more precise."""
    metric = metrics.normal_metric("AUC", 1.09, (0.099 / Z) ** 2, least=0.0, most=1.0)
    assert (metric.value, metric.high) == (1.0, 1.0)
    assert metric.low == pytest.approx(0.901)
    metric = metrics.normal_metric("loss", -0.02, (0.1 / Z) ** 2, least=0.0, most=1.0, precise="ratio")
    assert (metric.value, metric.low) == (None, 0.0), "a loss of 0 with an interval up to 0.1 is not known"
    assert metric.high == pytest.approx(0.1)


def test_a_share_without_noise_has_wilson_s_interval() -> None:
    metric = metrics.share_metric("share", 0.1, 0.0, 100)
    assert (metric.low, metric.high) == pytest.approx((0.05522854, 0.17436566), abs=1e-6)


@pytest.mark.parametrize("precise", ["share", "ratio"])
def test_a_number_whose_interval_is_too_wide_is_never_a_point(precise: metrics.Precise) -> None:
    """Nor does one pass because it lies near a bound, where the interval is clamped."""
    largest = {"share": metrics.REACH, "ratio": metrics.RELATIVE_REACH * 0.9}[precise]
    for value, half, usable in ((0.9, 0.99 * largest, True), (0.9, 1.01 * largest, False), (0.99, 0.3, False)):
        metric = metrics.normal_metric("AUC", value, (half / Z) ** 2, least=0.0, most=1.0, precise=precise)
        assert metric.usable == usable
        low, high = ends(metric)
        if not usable:
            shown = f"between {low:.3f} and {high:.3f}: too wide to use; more records or a larger epsilon"
            assert (metric.value, metric.unknown, metric.sentence()) == (None, shown, f"AUC is {shown}")


@pytest.mark.parametrize("records", [300, 1000])
@pytest.mark.parametrize("design", ["balanced", "strong model", "5 % positives", "weak model"])
def test_all_figures_of_a_classifier_come_from_one_estimate(design: str, records: int) -> None:
    """AUC is the area under the ROC points, recall is one of them, cells add up, and no value is at the end of its
    range unless its interval is narrow."""
    plan, random = plan_of(design, records), np.random.default_rng(3)
    for _ in range(5):
        found, _ = evaluate(plan, {terms.name: DESIGNS[design].draw(random, records) for terms in plan.silos}, random)
        by_name = {metric.name: metric for metric in found.metrics}
        for metric in found.metrics:
            if metric.value in (0.0, 1.0):
                low, high = ends(metric)
                assert high - low <= 2 * metrics.REACH
        known = [cell.share.value for cell in found.confusion if cell.share.value is not None]
        assert len(known) < 4 or sum(known) == pytest.approx(1.0)
        right = [cell.share.value for cell in found.confusion if cell.actual == cell.predicted]
        assert None in right or sum(right) == pytest.approx(by_name["accuracy"].value)  # type: ignore[arg-type]
        if not found.roc:
            continue
        points = [(point.false_positive_rate.value, point.true_positive_rate.value) for point in found.roc]
        across, upward = np.array(sorted([(0.0, 0.0), *points, (1.0, 1.0)]), dtype=np.float64).T
        assert by_name["AUC"].value == pytest.approx(np.trapezoid(upward, across), abs=1e-9)
        middle = next(point for point in found.roc if point.threshold == 0.0)
        assert middle.true_positive_rate.value == pytest.approx(by_name["recall"].value)


def answers_of(plan: Plan, shares: FloatArray, sigma: float, random: np.random.Generator) -> EvaluationAnswers:
    """Return answers about 4,000 records of two classes on either side of the threshold, in two rounds."""
    records = 4000
    counted = random.multinomial(records, shares) / records
    signs = np.array([[1, -1, -1], [-1, -1, 1], [-1, 1, -1], [1, 1, 1]]) * [1, MARGIN, MARGIN]
    rounds = [
        {"confusion": BlockMeans(counted @ signs + noise * random.normal(size=3), noise, np.zeros(0))}
        for noise in (sigma, 1.3 * sigma)
    ]
    return EvaluationAnswers(plan.data, plan.loss, records, rounds, REACH)


@pytest.mark.parametrize("accuracy", [0.58, 0.8, 0.9773])
@pytest.mark.parametrize("sigma", [0.007, 0.03])
def test_accuracy_is_covered_in_95_of_100_runs(accuracy: float, sigma: float) -> None:
    """The estimate alone, 4,000 times: at a coverage of 95 % the share is below 93 % once in 10⁸ (5.8 deviations)."""
    plan, random = plan_of("balanced", 1000), np.random.default_rng(5)
    shares = np.array([accuracy, 1 - accuracy, 1 - accuracy, accuracy]) / 2
    covered = 0
    for _ in range(4000):
        low, high = ends(binary_metrics(answers_of(plan, shares, sigma, random))[0])
        covered += low <= accuracy <= high
    assert covered >= 0.93 * 4000


def test_the_usual_figures_are_those_that_the_noise_leaves_usable() -> None:
    logistic, softmax = Logistic(), Softmax(classes=3)
    assert chosen_figures(logistic, None, 0.01) == ("accuracy", "AUC")
    assert chosen_figures(logistic, None, 0.03) == ("accuracy",)
    assert chosen_figures(softmax, None, 0.01) == ("accuracy", "log loss")
    assert chosen_figures(Hinge(), None, 0.01) == ("accuracy", "AUC")
    assert chosen_figures(Squared(), None, 0.01) == ("RMSE", "MAE")
    assert chosen_figures(Pinball(quantile=0.9), None, 0.01) == ("RMSE", "MAE", "share of targets below the prediction")
    assert chosen_figures(Squared(), ["DEFAULT", "r2"], 0.01) == ("RMSE", "MAE", "R²")
    assert chosen_figures(logistic, ["recall", "All"], 0.01) is None
    with pytest.raises(
        PlanError, match="There is no figure 'auc' of a model with this target: choose from accuracy, con"
    ):
        chosen_figures(softmax, ["AUC"], 0.01)
    with pytest.raises(PlanError, match="No figure is named"):
        chosen_figures(logistic, [], 0.01)
