"""A silo's own weights: the least of its loss and the pull, at the strength that cross-validation finds best."""

import math

import numpy as np
import pytest

from ringfence.errors import RecordsError
from ringfence.model import personal_fit
from ringfence.model.personal_fit import ALONE, FEDERATION, OWN, STRENGTHS, OwnRows, predict_unseen, tune
from ringfence.protocol import FloatArray, Loss, Pinball, Softmax, Squared
from ringfence.protocol.losses import LOSSES
from ringfence.protocol.losses.targets import values_of
from ringfence.protocol.plan import sections

WIDTH = 4


def rows_of(loss: Loss, records: int = 60, *, seed: int = 1) -> OwnRows:
    """Records with a constant as their last feature, and targets of the loss's kind."""
    random = np.random.default_rng(seed)
    features = np.concatenate([random.uniform(-1, 1, (records, WIDTH - 1)), np.ones((records, 1))], axis=1)
    score = features @ np.array([0.5, -0.3, 0.0, 0.1]) + 0.2 * random.standard_normal(records)
    targets = {
        "number": np.exp(score) if loss.link == "log" else score,
        "label": np.where(score > 0, 1.0, -1.0),
        "class": np.digitize(score, [-0.2, 0.2]).astype(float),
        "numbers": np.column_stack([score, 1 - score, np.zeros(records), np.ones(records)]),
        "time": np.column_stack([np.abs(score), random.integers(0, 2, records), np.zeros(records), np.ones(records)]),
    }
    return OwnRows.one_each(features, targets[loss.target_kind])


def objective(loss: Loss, rows: OwnRows, center: FloatArray, strength: float, weights: FloatArray) -> float:
    """What the weights are to make least, as the module's own words have it."""
    pull = strength * np.mean(rows.features**2)
    values = values_of(loss, rows.features @ loss.matrix(weights, WIDTH), rows.targets)
    return float(np.mean(values) + pull / 2 * np.sum((weights - center) ** 2))


def every_loss() -> list[Loss]:
    numbers = {"classes": 3, "targets": 2, "quantile": 0.3, "margin": 0.1, "threshold": 0.1, "dispersion": 1.0}
    fields = {**numbers, "cuts": (0.2, 0.4, 0.6, 0.8)}
    own = [(kind, {name: fields[name] for name in fields.keys() & kind.model_fields}) for kind in LOSSES.values()]
    return [kind.model_validate(chosen) for kind, chosen in own]


def test_of_a_squared_loss_the_weights_are_those_of_the_normal_equations() -> None:
    rows, center = rows_of(Squared()), np.full(WIDTH, 0.3)
    tuned = tune(Squared(), rows, center)
    pull = tuned.strength * np.mean(rows.features**2)
    gram = rows.features.T @ rows.features / 60 + pull * np.eye(WIDTH)
    slope = rows.features.T @ (rows.targets - rows.features @ center) / 60
    # The solver stops where the loss falls by less than 1e-11 of it: at a curvature above 0.01, 1e-5 from the least.
    assert np.allclose(tuned.weights, center + np.linalg.solve(gram, slope), atol=1e-5)


@pytest.mark.parametrize("loss", every_loss(), ids=lambda loss: loss.name)
def test_no_step_away_from_the_weights_lowers_loss_and_pull_together(loss: Loss) -> None:
    rows, center = rows_of(loss), np.full(loss.dimension(WIDTH), 0.1)
    tuned = tune(loss, rows, center)
    smooth = personal_fit._without_kinks(loss, rows)
    if math.isinf(tuned.strength):
        assert np.array_equal(tuned.weights, center)
        return
    assert np.array_equal(tune(loss, rows, center).weights, tuned.weights), "the same records, the same weights"
    found = objective(smooth, rows, center, tuned.strength, tuned.weights)
    random = np.random.default_rng(2)
    for _ in range(50):
        step = 1e-2 * random.standard_normal(center.shape)
        assert objective(smooth, rows, center, tuned.strength, tuned.weights + step) > found


def test_a_federation_that_is_right_is_left_as_it_is_and_one_that_is_wrong_is_left() -> None:
    """Records without noise of their own: any pull to wrong weights costs, and any departure from right ones too."""
    right = np.array([0.5, -0.3, 0.2, 0.1])
    random = np.random.default_rng(3)
    features = random.uniform(-1, 1, (40, WIDTH))
    rows = OwnRows.one_each(features, features @ right)
    assert tune(Squared(), rows, right).strength == math.inf
    wrong = tune(Squared(), rows, right + 5.0)
    assert wrong.strength == min(STRENGTHS)
    assert np.allclose(wrong.weights, right, atol=1e-3)


def test_a_loss_in_cross_validation_is_of_fits_that_did_not_see_the_record() -> None:
    rows, center = rows_of(Squared(), 20), np.zeros(WIDTH)
    tuned = tune(Squared(), rows, center)
    fold, place = sections.folds(20, personal_fit.FOLDS), STRENGTHS.index(0.1)
    by_hand = 0.0
    for number in range(personal_fit.FOLDS):
        seen = rows.where(fold != number)
        pull = 0.1 * np.mean(seen.features**2)
        gram = seen.features.T @ seen.features / len(seen.targets) + pull * np.eye(WIDTH)
        weights = np.linalg.solve(gram, seen.features.T @ seen.targets / len(seen.targets))
        unseen = rows.where(fold == number)
        by_hand += 0.5 * np.sum((unseen.features @ weights - unseen.targets) ** 2)
    assert tuned.losses[place] == pytest.approx(by_hand / 20, rel=1e-6)


def test_rows_of_one_person_are_in_one_fold_and_count_as_one() -> None:
    rows = rows_of(Squared(), 40)
    doubled = OwnRows(
        np.repeat(rows.features, 2, axis=0), np.repeat(rows.targets, 2), np.repeat(np.arange(40), 2), np.full(80, 0.5)
    )
    one, other = tune(Squared(), rows, np.zeros(WIDTH)), tune(Squared(), doubled, np.zeros(WIDTH))
    assert one.strength == other.strength
    assert np.allclose(one.losses, other.losses)
    assert np.allclose(one.weights, other.weights, atol=1e-5)


def test_only_the_measured_rows_are_predicted_and_a_changed_one_moves_no_prediction_of_its_own() -> None:
    rows, start = rows_of(Squared(), 60), np.full(WIDTH, 0.2)
    measured = np.arange(60) % 3 == 0
    found, _ = predict_unseen(Squared(), rows, start, measured)
    assert set(found) == {ALONE, FEDERATION, OWN}
    assert all(len(scores) == 20 for scores in found.values())
    targets = rows.targets.copy()
    targets[0] += 10.0  # the first measured row's
    moved, _ = predict_unseen(Squared(), OwnRows.one_each(rows.features, targets), start, measured)
    for name in (ALONE, FEDERATION, OWN):
        assert moved[name][0] == found[name][0]
    assert not np.array_equal(moved[OWN][1:], found[OWN][1:])
    assert np.array_equal(found[FEDERATION][:, 0], rows.features[measured] @ start)


@pytest.mark.parametrize("loss", [Softmax(classes=3), Pinball(quantile=0.9)], ids=lambda loss: loss.name)
def test_losses_with_several_outputs_or_with_kinks_are_compared_too(loss: Loss) -> None:
    _, losses = predict_unseen(loss, rows_of(loss), np.zeros(loss.dimension(WIDTH)), np.ones(60, dtype=bool))
    assert all(own.shape == (60,) for own in losses.values())
    assert np.mean(losses[OWN]) < np.mean(losses[FEDERATION])


def test_too_few_records_are_refused_with_the_remedy_and_rows_show_no_value() -> None:
    with pytest.raises(RecordsError, match="use the federation's model as it is"):
        personal_fit.require_enough(rows_of(Squared(), 9))
    with pytest.raises(RecordsError, match="larger --held-out"):
        personal_fit.require_comparable(rows_of(Squared(), 60), np.arange(60) < 9)
    with pytest.raises(RecordsError, match="wait for more records"):
        personal_fit.require_comparable(rows_of(Squared(), 19), np.ones(19, dtype=bool))
    assert repr(rows_of(Squared())) == "<60 rows, values hidden>"
