"""Hyperparameter search for the price of one fit, with scikit-learn's interface."""

import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from sklearn.base import MetaEstimatorMixin, clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ringfence.errors import EstimatorError, PlanError
from ringfence.estimates.comparison import Choice
from ringfence.estimates.metrics import EvaluationReport
from ringfence.estimators.base import FederatedLinearModel
from ringfence.estimators.fit_data import FitData
from ringfence.estimators.parameters import Seedless, refuse_seeds
from ringfence.federation.choosing import train_and_choose
from ringfence.federation.progress import rounds_shown
from ringfence.model.statement import Statement
from ringfence.planning.search import CandidateRequest, grid, propose_search
from ringfence.rehearsal.quote import rehearse
from ringfence.silo.operator.usual_budgets import require_usual

TRIED = ("algorithm", "clip", "lasso", "max_rounds", "person_rule", "ridge", "rows_per_person")
"""Parameters of estimators that say how a model is trained, and nothing else."""


def _best_has(name: str) -> Any:
    """Offer a method of a search only if its best estimator has the method."""
    return available_if(lambda search: hasattr(getattr(search, "best_estimator_", search.estimator), name))


@refuse_seeds
class FederatedSearch(MetaEstimatorMixin, Seedless):  # type: ignore[misc]  # scikit-learn ships no types
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
    >>> from ringfence.estimators import FederatedSearch
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
        """Set the search's estimator and the grid of parameters to try."""
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
        data, remarks = best._read(X, y, silos, persons, sample_weight)
        cap = best._cap()
        proposed = propose_search(data.schema, [self._candidate_request(data, own) for own in candidates])
        if not best.unusual_budget:
            for silo, size in data.sizes().items():
                asked = [proposed.promised[silo][0], *(() if cap is None else cap.limits)]
                require_usual(asked, size, word="unusual_budget=True")
        best.quote_ = rehearse(proposed.comparison, *(each.plan for each in proposed.candidates))
        best._require_worth(best.quote_)
        settings = f"{type(self).__name__} of {candidates!r} {best._settings()}"
        totals = best._charge(data, proposed.plans, cap, settings)
        rounds = sum(plan.rounds for plan in proposed.plans)
        with best._silos(data, cap) as gated, rounds_shown(rounds) as count:
            trained, choice = train_and_choose(proposed, gated, watch=lambda plan, outcome: count())
        self.choice_: Choice = choice
        self.best_index_ = choice.best
        self.best_params_ = candidates[self.best_index_]
        self.best_estimator_ = best.set_params(**self.best_params_)._fitted(trained, totals, remarks)
        self.privacy_: Statement = best.privacy_
        self.evaluation_: EvaluationReport = best.evaluation_
        self._set_results()
        return self

    def _candidates(self) -> list[dict[str, Any]]:
        """Return the settings of every candidate of `param_grid`."""
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
            return grid({name: list(map(_as_python, values)) for name, values in self.param_grid.items()})
        except PlanError as refused:
            raise EstimatorError(str(refused)) from None

    def _candidate_request(self, data: FitData, settings: dict[str, Any]) -> CandidateRequest:
        """Return the request of a candidate and its silos, as in a fit with its settings."""
        fitting = clone(self.estimator).set_params(**settings)
        request = fitting._request(data.schema)
        return CandidateRequest(settings, request, fitting._members(data, request))

    def _set_results(self) -> None:
        """Set the search's `results_`, a row per candidate, and the best score with its interval."""
        above = [one.above for one in self.choice_.candidates]
        losses, low, high = np.array([(one.value, one.low, one.high) for one in above], dtype=np.float64).T
        self.results_: dict[str, Any] = {
            "params": [dict(one.settings) for one in self.choice_.candidates],
            "loss_above_best": losses,
            "low": low,
            "high": high,
            "rank": np.argsort(np.argsort(losses)) + 1,
        }
        score = self.evaluation_.together.score
        self.best_score_ = self.best_estimator_.score_
        self.best_score_interval_ = tuple(math.nan if end is None else end for end in (score.low, score.high))

    @property
    def classes_(self) -> Any:
        """The class labels of the search's best estimator."""
        return self._best().classes_

    @property
    def n_features_in_(self) -> int:
        """The number of columns that the search's best estimator was fitted to."""
        return int(self._best().n_features_in_)

    @_best_has("predict")  # type: ignore[untyped-decorator]
    def predict(self, X: Any) -> Any:
        """Predict with the best estimator."""
        return self._best().predict(X)

    @_best_has("predict_proba")  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Any:
        """Return probabilities of the best estimator."""
        return self._best().predict_proba(X)

    @_best_has("decision_function")  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Any:
        """Return scores of the best estimator."""
        return self._best().decision_function(X)

    def score(self, X: Any, y: Any) -> float:
        """Measure the best estimator on the records that are given, without noise: not private."""
        return float(self._best().score(X, y))

    def _best(self) -> Any:
        """Return the search's best estimator; refuses if the search is not fitted."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_


def _as_python(value: Any) -> Any:
    """Return NumPy's numbers in a search's settings as Python's."""
    return value.item() if isinstance(value, np.generic) else value
