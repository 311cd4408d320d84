"""Trying settings of an estimator for the price of one fit, with scikit-learn's interface."""

import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ringfence.choosing import choose
from ringfence.errors import EstimatorError, PlanError
from ringfence.estimators.base import FederatedLinearModel
from ringfence.estimators.fit_data import FitData
from ringfence.metrics.choice import Choice
from ringfence.metrics.report import EvaluationReport
from ringfence.planning.candidates import grid
from ringfence.planning.choices import CandidatePlan, propose_choice
from ringfence.silo.consent import require_usual
from ringfence.statement import Statement

TRIED = ("algorithm", "clip", "lasso", "max_rounds", "person_rule", "ridge", "rows_per_person")
"""Parameters of estimators that say how a model is trained, and nothing else."""


def _best_has(name: str) -> Any:
    return available_if(lambda search: hasattr(getattr(search, "best_estimator_", search.estimator), name))


class FederatedSearch(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn ships no types
    """Try combinations of settings for the price of one fit, and keep the one that predicts held-out records best.

    `predict` and the other methods are those of `best_estimator_`.

    Parameters
    ----------
    estimator : estimator of this package
        With epsilon, bounds and everything that is not to be tried. The share of each silo's rows that it holds out
        trains no candidate: these rows compare the candidates, and evaluate the best.
    param_grid : mapping from parameter to list of values
        What to try, of algorithm, clip, lasso, max_rounds, person_rule, ridge and rows_per_person.

    Attributes
    ----------
    best_params_ : dict
        The settings with the smallest loss on the held-out records.
    best_index_ : int
        Their place in `results_`.
    best_estimator_ : estimator
        The estimator fitted with them, on the records that are not held out.
    best_score_ : float
        Its accuracy, or R², on the held-out records, measured privately; nan if noise hides it.
    best_score_interval_ : (float, float)
        The 95 % interval of that score, which covers both noise and sampling.
    evaluation_ : EvaluationReport
        Everything that is known of the best one's predictions. Print it.
    results_ : dict of arrays
        One entry per candidate, like `cv_results_` elsewhere: `params`, `rank`, and how much its loss exceeds the best
        one's, `loss_above_best`, between `low` and `high`. The intervals hold together, with 95 %.
    choice_ : Choice
        The same as a document.
    privacy_ : Statement
        What each silo's records were promised for all of it. Print it.

    Notes
    -----
    Guarantee: everything that a silo releases during one `fit`, for all candidates and for comparing them, is together
    (epsilon, delta)-differentially private, with the estimator's epsilon and delta, unit and observers. Each of k
    candidates is trained with √k times the noise of a single fit, because whoever sees messages sees those of all
    candidates: try few.

    Examples
    --------
    >>> import numpy as np
    >>> from ringfence import FederatedLogisticRegression
    >>> from ringfence.model_selection import FederatedSearch
    >>> random = np.random.default_rng(11)
    >>> X = random.uniform([20, 80], [90, 200], size=(3000, 2))  # age, blood pressure
    >>> hospitals = random.choice(["north", "south", "west"], 3000)
    >>> y = np.where(X.sum(axis=1) + random.normal(0, 15, 3000) > 200, "ill", "well")
    >>> model = FederatedLogisticRegression(epsilon=1.0, bounds=([0, 50], [120, 250]), classes=["ill", "well"])
    >>> search = FederatedSearch(model, {"ridge": [0.001, 1.0]}).fit(X, y, silos=hospitals)
    >>> search.best_params_
    {'ridge': 0.001}
    >>> search.privacy_.silos["north"].run.epsilon
    1.0
    """

    def __init__(self, estimator: Any, param_grid: Any) -> None:
        self.estimator = estimator
        self.param_grid = param_grid

    def fit(self, X: Any, y: Any, silos: Any = None, persons: Any = None, sample_weight: Any = None) -> Self:
        """Train and compare all candidates on the silos' rows, through their gates; the arguments are the estimator's.

        What cannot be tried is refused before anything is released.
        """
        if not isinstance(self.estimator, FederatedLinearModel):
            raise EstimatorError(
                "`estimator` must be one of Ringfence's estimators: others do not keep records private."
            )
        candidates = self._candidates()
        best: FederatedLinearModel = clone(self.estimator)
        problem, remarks = best._read(X, y, silos, persons, sample_weight)
        cap = best._cap()
        proposed = propose_choice(problem.schema, [self._candidate_plan(problem, own) for own in candidates])
        if not best.unusual_budget:
            for silo, size in problem.sizes().items():
                asked = [proposed.promised[silo][0], *(() if cap is None else cap.limits)]
                require_usual(asked, size, word="unusual_budget=True")
        totals = best._counted(
            problem, proposed.plans, cap, f"{type(self).__name__} of {candidates!r} {best._settings()}"
        )
        with best._silos(problem, cap) as gated:
            chosen = choose(proposed, gated)
        self.choice_: Choice = chosen.choice
        self.best_index_ = chosen.choice.best
        self.best_params_ = candidates[self.best_index_]
        self.best_estimator_ = best.set_params(**self.best_params_)._fitted(chosen.result, totals, remarks)
        self.privacy_: Statement = best.privacy_
        self.evaluation_: EvaluationReport = best.evaluation_
        self._tell()
        return self

    def _candidates(self) -> list[dict[str, Any]]:
        if not isinstance(self.param_grid, Mapping):
            raise EstimatorError("`param_grid` must be one mapping from parameter to a list of values.")
        for name, values in self.param_grid.items():
            if name not in TRIED:
                raise EstimatorError(
                    f"`param_grid` cannot try '{name}': candidates may differ only in how they are trained "
                    f"({', '.join(TRIED)}). Set '{name}' on the estimator."
                )
            if isinstance(values, str) or not hasattr(values, "__len__") or not len(values):
                raise EstimatorError(f"`param_grid` must list the values of '{name}' to try, like [0.5, 1, 2].")
        try:
            return grid({name: [_plain(value) for value in values] for name, values in self.param_grid.items()})
        except PlanError as refused:
            raise EstimatorError(str(refused)) from None

    def _candidate_plan(self, problem: FitData, settings: dict[str, Any]) -> CandidatePlan:
        """Return what a candidate asks for, and of whom, as a fit with its settings would."""
        fitting = clone(self.estimator).set_params(**settings)
        request = fitting._request(problem.schema)
        return CandidatePlan(settings, request, fitting._members(problem, request))

    def _tell(self) -> None:
        above = [one.above for one in self.choice_.candidates]
        losses = np.array([math.nan if one.value is None else one.value for one in above])
        self.results_: dict[str, Any] = {
            "params": [dict(one.settings) for one in self.choice_.candidates],
            "loss_above_best": losses,
            "low": np.array([math.nan if one.low is None else one.low for one in above]),
            "high": np.array([math.nan if one.high is None else one.high for one in above]),
            "rank": np.argsort(np.argsort(losses)) + 1,
        }
        score = self.evaluation_.together.score
        self.best_score_ = self.best_estimator_.score_
        self.best_score_interval_ = tuple(math.nan if end is None else end for end in (score.low, score.high))

    @property
    def classes_(self) -> Any:
        """The best estimator's."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.classes_

    @property
    def n_features_in_(self) -> int:
        """The best estimator's."""
        check_is_fitted(self, "best_estimator_")
        return int(self.best_estimator_.n_features_in_)

    @_best_has("predict")  # type: ignore[untyped-decorator]
    def predict(self, X: Any) -> Any:
        """Predict with the best estimator."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.predict(X)

    @_best_has("predict_proba")  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Any:
        """Return probabilities of the best estimator."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.predict_proba(X)

    @_best_has("decision_function")  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Any:
        """Return scores of the best estimator."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.decision_function(X)

    def score(self, X: Any, y: Any) -> float:
        """Measure the best estimator on the records that are given, without noise: not private."""
        check_is_fitted(self, "best_estimator_")
        return float(self.best_estimator_.score(X, y))


def _plain(value: Any) -> Any:
    """Return NumPy's numbers as Python's."""
    return value.item() if isinstance(value, np.generic) else value
