"""What a user of scikit-learn tries first: a schema's file, a seed, cross-validation, an evaluation as a table."""

import os
import pickle
import pty
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import matplotlib as mpl
import nbformat
import numpy as np
import pandas as pd
import pytest
from joblib import Parallel, delayed  # type: ignore[import-untyped]  # joblib ships no types
from joblib.externals.loky import get_reusable_executor  # type: ignore[import-untyped]
from sklearn.base import clone
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    RandomizedSearchCV,
    cross_val_predict,
    cross_val_score,
    cross_validate,
    learning_curve,
)
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import ringfence
from ringfence.errors import ApprovalError, EstimatorError
from ringfence.estimates.metrics import Metric
from ringfence.estimators import FederatedSearch
from tests.estimators.test_privacy import DELTA, X, Y, classifier, together, total
from tools.notebooks import executed

SCHEMA = """
columns.age = {type = "numeric", lower = 0, upper = 100}
columns.ward = {type = "categorical", categories = ["a", "b"]}
columns.ill = {type = "categorical", categories = ["no", "yes"]}
columns.name = {type = "ignore"}
"""
RANDOM = np.random.default_rng(3)
TABLE = pd.DataFrame({"age": RANDOM.uniform(0, 100, 200), "ward": RANDOM.choice(["a", "b"], 200)})
ILL = pd.Series(np.where(TABLE["age"] > 50, "yes", "no"), name="ill")


@pytest.fixture
def schema_file(tmp_path: Path) -> Path:
    path = tmp_path / "schema.toml"
    path.write_text(SCHEMA)
    return path


@pytest.mark.parametrize("y", [ILL, ILL.to_numpy(), ILL.to_frame()], ids=["named", "the only one left", "frame"])
@pytest.mark.parametrize("kind", [str, Path])
def test_a_schema_may_be_the_path_of_its_file(schema_file: Path, kind: Any, y: Any) -> None:
    model = ringfence.FederatedLogisticRegression(epsilon=1.0, schema=kind(schema_file), max_rounds=3)
    assert clone(model).get_params()["schema"] == kind(schema_file)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns of a target that is a column
        model.fit(TABLE, y)
    assert model.plan_.data == ringfence.load_schema(schema_file, target="ill")
    schema_file.unlink()  # a fitted model needs it no more
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict(TABLE), model.predict(TABLE))


def test_a_schema_s_file_serves_counts_with_an_exposure_and_times_with_an_event(tmp_path: Path) -> None:
    path = tmp_path / "schema.toml"
    number = 'type = "numeric", lower'
    path.write_text(
        f'exposure = "years"\ncolumns.age = {{{number} = 0, upper = 100}}\n'
        f"columns.years = {{{number} = 1, upper = 4}}\ncolumns.visits = {{{number} = 0, upper = 20}}\n"
    )
    table = TABLE[["age"]].assign(years=2.0)
    counts = ringfence.FederatedPoissonRegressor(schema=path, max_rounds=3, anyway=True).fit(table, np.ones(200))
    assert np.allclose(counts.predict(table.assign(years=4.0)), 2 * counts.predict(table))
    path.write_text(
        f'event = "died"\ncolumns.age = {{{number} = 0, upper = 100}}\n'
        'columns.died = {type = "categorical", categories = ["no", "yes"]}\n'
        f"columns.days = {{{number} = 0, upper = 20}}\n"
    )
    times = ringfence.FederatedSurvivalRegressor(schema=str(path), max_rounds=3, cap=(20.0, 1e-4), anyway=True)
    assert times.fit(TABLE[["age"]].assign(died="yes"), np.ones(200)).plan_.data.target == "days"


def test_a_file_s_content_and_not_its_name_makes_two_fits_the_same(schema_file: Path) -> None:
    settings: dict[str, Any] = {"epsilon": 1.0, "max_rounds": 3}
    ringfence.FederatedLogisticRegression(schema=schema_file, **settings).fit(TABLE, ILL)
    named = ringfence.load_schema(schema_file, target="ill")
    ringfence.FederatedLogisticRegression(schema=named, **settings).fit(TABLE, ILL)
    schema_file.write_text(SCHEMA.replace("upper = 100", "upper = 110"))
    with pytest.raises(ApprovalError, match="with other settings"):
        ringfence.FederatedLogisticRegression(schema=schema_file, **settings).fit(TABLE, ILL)


def test_a_schema_that_leaves_the_target_open_is_refused_with_the_remedy(schema_file: Path) -> None:
    model = ringfence.FederatedLogisticRegression(schema=schema_file)
    with pytest.raises(EstimatorError, match=r"which of its columns y is.*load_schema\(path, target=NAME\)"):
        model.fit(TABLE[["age"]], ILL.to_numpy())
    with pytest.raises(EstimatorError, match="must be a schema file's path"):
        model.set_params(schema=7).fit(TABLE, ILL)
    with pytest.raises(ringfence.RingfenceError, match="could not be read"):
        model.set_params(schema="absent.toml").fit(TABLE, ILL)


def test_a_seed_is_refused_with_the_reason() -> None:
    search: Any = FederatedSearch
    logistic: Any = ringfence.FederatedLogisticRegression
    survival: Any = ringfence.FederatedSurvivalRegressor
    for give in (
        lambda: logistic(random_state=0),
        lambda: survival(random_state=None),
        lambda: classifier().set_params(random_state=0),
        lambda: make_pipeline(classifier()).set_params(federatedlogisticregression__random_state=0),
        lambda: search(classifier(), {}, random_state=0),
    ):
        with pytest.raises(EstimatorError, match=r"no `random_state`: privacy rests on noise that nobody can repeat"):
            give()
    with pytest.raises(TypeError, match="unexpected keyword argument 'seeds'"):
        logistic(seeds=0)


TOOLS: dict[str, Any] = {
    "cross_val_score": lambda model, **given: cross_val_score(model, X, Y, cv=KFold(3), **given),
    "cross_validate": lambda model, **given: cross_validate(model, X, Y, cv=KFold(3), **given),
    "learning_curve": lambda model, **given: learning_curve(model, X, Y, cv=KFold(3), **given),
    "GridSearchCV": lambda model, **given: GridSearchCV(model, {"ridge": [0, 0.1]}, cv=KFold(3), **given).fit(X, Y),
    "RandomizedSearchCV": lambda model, **given: RandomizedSearchCV(
        model, {"ridge": [0, 0.1]}, n_iter=2, cv=KFold(3), **given
    ).fit(X, Y),
}


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("cap", [None, (9.0, DELTA)], ids=["no cap", "errors swallowed"])
def test_many_fits_are_refused_by_one_message_of_ours_before_anything_is_charged(tool: str, cap: Any) -> None:
    for model in (classifier(cap=cap), make_pipeline(FunctionTransformer(), classifier(cap=cap))):
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # FitFailedWarning
            with pytest.raises(ApprovalError, match=rf"^{tool} would fit the same records several times") as refused:
                TOOLS[tool](model)
        for remedy in (
            "Nothing was charged",
            "FederatedSearch",
            "`evaluation_`",
            "cap=",
            "error_score='raise'",
            "n_jobs=1",
        ):
            assert remedy in str(refused.value)
    assert total(classifier(ridge=0.2).fit(X, Y)) == pytest.approx(together(1), rel=1e-3), "nothing was remembered"


def test_many_fits_need_a_cap_even_where_errors_are_raised_and_run_within_one() -> None:
    with pytest.raises(ApprovalError, match="cross_val_predict would fit"):
        cross_val_predict(classifier(), X, Y, cv=KFold(3))
    with pytest.raises(ApprovalError, match="cross_val_score would fit"):
        cross_val_score(classifier(), X, Y, cv=KFold(3), error_score="raise")
    for tool in ("cross_validate", "GridSearchCV"):
        with pytest.raises(ApprovalError, match=r"whose fits the cap counts \(n_jobs=1\)"):
            TOOLS[tool](classifier(cap=(9.0, DELTA)), error_score="raise", n_jobs=2)
    scores = TOOLS["cross_val_score"](classifier(cap=(9.0, DELTA)), error_score="raise")
    assert scores.shape == (3,)
    with pytest.raises(ApprovalError, match=r"^With this fit, all fits of this process .* more than the cap"):
        TOOLS["GridSearchCV"](classifier(cap=(2.2, DELTA)), error_score="raise")


def test_a_cap_is_refused_in_worker_processes_which_would_each_count_from_zero(tmp_path: Path) -> None:
    """Also where scikit-learn's cross-validations, which `clone` tells, do not start them."""
    capped = classifier(cap=(1.5, DELTA))
    parallel = Parallel(n_jobs=2, backend="loky")
    try:
        for run in (
            lambda: parallel(delayed(capped.fit)(X, Y) for _ in range(2)),
            lambda: MultiOutputClassifier(capped, n_jobs=2).fit(X, np.column_stack([Y, Y])),
        ):
            with pytest.raises(
                ApprovalError, match=r"`cap` counts the fits of one process.*Fit in one process \(n_jobs=1\)"
            ):
                run()  # type: ignore[no-untyped-call]
        counted = capped.set_params(ledgers=tmp_path)
        [fitted] = parallel([delayed(counted.fit)(X, Y)])
        assert fitted.privacy_.silos["all"].used, "a ledger counts for every process"
    finally:
        get_reusable_executor().shutdown()


def test_a_search_of_ours_inside_a_cross_validation_is_refused_too() -> None:
    with pytest.raises(ApprovalError, match="cross_val_score would fit"):
        cross_val_score(FederatedSearch(classifier(), {"ridge": [0.0, 0.1]}), X, Y)
    clone(FederatedSearch(classifier(), {"ridge": [0.0, 0.1]}))


def test_an_evaluation_is_read_by_name_as_a_table_and_as_a_picture() -> None:
    mpl.use("agg")
    random = np.random.default_rng(1)
    rows = random.uniform(-1, 1, size=(2000, 2))
    labels = np.where(rows[:, 0] > 0, "yes", "no")
    model = classifier(epsilon=15.0, delta=None).fit(rows, labels, silos=random.choice(["north", "south"], len(rows)))
    report = model.evaluation_
    accuracy = report["accuracy"]
    assert isinstance(accuracy, Metric)
    assert accuracy.value == model.score_
    frame = report.to_frame()
    assert frame.loc["accuracy", ["value", "low", "high"]].tolist() == [accuracy.value, accuracy.low, accuracy.high]
    assert frame.index.tolist() == [metric.name for metric in report.together.metrics]
    unknown = [metric.name for metric in report.together.metrics if metric.value is None]
    assert frame.loc[unknown, "value"].isna().all()
    assert all(frame.loc[unknown, "note"])
    assert report.silos["north"].to_frame().loc["accuracy", "low"] == report.silos["north"].metric("accuracy").low
    with pytest.raises(KeyError, match="there is no metric 'acc', only accuracy, "):
        report["acc"]
    axes = report.plot()
    assert axes[0].get_title() == "accuracy (dashed: guessing)"
    assert [label.get_text() for label in axes[0].get_yticklabels()] == ["all silos", "north", "south"]
    assert [accuracy.low, accuracy.high] in [list(line.get_xdata()) for line in axes[0].lines]
    assert "positive class: 'yes'" in axes[0].figure.get_suptitle()


FIT = """
import numpy as np
from ringfence import FederatedLogisticRegression
X = np.random.default_rng(0).uniform(size=(3000, 2))
y = np.where(X[:, 0] > 0.5, "yes", "no")
model = FederatedLogisticRegression(bounds=(0, 1), classes=["no", "yes"]).fit(X, y)
print(model.plan_.rounds)
"""


@pytest.mark.parametrize(("package", "method"), [("pandas", "to_frame"), ("matplotlib", "plot")])
def test_without_pandas_or_matplotlib_the_message_names_it(package: str, method: str) -> None:
    program = f"import sys; sys.modules['{package}'] = None\n{FIT}model.evaluation_.{method}()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    said = f"OutputError: `{method}` needs {package}, which is not installed: pip install {package}."
    assert done.stderr.splitlines()[-1].endswith(said)


def test_a_fit_shows_its_rounds_on_a_terminal_and_nothing_in_a_file() -> None:
    done = subprocess.run([sys.executable, "-c", FIT], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    screen, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color"}
    done = subprocess.run(
        [sys.executable, "-c", FIT], env=environment, stdout=subprocess.PIPE, stderr=terminal, text=True, check=True
    )
    os.close(terminal)
    shown = b""
    try:
        while part := os.read(screen, 1 << 16):
            shown += part
    except OSError:  # how Linux says that the other end is closed
        pass
    os.close(screen)
    rounds = done.stdout.strip().encode()
    assert b"rounds" in shown
    assert b"%s/%s" % (rounds, rounds) in shown


def test_a_fit_shows_its_rounds_in_a_notebook_without_widgets_and_leaves_nothing_on_standard_error(
    tmp_path: Path,
) -> None:
    cell = nbformat.v4.new_code_cell(FIT)
    path = tmp_path / "fit.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
    document = executed(path, tmp_path)
    bar, rounds = document.cells[0].outputs
    assert bar.output_type == "display_data"
    assert bar.data == {"text/plain": ""}, "it is empty in the end"
    assert rounds.name == "stdout"
