"""How good a fit is, told privately by rows that did not train: `score_` and `evaluation_`."""

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import ringfence
from ringfence.accounting import gaussian_shift
from ringfence.accounting.profiles import gaussian_epsilon
from ringfence.errors import ApprovalError, EstimatorError, PlanError
from ringfence.protocol import FloatArray
from ringfence.protocol.plan import sections
from ringfence.silo.ledger.summary import summarise
from tests.estimators import test_privacy

RANDOM = np.random.default_rng(5)
X = RANDOM.uniform(-1, 1, (2000, 2))
Y = np.where(X @ [2.0, 1.0] + 0.3 * RANDOM.normal(size=2000) > 0, "yes", "no")
COST = X @ [2.0, 1.0] + 0.3 * RANDOM.normal(size=2000)
HELD_OUT = sections.members("held-out", 2000, 0.2)


classifier = partial(test_privacy.classifier, epsilon=15.0, delta=None, max_rounds=10)


def regressor(kind: Any = ringfence.FederatedLinearRegression, **changes: Any) -> Any:
    return kind(**{"epsilon": 15.0, "bounds": (-1, 1), "target_bounds": (-4, 4), "max_rounds": 20, **changes})


def epsilon_of(times: float, epsilon: float = 1.0, delta: float = 1e-6) -> float:
    """What Gaussian releases of that many squared shifts come to."""
    return gaussian_epsilon(math.sqrt(times) * gaussian_shift(epsilon, delta), delta)


def interval(fitted: Any, metric: str) -> tuple[float, float, float]:
    """A metric of the held-out rows: the lower end of its interval, the value, and the upper end."""
    found = fitted.evaluation_.together.metric(metric)
    return found.low, found.value, found.high


def test_a_classifier_s_score_is_the_accuracy_of_the_rows_that_did_not_train() -> None:
    fitted = classifier().fit(X, Y)
    exact = fitted.score(X[HELD_OUT], Y[HELD_OUT])
    low, value, high = interval(fitted, "accuracy")
    assert value == fitted.score_ == pytest.approx(exact, abs=0.02)  # the noise's deviation is below 0.0014
    assert low < value < high
    assert fitted.evaluation_.together.records == len(HELD_OUT) == 400
    assert fitted.model_.evaluation == fitted.evaluation_
    assert "records, with 95% intervals; positive class: 'yes'\n  accuracy 0." in str(fitted.evaluation_)
    assert "; guessing the larger class gives 0.5" in str(fitted.evaluation_)


@pytest.mark.parametrize(
    "kind",
    [ringfence.FederatedLinearRegression, ringfence.FederatedHuberRegressor, ringfence.FederatedQuantileRegressor],
)
def test_a_regressor_s_score_is_its_r_squared_of_clipped_errors_where_noise_hides_larger_ones(kind: Any) -> None:
    fitted = regressor(kind).fit(X, COST)
    assert fitted.evaluation_.together.metric("R²").value is None
    low, value, high = interval(fitted, "R² of clipped errors")
    assert low <= fitted.score(X[HELD_OUT], COST[HELD_OUT]) <= high
    assert 0.8 < fitted.score_ == value < 1.0


def test_a_model_of_a_quantile_tells_how_many_targets_lie_below_it() -> None:
    fitted = regressor(ringfence.FederatedQuantileRegressor, quantile=0.9).fit(X, COST)
    (line,) = (line for line in fitted.evaluation_.together.sentences() if "below the prediction" in line)
    below = float(np.mean(COST[HELD_OUT] <= fitted.predict(X[HELD_OUT])))
    text = fitted.evaluation_.together.metric("share of targets below the prediction")
    assert text.value == pytest.approx(below, abs=0.02)
    assert line.endswith("(the model aims at 0.9)")


@pytest.mark.usefixtures("repeated_noise")
def test_what_is_held_out_does_not_train_and_what_trains_does_not_score() -> None:
    flipped = Y.copy()
    flipped[HELD_OUT] = np.where(Y[HELD_OUT] == "yes", "no", "yes")
    fitted = classifier(cap=(100, 1e-5), unusual_budget=True).fit(X, Y)
    otherwise = classifier(cap=(100, 1e-5), unusual_budget=True).fit(X, flipped)
    assert np.array_equal(fitted.coef_, otherwise.coef_)
    assert otherwise.score_ == pytest.approx(1 - fitted.score_, abs=0.02)


@pytest.mark.parametrize("share", [0, None])
def test_without_a_held_out_share_all_rows_train_and_a_former_evaluation_is_forgotten(share: float | None) -> None:
    model = classifier(cap=(100, 1e-5), unusual_budget=True).fit(X, Y)
    assert (model.plan_.held_out, hasattr(model, "score_")) == (0.2, True)
    model.set_params(held_out=share).fit(X, Y)
    assert model.plan_.stages[-1].section is None
    assert model.plan_.silos[0].stages[0].batch == 2000
    assert not hasattr(model, "score_")
    assert not hasattr(model, "evaluation_")
    assert model.model_.evaluation is None


def test_a_row_pays_for_the_dearer_of_training_and_evaluation_and_for_both_if_it_moves() -> None:
    """In another order a row has another place: some rows train in both fits, some in one, and none pays more."""
    model = classifier(epsilon=1.0, delta=1e-6)
    for times, rows in enumerate(
        (np.arange(2000), np.arange(2000), HELD_OUT), 1
    ):  # a fifth of the last evaluates again
        total = model.fit(X[rows], Y[rows]).privacy_.silos["all"].total
        assert total.epsilon == pytest.approx(epsilon_of(times), rel=1e-4)


def test_copies_pay_for_what_their_own_sections_released() -> None:
    """A row stands twice where it trains and once where it is held out: twice the shift, and once. Others pay once."""
    rows = X.copy()
    rows[[*sections.members("training", 2000, 0.2)[-2:], HELD_OUT[-1]]] = 0.5
    fitted = classifier(epsilon=1.0, delta=1e-6).fit(rows, Y)
    assert fitted.privacy_.silos["all"].total.epsilon == pytest.approx(epsilon_of(2**2 + 1), rel=1e-4)


def test_equal_rows_that_are_different_records_each_pay_for_one_section() -> None:
    categories = RANDOM.integers(0, 2, (400, 2)).astype(np.float64)
    y = np.where(categories[:, 0] > 0, "yes", "no")
    model = classifier(epsilon=1.0, delta=1e-6, equal_rows="records")
    for times, order in enumerate((1, 1, -1), 1):  # in the same order the same rows are held out
        total = model.fit(categories[::order], y[::order]).privacy_.silos["all"].total
        assert total.epsilon == pytest.approx(epsilon_of(times), rel=1e-4)


def test_persons_are_held_out_with_all_their_rows() -> None:
    persons = np.repeat(np.arange(500), 4)
    fitted = classifier(person_rule="mean").fit(X, Y, persons=persons)
    held_out = np.isin(persons, sections.members("held-out", 500, 0.2))
    assert fitted.evaluation_.unit == "person"
    assert fitted.evaluation_.together.records == 100
    assert fitted.score_ == pytest.approx(fitted.score(X[held_out], Y[held_out]), abs=0.08)
    again = classifier(person_rule="mean").fit(X, Y, persons=persons).privacy_.silos["all"].total
    delta = again.delta
    assert again.epsilon == pytest.approx(epsilon_of(2, 15.0, delta), rel=1e-3)


def test_silos_each_have_figures_of_their_own() -> None:
    fitted = classifier().fit(X, Y, silos=np.arange(2000) % 3)
    assert set(fitted.evaluation_.silos) == {"0", "1", "2"}
    assert all(own.metric("accuracy").low is not None for own in fitted.evaluation_.silos.values())


@pytest.mark.parametrize("rows", [1, 2])
def test_too_few_rows_to_hold_some_out_are_refused_before_anything_is_spent(rows: int) -> None:
    labels = ["large"] * (2000 - rows) + ["small"] * rows
    with pytest.raises(EstimatorError, match=rf"'small' has {rows} record.*held_out=0 lets all of them train"):
        classifier(epsilon=1.0).fit(X, Y, silos=labels)
    fitted = classifier(epsilon=1.0, delta=1e-6, held_out=0).fit(X, Y, silos=labels)
    assert fitted.privacy_.silos["small"].total.epsilon == pytest.approx(1.0, rel=1e-4), "nothing was charged before"


@pytest.mark.parametrize(
    "model", [classifier(epsilon=1.0), regressor(epsilon=1.0, anyway=True)], ids=["classes", "numbers"]
)
def test_a_silo_of_three_records_has_a_defined_answer(model: Any) -> None:
    """One of them is held out; the noise hides it, so that no number stands without an interval.

    Its deviation is 8.3 times what the record can move a cut squared error by, and errors beyond the cut count three
    times at most. So an interval of 95 % leaves an end of what is possible out with probability Φ(1/8.3 − 1.96) +
    Φ(3/8.3 − 1.96) < 0.09 at most, and in all of six silos with less than 1e-6.
    """
    y: NDArray[Any] | FloatArray = Y if hasattr(model, "classes") else COST
    fitted = model.fit(X[:18], y[:18], silos=np.repeat(list("abcdef"), 3))
    silos = fitted.evaluation_.silos.values()
    assert any("is unknown: " in own.score.sentence() for own in silos)
    assert math.isnan(fitted.score_) == (fitted.evaluation_.together.score.value is None)
    for figure in (figure for own in (fitted.evaluation_.together, *silos) for figure in own.metrics):
        assert (figure.value is None) == bool(figure.unknown)
        assert figure.usable <= (figure.low is not None)


def test_one_class_alone_among_the_held_out_rows_has_an_accuracy_and_no_auc() -> None:
    y = Y.copy()
    y[HELD_OUT] = "yes"
    fitted = classifier().fit(X, y)
    assert fitted.score_ == pytest.approx(fitted.score(X[HELD_OUT], y[HELD_OUT]), abs=0.02)
    assert "AUC is unknown" in str(fitted.evaluation_)


@pytest.mark.parametrize("share", [1.0, -0.1, 0.255])
def test_a_share_that_divides_nothing_is_refused(share: float) -> None:
    with pytest.raises(PlanError, match=r"held-out share must be between 0 and 0\.99"):
        classifier(held_out=share).fit(X, Y)


def test_another_share_is_another_setting() -> None:
    classifier(epsilon=1.0).fit(X, Y)
    with pytest.raises(ApprovalError, match="with other settings"):
        classifier(epsilon=1.0, held_out=0.5).fit(X, Y)


def test_a_ledger_counts_rows_in_another_order_as_divided_anew(tmp_path: Path) -> None:
    """It knows no row: rows that trained may now be held out, and pay for both at most."""
    model = classifier(epsilon=1.0, delta=1e-6, ledgers=tmp_path, cap=(20, 1e-6))
    used = []
    for order in (slice(None), slice(None), slice(None, None, -1)):
        model.fit(X[order], Y[order])
        used.append(summarise(tmp_path / "all.ledger")["costs"][0]["used"])
    assert used == pytest.approx([epsilon_of(1), epsilon_of(2), epsilon_of(3)], rel=1e-4)
    assert "a run was begun with it" in " ".join(str(model.privacy_).split())


def test_a_summary_asks_every_row_and_each_pays_for_its_own_section_besides() -> None:
    model = classifier(epsilon=1.0, delta=1e-6, max_rounds=None).fit(X, Y)
    text = model.summary(X, Y, epsilon=1.0, delta=1e-6)
    assert text.statement.silos["all"].total.epsilon == pytest.approx(epsilon_of(2), rel=1e-3)
