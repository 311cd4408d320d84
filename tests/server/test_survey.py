"""What a survey lets the server decide: directions above the noise, a start, and steps that noise allows."""

import math

import numpy as np
import pytest
from scipy.stats import chi2

from ringfence import Member, PlanRequest, make_plan
from ringfence.protocol import FloatArray, Gamma, LogLink, NegativeBinomial, Plan, PoissonLoss, parse_schema
from ringfence.server.algorithms import survey
from ringfence.server.algorithms.whitening import MainDirection, main_direction, principal_axes, prior_principal_axes
from ringfence.simulation import trials

FALSE_ALARM = 1e-6
NUMBER = {"type": "numeric", "lower": -1.0, "upper": 1.0}
SCHEMA = parse_schema({"columns": dict.fromkeys(["y", *(f"x{i}" for i in range(7))], NUMBER)}, target="y")


def plan(epsilon: float = 1.0, records: int = 2000, **asked: object) -> Plan:
    members = [Member(name, records, epsilon, 1e-6) for name in ("a", "b", "c")]
    return make_plan(SCHEMA, members, PlanRequest(algorithm="preconditioned", curves=0, **asked))  # type: ignore[arg-type]


def symmetric_noise(random: np.random.Generator, width: int, noise: float) -> FloatArray:
    upper = np.triu(random.normal(size=(width, width)) * noise / math.sqrt(2), 1)
    return upper + upper.T + np.diag(random.normal(size=width) * noise)


def test_without_noise_the_directions_are_those_of_the_matrix_and_whitening_makes_them_alike() -> None:
    random = np.random.default_rng(1)
    root = random.normal(size=(6, 6))
    matrix = root @ root.T
    found = principal_axes(np.eye(6), matrix, 1e-12)
    assert np.allclose(found.axes @ matrix @ found.axes.T, np.diag(found.moments), atol=1e-6)
    whitened = found.whitened(0.0)
    assert np.allclose(whitened.axes.turned(whitened.axes.turned(matrix).T), np.eye(6), atol=1e-6)
    assert whitened.norm == pytest.approx(math.sqrt(6))


def test_of_noise_alone_no_direction_stands_out_by_much() -> None:
    """Above the edge, by chance, lie few of many eigenvalues, and barely: their sizes are at most twice the edge."""
    random = np.random.default_rng(2)
    for _ in range(20):
        found = principal_axes(np.eye(50), symmetric_noise(random, 50, 1.0), 1.0)
        # Tails of the largest eigenvalue fall like exp(−(2/3)·(50^(1/6)·x)^(3/2)…): twice the edge is out of reach.
        assert np.max(found.moments) < 2 * found.edge
        assert np.sum(found.moments > found.edge / 2) <= 5


def test_a_direction_well_above_the_noise_is_found_with_its_size() -> None:
    random, width, noise = np.random.default_rng(3), 40, 0.01
    direction = random.normal(size=width)
    direction /= np.linalg.norm(direction)
    found = principal_axes(np.eye(width), np.outer(direction, direction) + symmetric_noise(random, width, noise), noise)
    # Its size errs by noise of about 0.01 along it, and by (e/2)²/θ ≈ 0.002 that is taken off: a tenth is ten of those.
    assert np.max(found.moments) == pytest.approx(1.0, abs=0.1)
    assert abs(found.axes[np.argmax(found.moments)] @ direction) > 0.99


MIXED = {"a": NUMBER, "c": {"type": "categorical", "categories": ["k", "l", "m"]}, "y": NUMBER}


def test_the_prior_of_second_moments_is_that_of_uniformly_distributed_records() -> None:
    found = prior_principal_axes(parse_schema({"columns": MIXED}, target="y"), 0.5)
    root = np.linalg.inv(found.axes)
    third, none = 1 / 3, 0.0  # a number in [-1, 1]; one of three categories, alone and beside the constant
    expected = [
        [third, none, none, none, none],
        [none, third, none, none, third],
        [none, none, third, none, third],
        [none, none, none, third, third],
        [none, third, third, third, 1.0],
    ]
    assert np.allclose(root @ np.diag(found.moments) @ root.T, expected)
    assert found.edge == 0.5


def test_a_radius_shortens_the_features_that_are_expected_and_not_the_constant() -> None:
    for columns, radius in ((MIXED, 0.1), (dict.fromkeys("ay", NUMBER), 100.0)):
        data = parse_schema({"columns": columns, "radius": radius}, target="y")
        root = np.linalg.inv(prior_principal_axes(data, 0.0).axes)
        sizes = np.diag(root @ np.diag(prior_principal_axes(data, 0.0).moments) @ root.T)
        assert sizes[-1] == pytest.approx(1.0)
        assert np.sum(sizes[:-1]) == pytest.approx(min(radius**2, 1 / 3 if radius > 1 else 4 / 3))


def test_the_prior_of_a_target_lies_in_the_middle_with_the_variance_of_its_bounds_or_scores() -> None:
    number = survey.prior_of_target(plan())
    assert number.centre.tolist() == [0.0]
    assert number.spread == pytest.approx(1 / 3)
    assert number.uncertainty + number.spread**2 == pytest.approx(1 / 3)  # evenly spread over [-1, 1]
    labels = parse_schema({"columns": MIXED}, target="c")
    three = survey.prior_of_target(make_plan(labels, [Member("a", 500, 1.0, 1e-6)], PlanRequest()))
    assert (three.centre.tolist(), three.uncertainty, three.imbalance) == ([0.0] * 3, survey.CLASS_VARIANCE, 0.0)
    two = parse_schema({"columns": {**MIXED, "c": {"type": "categorical", "categories": ["k", "l"]}}}, target="c")
    odds = survey.prior_of_target(make_plan(two, [Member("a", 500, 1.0, 1e-6)], PlanRequest()))
    assert (odds.centre.tolist(), odds.uncertainty) == ([0.0], survey.SCORE_VARIANCE)
    unsure = survey.estimate_from_class_shares(np.array([0.5, 0.5]), 1e3)  # what shares under much noise come to
    assert unsure.uncertainty == pytest.approx(odds.uncertainty, rel=1e-3)
    assert 0 < odds.imbalance < 1 / 8  # |1 − 2p|·min(p, 1 − p) is 1/8 at most


def test_the_nearest_shares_are_not_negative_and_add_up_to_one() -> None:
    random = np.random.default_rng(4)
    for _ in range(50):
        shares = random.normal(scale=2.0, size=9)
        likely = survey.project_onto_simplex(shares)
        assert likely.min() >= 0
        assert likely.sum() == pytest.approx(1.0)
        other = random.dirichlet(np.ones(9))
        assert np.linalg.norm(likely - shares) <= np.linalg.norm(other - shares) + 1e-12
    assert np.allclose(survey.project_onto_simplex(np.array([0.2, 0.3, 0.5])), [0.2, 0.3, 0.5])


def test_a_number_s_mean_and_deviation_are_estimated_from_a_histogram() -> None:
    values = np.random.default_rng(5).normal(0.2, 0.1, 100_000)
    edges = np.linspace(-0.5, 0.5, 17)
    target = survey.estimate_from_histogram(np.histogram(values, edges)[0] / len(values), edges, 1e-9)
    assert target.centre[0] == pytest.approx(0.2, abs=0.01)
    assert target.spread == pytest.approx(0.1, rel=0.2)
    hidden = survey.estimate_from_histogram(np.full(16, 1 / 16), edges, 10.0)
    assert hidden.uncertainty == pytest.approx(0.25**2)


def test_log_odds_of_classes_shrink_towards_0_with_the_noise() -> None:
    sure, unsure = (survey.estimate_from_class_shares(np.array([0.9, 0.1]), noise) for noise in (1e-6, 0.1))
    assert sure.centre[0] == pytest.approx(-math.log(9), rel=1e-3)
    assert abs(unsure.centre[0]) < abs(sure.centre[0])
    assert sure.uncertainty < 1e-6 < unsure.uncertainty < survey.SCORE_VARIANCE
    assert survey.estimate_from_class_shares(np.array([0.5, 0.5]), 1e-6).imbalance == pytest.approx(0.0)
    three = survey.estimate_from_class_shares(np.array([0.5, 0.25, 0.25]), 1e-9)
    assert three.centre.sum() == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("momentum", [0.0, 0.5])
@pytest.mark.parametrize("averaged", [1, 4])
def test_what_descent_leaves_and_gathers_is_what_simulated_descents_leave_and_gather(
    averaged: int, momentum: float
) -> None:
    """The spread of 4,000 descents under noise is within what χ² allows, at one false alarm in a million."""
    curvatures, step, rounds, runs = np.array([0.02, 0.3, 1.0]), 0.7, 9, 4000
    left, gathered = survey.descent_errors(curvatures, step, momentum, rounds, averaged)
    random = np.random.default_rng(6)
    point, speed = np.ones((runs, 3)), np.zeros((runs, 3))
    exact, velocity = np.ones(3), np.zeros(3)
    points, exactly = [], []
    for _ in range(rounds):
        speed = momentum * speed - step * (curvatures * point + random.normal(size=(runs, 3)))
        point = point + speed
        velocity = momentum * velocity - step * curvatures * exact
        exact = exact + velocity
        points.append(point)
        exactly.append(exact)
    model: FloatArray = np.mean(points[-averaged:], axis=0)
    low, high = (float(chi2.ppf(level, runs - 1)) for level in (FALSE_ALARM / 6, 1 - FALSE_ALARM / 6))
    ratio: FloatArray = (runs - 1) * model.var(axis=0, ddof=1) / gathered**2
    assert np.all((low < ratio) & (ratio < high))
    assert np.allclose(left, np.mean(exactly[-averaged:], axis=0))


def test_more_budget_never_cuts_more() -> None:
    def unit(epsilon: float) -> float:
        found = principal_axes(np.eye(8), np.eye(8) / 8, 1e-3)
        target = survey.TargetEstimate(np.array([0.1]), 1e-4, 0.3)
        axes, _, _ = survey.choose_descent(plan(epsilon), found, target, 0.5)
        return float(1 / np.linalg.norm(axes.back(np.eye(8)[:, 0])))

    units = [unit(epsilon) for epsilon in (0.1, 0.3, 1.0, 3.0, 10.0)]
    assert units == sorted(units)
    assert units[-1] > 2 * units[0]


def test_a_survey_takes_its_share_of_the_budget_and_training_the_rest() -> None:
    made = plan()
    first, training = made.stages
    assert (first.query.name, first.rounds) == ("feature-moments", 2)
    assert (training.query.name, training.rounds) == ("preconditioned-gradient", 12)
    terms = made.silos[0]
    shifts = [
        stage.rounds * (stage.query.sensitivity(made, own.batch) / own.sigma) ** 2
        for stage, own in zip(made.stages, terms.stages, strict=True)
    ]
    assert shifts[0] / sum(shifts) == pytest.approx(0.2, rel=1e-3)


LOG_LINKS = {
    "poisson": (PoissonLoss(zero=-1.0), 1.0),
    "gamma": (Gamma(zero=-1.0), 1 / 0.4),
    "negative-binomial": (NegativeBinomial(zero=-1.0, dispersion=0.5), 1 / 1.2),
}


@pytest.mark.parametrize("name", LOG_LINKS)
def test_with_a_log_link_mean_and_deviation_are_converted_to_scores(name: str) -> None:
    """A mean of 0.4 above the scale's zero, −1, with a deviation of 0.2, errs by 0.04."""
    loss, slope = LOG_LINKS[name]
    number = survey.TargetEstimate(np.array([-0.6]), 0.04**2, 0.2)
    converted = survey.in_score_units(log_linked(loss), number)
    assert converted.centre == pytest.approx(math.log(0.4))
    assert converted.spread == pytest.approx(0.5)
    assert converted.uncertainty == pytest.approx(0.1**2)
    assert converted.curvature == pytest.approx(0.4 * slope)
    scores, targets = np.array([[math.log(0.4)]]), np.array([-0.45])
    assert loss.residuals(scores, targets)[0, 0] == pytest.approx(slope * (0.4 - 0.55))
    nudged = [loss.residuals(scores + step, np.array([-0.6]))[0, 0] for step in (1e-6, -1e-6)]
    assert (nudged[0] - nudged[1]) / 2e-6 == pytest.approx(converted.curvature, rel=1e-6)


def test_descent_by_a_log_link_is_that_of_least_squares_in_units_of_its_curvature() -> None:
    """Poisson's at a mean of 1 is curved as gamma's, and both as errors in units of the mean: one decision for both."""
    number = survey.TargetEstimate(np.array([0.0]), 0.0, 0.2)
    found = principal_axes(np.eye(8), np.diag(np.linspace(0.1, 1.0, 8)), 1e-3)
    poisson, gamma = (
        survey.choose_descent(log_linked(LOG_LINKS[name][0]), found, number, 0.5) for name in ("poisson", "gamma")
    )
    np.testing.assert_allclose(poisson[0].packed(), gamma[0].packed())
    assert poisson[1] == pytest.approx(gamma[1])
    assert poisson[2][-1] == gamma[2][-1] == 0.0  # the logarithm of 1


def test_nobody_knows_offsets_so_that_the_start_errs_by_as_much_as_their_range_lets_it() -> None:
    columns = {"x": NUMBER, "y": NUMBER | {"lower": 0.0}, "years": NUMBER | {"lower": 1.0, "upper": math.e**2}}
    schema = parse_schema({"columns": columns, "exposure": "years"}, target="y")
    asked = make_plan(schema, [Member("a", 4000, 1.0, 1e-6)], PlanRequest(algorithm="preconditioned", loss="poisson"))
    converted = survey.in_score_units(asked, survey.TargetEstimate(np.array([0.0]), 0.0, 0.2))
    assert converted.uncertainty == pytest.approx(1 / 3)  # logarithms are spread evenly over ±1


def log_linked(loss: LogLink) -> Plan:
    columns = {name: column.model_dump(exclude_none=True) for name, column in SCHEMA.columns.items()}
    schema = parse_schema({"columns": columns | {"y": NUMBER | {"lower": 0.5, "upper": 2.5}}}, target="y")
    made = make_plan(schema, [Member("a", 4000, 1.0, 1e-6)], PlanRequest(algorithm="preconditioned", loss=loss.name))
    assert made.training is not None
    return made.model_copy(update={"training": made.training.model_copy(update={"loss": loss})})


def test_the_mean_of_many_features_is_found_beneath_its_noise_with_its_length_and_what_is_left_for_others() -> None:
    """Noise of s in 2,000 numbers: the square's error is about 2·|m|·s + √(2d)·s², .003 here, and 6 of these .02."""
    random, width, noise = np.random.default_rng(3), 2000, 3e-3
    mean = np.full(width, math.sqrt(0.3 / width))
    found = main_direction(mean + noise * random.standard_normal(width), 0.5, noise=noise, edge=0.1, norm=2.0)
    assert found.moment == pytest.approx(0.3, abs=0.02)
    assert found.others * (width - 1) == pytest.approx(0.2, abs=0.02)
    assert np.linalg.norm(found.direction) == pytest.approx(1.0)
    assert found.direction @ mean / np.linalg.norm(mean) == pytest.approx(math.sqrt(0.3 / 0.318), abs=0.01)


def test_along_the_axes_of_a_main_direction_second_moments_are_what_they_are_said_to_be() -> None:
    found = MainDirection(np.array([0.6, 0.8, 0.0]), 0.5, 0.1, 0.2, 2.0)
    moments = 4.0 * (0.1 * np.eye(3) + 0.4 * np.outer(found.direction, found.direction))
    whitened = found.whitened(0.05)
    values = np.linalg.eigvalsh(whitened.axes.turned(whitened.axes.turned(moments).T))
    assert np.allclose(np.sort(values), np.sort(whitened.moments))
    assert whitened.norm == pytest.approx(math.sqrt(float(np.sum(values))))


def test_the_curvature_of_classes_is_the_largest_eigenvalue_at_their_shares_however_many_there_are() -> None:
    random = np.random.default_rng(9)
    for classes in (3, 4, 30):
        for shares in (np.full(classes, 1 / classes), random.dirichlet(np.full(classes, 0.5))):
            matrix = np.diag(shares) - np.outer(shares, shares)
            assert survey.curvature_of_classes(shares) == pytest.approx(np.linalg.eigvalsh(matrix)[-1], rel=1e-9)
    assert survey.curvature_of_classes(np.full(10_000, 1e-4)) == pytest.approx(1e-4)


@pytest.mark.parametrize("shares", [[1 / 3] * 3, [1 / 9] * 9, [0.7, 0.1, 0.1, 0.1]])
def test_steps_for_several_classes_keep_to_the_curvature_at_their_shares(shares: list[float]) -> None:
    curvature = np.linalg.eigvalsh(np.diag(shares) - np.outer(shares, shares))[-1]
    for epsilon in (0.1, 1.0, 10.0, 1000.0):
        _, step = of_classes(shares, epsilon=epsilon)
        assert step * curvature * 8 / 9 <= max(survey.STEPS)  # along axes with second moments of 8/9 or a little less


def test_seven_classes_around_a_circle_are_learned_where_there_is_little_noise() -> None:
    """Of all records .17 are not where their class is. Steps for a single record's bound, ½, left .24 of them wrong."""
    random, classes = np.random.default_rng(1), 7
    angles = 2 * math.pi * np.arange(classes) / classes

    def drawn(records: int) -> tuple[FloatArray, FloatArray]:
        places = np.clip(random.normal(size=(records, 3)), -3, 3)
        scores = 4 * places[:, :2] @ np.stack([np.cos(angles), np.sin(angles)])
        labels = np.argmax(scores + 0.3 * random.gumbel(size=scores.shape), axis=1).astype(float)
        return np.column_stack([places / 3, np.ones(records)]), labels

    labels = {"type": "categorical", "categories": [str(number) for number in range(classes)]}
    columns = dict.fromkeys("abc", NUMBER | {"lower": -3.0, "upper": 3.0}) | {"y": labels}
    silos, (features, targets) = [drawn(2000) for _ in range(3)], drawn(4000)
    members = [Member(name, 2000, 10.0, 1e-6) for name in "abc"]
    made = make_plan(parse_schema({"columns": columns}, target="y"), members, PlanRequest(held_out=0.0, curves=0))
    for weights in trials.simulated_weights(made, silos, [1, 2, 3]):
        assert np.mean(np.argmax(features @ weights.reshape(4, classes), axis=1) != targets) < 0.2


def test_gradients_of_several_classes_are_clipped_and_steps_short_only_under_much_noise() -> None:
    """They are no longer than the features: the largest clip is at a typical norm of these."""
    assert [of_classes([1 / classes] * classes, epsilon=1000.0)[0] for classes in (3, 5, 9)] == pytest.approx([1.0] * 3)
    quiet, loud = (of_classes([0.2] * 5, epsilon=epsilon) for epsilon in (100.0, 0.05))
    assert loud[0] < quiet[0]
    assert loud[0] * loud[1] < quiet[0] * quiet[1] / 2


def of_classes(shares: list[float], *, epsilon: float) -> tuple[float, float]:
    """Return the clip, in typical feature norms, and the step along whitened axes for classes of these shares."""
    target = {"type": "categorical", "categories": [f"c{number}" for number in range(len(shares))]}
    columns = {name: column.model_dump(exclude_none=True) for name, column in SCHEMA.columns.items()}
    made = make_plan(parse_schema({"columns": columns | {"y": target}}, target="y"), [Member("a", 3000, epsilon, 1e-6)])
    found = principal_axes(np.eye(8), np.eye(8) / 8, 1e-3)
    target_estimate = survey.estimate_from_class_shares(np.array(shares), 1e-9)
    axes, step, _ = survey.choose_descent(made, found, target_estimate, 0.5)
    plain = found.whitened(found.edge / 2)
    unit = plain.axes.packed()[0] / axes.packed()[0]
    return float(unit / plain.norm), float(step / unit**2)
