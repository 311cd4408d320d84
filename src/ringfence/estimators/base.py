"""The base class of the estimators: from X, y and silos to a plan, through the gates, to coefficients."""

from __future__ import annotations

import math
import textwrap
from abc import ABC
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from ringfence.errors import EstimatorError, PlanError
from ringfence.estimates.metrics import EvaluationReport
from ringfence.estimators.fit_data import SOURCE, FitData, as_frame, join_silos, per_silo
from ringfence.estimators.fit_memory import MEMORY
from ringfence.estimators.pipelines import require_public_steps
from ringfence.estimators.reading import TableReader, hiding_values
from ringfence.estimators.repeated_fits import require_cap_for_repeated_fits
from ringfence.federation.progress import rounds_shown
from ringfence.federation.training import Silo, TrainingResult, train
from ringfence.model.statement import Statement
from ringfence.model.summary import Summary, require_level, summarise_coefficients
from ringfence.planning.options import parse_figures
from ringfence.planning.propose import make_plan
from ringfence.planning.query_plans import make_summary_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import FloatArray, Plan, Schema
from ringfence.rehearsal.quote import Quote, rehearse
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.operator.usual_budgets import require_usual_plan
from ringfence.sources import frames

_NOT_COMPARED = {"cap", "ledgers", "equal_rows", "new_beginning", "unusual_budget", "anyway"}
"""Parameters that may differ between two fits that ask the same query."""


class FederatedLinearModel(TableReader, ABC):
    """A linear model whose records stay in their silos: the base of all estimators here.

    Parameters
    ----------
    epsilon : float, sequence of float, or mapping from silo to float, default=1.0
        The privacy budget of one `fit`: one number for all silos, or one for each. A sequence follows the order of the
        silos' tables, or of the sorted labels in `silos`.
    delta : float, sequence of float, or mapping from silo to float, default=None
        The delta that goes with `epsilon`, in the same forms. None means 1/n², at most 1e-5, for a silo of n rows.
    bounds : (lower, upper), or mapping from column to (lower, upper), default=None
        The range of each feature, from public knowledge: two numbers for all columns, two sequences with one number per
        column, or a pair for each named column. Training clamps values outside. Give either this or `schema`: a range
        read from the records would leak them.
    schema : Schema or path, default=None
        Describes a table with named columns: bounds, categories, missing values and the target. A path names a schema
        file; its target is the column that y is named after or, if y has no name, the one that X lacks.
    algorithm : str, default="auto"
        The training algorithm; "auto" lets the planner choose. `ringfence plan --help` lists the names.
    max_rounds : int, default=None
        The most training rounds that "auto" may use. None means 100.
    ridge : float, default=0.0
        Adds (ridge/2)·‖w‖² to the objective, in scaled features.
    lasso : float, default=0.0
        Adds lasso·‖w‖₁ to the objective, in scaled features and without the intercept. With `ridge`: elastic net.
    clip : float, default=None
        The clipping norm of a row's gradient. None means that a public rule sets it.
    sample_weight_bound : float, default=None
        The largest weight that a row may have, from public knowledge. Required if `fit` gets `sample_weight`.
    fit_intercept : bool, default=True
        Whether to learn a constant term.
    person_rule : {"mean", "rows", "sum"}, default=None
        How a person's rows are combined if `fit` gets `persons`: the mean of their clipped gradients ("mean", the
        default); the sum of the first `rows_per_person`, divided by that number ("rows"); or the sum of all, clipped as
        one ("sum"). If set, `fit` requires `persons`.
    rows_per_person : int, default=None
        How many rows of each person count, for the rule "rows".
    held_out : float, default=0.2
        The share of each silo's rows (or persons) that evaluates the model instead of training it. Rows are chosen by
        their position in the silo's table, never by their content, and pay for the evaluation alone. 0 or None: all
        rows train, and there is no evaluation.
    figures : str or sequence of str, default=None
        What the evaluation measures, by the names that it prints, such as ["accuracy", "recall"]; "all" for everything.
        The fewer, the more precise. None means accuracy and AUC (log loss for several classes), or RMSE, MAE and R².
    cap : (epsilon, delta), default=None
        The most that all fits together may cost any record (or person): all fits of this process or, with `ledgers`,
        all that the ledgers hold. A fit that would exceed it is refused before anything is released. Without a cap,
        fitting the same records again with other settings is refused.
    ledgers : path, default=None
        A folder with one ledger file per silo, which remembers what was spent after this process ends.
    equal_rows : {"copies", "records"}, default="copies"
        What rows of one silo with equal features are. Copies of one record, as in a bootstrap sample, cost that record
        more, and a ledger refuses them. "records" states that they are different records. With `persons`, copies cost
        a person nothing extra.
    new_beginning : str, default=""
        Why records that already have a ledger elsewhere get another one here. The new ledger records the reason.
    unusual_budget : bool, default=False
        Set to True to allow an epsilon above 20 or a delta above 1/n, which protect nobody.
    anyway : bool, default=False
        Set to True to fit a model that is not expected to beat guessing. Otherwise it is refused, for no charge.

    Attributes
    ----------
    coef_ : array
        The coefficients, in the units of X.
    intercept_ : float or array
        The constant term, in the units of X: X @ coef_.T + intercept_ is the decision function, or the prediction.
    quote_ : Quote
        What was expected before anything was charged, from a rehearsal on simulated rows. Print it.
    privacy_ : Statement
        What this fit guarantees to each silo's records (or persons), and what all fits so far have used. Print it.
    evaluation_ : EvaluationReport
        How good the model is, measured privately on the held-out rows. Print it. `evaluation_["accuracy"]` is a metric
        (`value`, `low`, `high`), `to_frame()` a table of all, `plot()` draws them, and `silos[NAME]` has a silo's own.
        The 95 % intervals cover both noise and sampling. Only with `held_out`.
    score_ : float
        The accuracy, or R² for a regression (of clipped errors where noise hides larger ones), from `evaluation_`; nan
        if noise hides it. Only with `held_out`.
    plan_ : Plan
        The public plan that every silo approved.
    history_ : tuple of RoundOutcome
        Which silos answered in each round.
    model_ : Model
        The model as a document, with plan and statement and without any record: `model_.save(path)`.
    n_features_in_ : int
        The number of columns of X.
    feature_names_in_ : array of str
        The names of the columns of X, if all are strings.

    Notes
    -----
    Guarantee: everything that a silo releases during one `fit` is (epsilon, delta)-differentially private with respect
    to replacing any one of its rows, against anyone who sees what the silo sends, whatever the server and the other
    silos do. If `fit` gets `persons`, the same holds with respect to replacing any one person of a silo, with all their
    rows there, by another with any number of rows. Public are the number of rows (or persons) of each silo, the labels
    in `silos`, and every argument of the constructor.

    `score_` and `evaluation_` are private. `score` is not: it measures the rows it gets, without noise.
    """

    coef_: FloatArray
    intercept_: Any  # an array, or for a regressor a float
    evaluation_: EvaluationReport
    score_: float
    _loss = ""
    _figures: tuple[str, ...] = ("default",)

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags of a federated linear model."""
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True  # real noise has no seed
        return tags

    def __sklearn_clone__(self) -> Any:
        """Clone the estimator for scikit-learn; refuse to be cloned for many fits without a cap."""
        require_cap_for_repeated_fits(self.cap)
        return super().__sklearn_clone__()

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether a fit has ended; one that is refused sets `quote_` and the like, but no coefficients."""
        return hasattr(self, "coef_")

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:  # scikit-learn's argument
        """Return the constructor's call: epsilon and what is not at its default, each shortened."""
        values = [(field, getattr(self, field.name)) for field in fields(self)]
        called = ", ".join(
            f"{field.name}={_shown(value)}"
            for field, value in values
            if field.name == "epsilon" or repr(value) != repr(field.default)
        )
        return textwrap.shorten(f"{type(self).__name__}({called})", max(N_CHAR_MAX, 40), placeholder=" ...)")

    def fit(self, X: Any, y: Any, silos: Any = None, persons: Any = None, sample_weight: Any = None) -> Self:
        """Train on the silos' rows, through their gates.

        Parameters
        ----------
        X : table, list of tables, or mapping from silo to table
            The features: NumPy, pandas, polars or pyarrow.
        y : array, list of arrays, or mapping from silo to array
            The targets, in the same form as X.
        silos : array or list, default=None
            The silo of each row or, if X is a list, the name of each table. Without it, all rows belong to one silo.
        persons : array, list of arrays, or mapping from silo to array, default=None
            Whose each row is, in the same form as y. With it, the guarantee is for each person; without it, for each
            row. Equal labels are the same person, in all silos and all fits. If a `schema` names the column of persons,
            X may have that column instead.
        sample_weight : array, list of arrays, or mapping from silo to array, default=None
            How much each row's loss counts, from 0 to `sample_weight_bound`, in the same form as y. Weights are as
            private as y. The clipping norm, and so the noise, grows with the bound.

        Returns
        -------
        self : the fitted estimator
        """
        data, remarks = self._read(X, y, silos, persons, sample_weight)
        request = self._request(data.schema)
        plan = make_plan(data.schema, self._members(data, request), request)
        self.quote_ = rehearse(plan)
        totals, result = self._run(data, self.quote_)
        return self._fitted(result, totals, remarks)

    def _fitted(self, result: TrainingResult, totals: Mapping[str, Budget], remarks: Mapping[str, str]) -> Self:
        """Set the estimator's learned attributes from the result of a run."""
        self.plan_ = result.model.plan
        self.history_ = result.history
        self.model_, self.privacy_ = result.model, self._with_totals(result.statement, totals, remarks)
        if self.ledgers is None:  # the ledger was this fit's only: it guarantees nothing of other fits
            guarantees = {name: own.model_copy(update={"used": ()}) for name, own in result.model.guarantees.items()}
            self.model_ = result.model.model_copy(update={"guarantees": guarantees})
        self._set_coefficients()
        self._set_evaluation(result.evaluation)
        return self

    def summary(
        self,
        X: Any,
        y: Any,
        silos: Any = None,
        persons: Any = None,
        sample_weight: Any = None,
        *,
        epsilon: Any,
        delta: Any = None,
        level: float = 0.95,
        by_silo: bool = False,
    ) -> Summary:
        """Ask the silos once more, for a budget of its own, for an interval of every coefficient.

        Available for squared and logistic loss, without `ridge` and `clip`.

        Parameters
        ----------
        X, y, silos, persons, sample_weight : as in `fit`
            They may be the rows of the fit, which then pay for both.
        epsilon, delta : as in the constructor
            The privacy budget of the summary, in addition to that of the fit.
        level : float, default=0.95
            How often an interval covers the true coefficient.
        by_silo : bool, default=False
            Whether the silos, rather than the rows, are the sample that intervals account for.

        Returns
        -------
        summary : Summary
            Print it.
        """
        check_is_fitted(self)
        data, remarks = self._read(X, y, silos, persons, sample_weight)
        if data.schema != self.plan_.data:
            raise EstimatorError(
                "X and y differ from those that this model was fitted with: give the same columns and the same classes."
            )
        names = list(data.silos)
        require_level(level, len(names) if by_silo else None)
        epsilons, deltas = per_silo("epsilon", epsilon, names), per_silo("delta", delta, names)
        members = [Member(name, size, epsilons[name] or 0.0, deltas[name]) for name, size in data.sizes().items()]
        plan = make_summary_plan(self.plan_, self.model_.weights, members)
        totals, result = self._run(data, rehearse(plan, level=level, by_silo=by_silo))
        statement = self._with_totals(result.statement, totals, remarks)
        return summarise_coefficients(statement, result.findings, level=level, by_silo=by_silo)

    def _with_totals(self, statement: Statement, totals: Mapping[str, Budget], remarks: Mapping[str, str]) -> Statement:
        """Add the totals of all fits of this process, and the remarks on this fit, unless `ledgers` count the runs."""
        if self.ledgers is not None:
            return statement
        silos = {}
        for name, own in statement.silos.items():  # totals are what was used so far, not a guarantee of all fits
            noted = (*own.remarks, *filter(None, [remarks.get(name)]))
            silos[name] = own.model_copy(update={"used": (), "all_runs": totals[name].limits, "remarks": noted})
        return replace(statement, silos=silos)

    def _read(self, X: Any, y: Any, silos: Any, persons: Any, weights: Any) -> tuple[FitData, dict[str, str]]:
        """Return the rows of `fit` as records, and remarks about rows that a run's numbers do not count, by silo."""
        require_public_steps(self)
        given = join_silos(X, y, silos, persons, weights)
        if self.ledgers is not None and not Path(self.ledgers).is_dir():
            raise EstimatorError(f"`ledgers` must be an existing folder, but '{self.ledgers}' is not: create it.")
        self._schema = self._given_schema(given)
        data = self._fit_data(given)
        return data, data.remarks(self.equal_rows, ledgers=self.ledgers is not None)

    def _members(self, data: FitData, request: PlanRequest) -> list[Member]:
        """Return the silos of an estimator's fit, with the budget and the held-out records of each."""
        names = list(data.silos)
        if data.persons is None and (self.person_rule, self.rows_per_person) != (None, None):
            raise EstimatorError(
                "`person_rule` and `rows_per_person` say how a person's rows are combined, but `fit` lacks the person "
                "of each row: give `persons`. Inside scikit-learn's tools, enable metadata routing and call "
                "set_fit_request(persons=True)."
            )
        epsilons, deltas = per_silo("epsilon", self.epsilon, names), per_silo("delta", self.delta, names)
        members = []
        for name, size in data.sizes().items():
            epsilon = epsilons[name]
            if epsilon is None or not epsilon > 0:
                raise EstimatorError(f"The epsilon of silo '{name}' must be a positive number.")
            try:
                training, held_out = request.training_and_held_out(name, size)
            except PlanError as refused:
                raise EstimatorError(f"{refused} Here n_samples={size}; held_out=0 lets all of them train.") from None
            members.append(Member(name, training, epsilon, deltas[name], held_out=held_out))
        return members

    def _request(self, schema: Schema) -> PlanRequest:
        """Return the request for the plan."""
        return PlanRequest(
            algorithm=None if self.algorithm == "auto" else self.algorithm,
            most_rounds=self.max_rounds,
            ridge=float(self.ridge),
            lasso=float(self.lasso),
            curves=0,  # `coef_` has a number for each column
            clip=None if self.clip is None else float(self.clip),
            person_rule=self.person_rule,
            rows_per_person=self.rows_per_person,
            held_out=self.held_out or 0.0,
            figures=self._figures if self.figures is None else parse_figures(self.figures),
            **self._loss_choices(schema),
        )

    def _loss_choices(self, schema: Schema) -> dict[str, Any]:
        """Return the fields of the request that choose the estimator's loss; without one, the target's column does."""
        return {"loss": self._loss} if self._loss else {}

    def _cap(self) -> Budget | None:
        """Return the `cap` of a federated estimator as a budget."""
        if self.cap is None or isinstance(self.cap, Budget):
            return self.cap
        try:
            epsilon, delta = map(float, self.cap)
        except (TypeError, ValueError):
            epsilon = delta = 0.0
        if not (0 < epsilon < np.inf and 0 < delta < 1):
            raise EstimatorError("`cap` must be (epsilon, delta): a positive number, and a number between 0 and 1.")
        return Budget(epsilon, delta)

    def _settings(self) -> str:
        """Return the parameters of a federated estimator that make two fits the same query asked again."""
        settings = {name: value for name, value in self.get_params().items() if name not in _NOT_COMPARED}
        settings["schema"] = self._schema  # a file's content, not its name
        return f"{type(self).__name__} {settings!r}"

    def _run(self, data: FitData, quote: Quote) -> tuple[dict[str, Budget], TrainingResult]:
        """Charge a rehearsed plan in this process's memory, then run it; return the silos' totals and the result."""
        plan, cap = quote.plan, self._cap()
        if not self.unusual_budget:
            require_usual_plan(plan, cap, word="unusual_budget=True")
        self._require_worth(quote)
        totals = self._charge(data, [plan], cap, self._settings())
        with self._silos(data, cap) as silos, rounds_shown(plan.rounds) as count:
            return totals, train(plan, silos, watch=lambda outcome: count())

    def _require_worth(self, quote: Quote) -> None:
        """Refuse a model that is not expected to beat guessing, before anything is charged."""
        if not self.anyway:
            quote.require_worth(word="anyway=True")

    def _charge(self, data: FitData, plans: Sequence[Plan], cap: Budget | None, settings: str) -> dict[str, Budget]:
        """Charge plans that are approved together in this process's memory, as one fit."""
        return MEMORY.charge(
            plans[0],
            data.identities(),
            data.owners(),
            data.sections(plans[0].held_out),
            settings=f"{settings} for each {plans[0].unit}",
            others=plans[1:],
            cap=cap if self.ledgers is None else None,  # a ledger is an account of its own, and its gate the judge
            tuning=cap is not None,
            copies=self.equal_rows == "copies",
        )

    @contextmanager
    def _silos(self, data: FitData, cap: Budget | None) -> Iterator[dict[str, Silo]]:
        """Open the estimator's silos, each with its records and its ledger, which is temporary without `ledgers`."""
        place: AbstractContextManager[str | Path] = (
            TemporaryDirectory(prefix="ringfence-") if self.ledgers is None else nullcontext(self.ledgers)
        )
        own_cap = None if self.ledgers is None else cap  # what outlives the fit is in the memory, which knows the cap
        with place as folder:
            silos = {}
            for name in data.silos:
                records, ledger = data.records_of(name, marked=self.ledgers is not None), Path(folder, f"{name}.ledger")
                silos[name] = Silo(records, ledger, own_cap, new_beginning=self.new_beginning)
            yield silos

    def _set_coefficients(self) -> None:
        """Set the estimator's `coef_` and `intercept_` from the model."""
        linear = self.model_.linear()
        self.coef_, self.intercept_ = linear.coefficients, linear.intercepts
        if self.schema is None:  # a schema sorts its columns by name
            places = {name: place for place, name in enumerate(linear.features)}
            self.coef_ = self.coef_[:, [places[name] for name in self._column_names(self.n_features_in_)]]

    def _set_evaluation(self, evaluation: EvaluationReport | None) -> None:
        """Set `evaluation_` and `score_`; without an evaluation, delete those of a former fit."""
        if evaluation is None:
            for name in ("evaluation_", "score_"):
                self.__dict__.pop(name, None)
            return
        value = evaluation.together.score.value
        self.evaluation_, self.score_ = evaluation, math.nan if value is None else value

    def _scores(self, X: Any) -> FloatArray:
        """Return X @ coef_.T + intercept_, one column per output."""
        check_is_fitted(self)
        if self.schema is None:
            with hiding_values():
                matrix: FloatArray = validate_data(self, X, reset=False, dtype=np.float64)
        else:
            X = as_frame(X)
            if not frames.is_pandas(X):
                raise EstimatorError(
                    "This model was fitted with a `schema`, so X must have column names: give a table of pandas, "
                    "polars or pyarrow."
                )
            matrix = self.model_.linear().matrix(frames.columns_of(X), source=SOURCE)
        scores: FloatArray = matrix @ np.atleast_2d(self.coef_).T + self.intercept_
        return scores


def _shown(value: Any) -> str:
    """Return an estimator's parameter as `repr` shows it, shortened; of a schema, only the target."""
    if isinstance(value, Schema):
        return f"<schema of '{value.target}'>" if value.target else "<schema>"
    text = " ".join(repr(value).split())
    return text if len(text) <= 100 else f"{text[:97]}..."
