"""What the estimators share: from X, y and silos to a plan, through the gates, to coefficients in X's own units."""

import inspect
import math
import tempfile
from abc import ABC
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from ringfence.errors import EstimatorError, PlanError
from ringfence.estimators import tables
from ringfence.estimators.fit_data import SOURCE, FitData
from ringfence.estimators.pipelines import require_public_steps
from ringfence.estimators.reading import TableReader, hiding_values
from ringfence.estimators.remarks import of_this_fit, remarks_on, with_totals
from ringfence.estimators.session import MEMORY
from ringfence.metrics.report import EvaluationReport
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.planning.summaries import make_summary
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.plan import Plan
from ringfence.protocol.schema import Schema
from ringfence.silo.budget import Budget
from ringfence.silo.consent import require_usual_plan
from ringfence.sources import frames
from ringfence.summary import Summary, require_level, summarise
from ringfence.training import Silo, TrainingResult, train

Estimator = TypeVar("Estimator", bound=type)

_NO_QUESTION = {"cap", "ledgers", "equal_rows", "new_beginning", "unusual_budget"}
"""Parameters in which two fits that ask the same may differ."""


class FederatedLinearModel(TableReader, ABC):
    """A linear model whose records stay in silos. The base of all estimators here; not one by itself.

    Guarantee: all that a silo releases during one `fit` is (epsilon, delta)-differentially private with respect to
    replacing any one of its rows, whatever the server and the other silos do. Where `fit` is told whose rows are whose,
    it is with respect to replacing any one person of a silo, with all rows there, by one with any number of rows. The
    number of rows, or persons, of each silo, their labels in `silos`, and all that the constructor is given are public.

    Parameters
    ----------
    epsilon, delta : a number, one per silo in their order, or a mapping from silo to number
        Silos are in the order of their tables or, where rows have labels, of the sorted labels.
        The guarantee of one `fit`. `delta=None` means 1/n², at most 1e-5.
    bounds : (lower, upper), or a mapping from column to (lower, upper)
        The range of every feature, from public knowledge: two numbers for all columns, or two sequences with one
        number per column. Values beyond are clamped in training. There is no default, since a range read from the
        records would leak them.
    schema : Schema
        Instead of `bounds`, for tables with named columns: bounds, categories, scales and the target.
    algorithm : "auto", or the name of one (`ringfence plan --help` lists them)
    max_rounds : the most rounds that "auto" may take; 100 by default
    ridge : (ridge/2)·‖w‖² is added to the objective, in scaled features
    lasso : lasso·‖w‖₁ is added, in scaled features and without the intercept; with `ridge`, elastic net
    clip : where a row's gradient is cut; by default a public rule
    sample_weight_bound : the largest weight of a row, from public knowledge, where `fit` is given `sample_weight`
    fit_intercept : whether to learn a constant
    person_rule : "mean" (the default), "rows" or "sum"
        What a person's rows come to in a gradient, where `fit` is told whose they are: the mean of the cut gradients;
        the sum of the first `rows_per_person`, divided by that number; or the sum of all, cut as one. Once named, `fit`
        insists on `persons`.
    rows_per_person : how many rows of a person count at most, by the rule "rows"
    held_out : share of each silo's rows, or persons; 0.2 by default
        These do not train. Once the model is there, they tell with noise how good it is, and pay for that alone: they
        are chosen by their places in the silo's table, whatever they hold. 0 or None: all train, and nothing is told.
    cap : (epsilon, delta)
        The most that all fits together may cost any record, or person: those of this process, or, with `ledgers`, all
        that stand in the ledgers. A fit that would exceed it is refused before anything is released. Without a cap,
        fitting the same records with *other* settings is refused.
    ledgers : folder of one ledger file per silo, for records that outlive this process
    equal_rows : "copies" or "records"
        What rows of one silo with equal features are. Copies of one record, as in a bootstrap sample, cost that record
        more; a ledger, which charges for a row, refuses them. "records" says that they are different records. Where
        `fit` is told whose rows are whose, copies cost a person nothing more.
    new_beginning : why records that have a ledger elsewhere get a second one here; it will stand in that ledger
    unusual_budget : True to mean an epsilon above 20 or a delta above 1/n, which protects nobody

    Attributes
    ----------
    coef_, intercept_ : in the units of X, so that X @ coef_.T + intercept_ is the decision function or prediction
    privacy_ : what each silo's records, or persons, were promised by this fit, and what all fits so far have used;
        `print` it
    evaluation_ : how good the model is by the held-out rows, privately; `print` it
        Figures with 95 % intervals, which cover both the noise and that the rows are a sample: `together.figures`, and
        `silos[NAME].figures` of each silo. It stands in `model_` too. Only with `held_out`.
    score_ : what `score` means, by `evaluation_`: accuracy, or R² of a regression; nan where noise hides it
    plan_ : the public plan that every silo approved
    history_ : who answered in which round
    model_ : the model as `Model.save` writes it, with plan and statement, free of any record
    n_features_in_, feature_names_in_ : as everywhere in scikit-learn

    `score` measures on the records that it is given, without noise: it is not private. `score_` and `evaluation_` are.
    """

    coef_: FloatArray
    intercept_: Any  # an array, or for a regressor a float
    evaluation_: EvaluationReport
    score_: float

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True  # real noise has no seed
        return tags

    def fit(self, X: Any, y: Any, silos: Any = None, persons: Any = None, sample_weight: Any = None) -> Self:
        """Train on the silos' rows through their gates.

        Parameters
        ----------
        X : one table (NumPy, pandas, polars, pyarrow), a list of one table per silo, or a mapping from silo to table
        y : the targets, in the same form
        silos : a silo's label per row (per table, if X is a list); without it, all rows are one silo's
        persons : whose each row is, as a label per row, in the same form as y
            With it, the guarantee is for each person; without it, for each row. Equal labels are one person, in all
            silos and all fits. With a `schema` that names the column of persons, X may have that column instead.
        sample_weight : how much each row's loss counts, from 0 to `sample_weight_bound`, in the same form as y
            Weights are private, as y is: a row's gradient is multiplied by its weight before it is cut, and the cut is
            as many times as long as the bound says, so that noise grows with the bound.
        """
        problem, remarks = self._read(X, y, silos, persons, sample_weight)
        plan, cap = self._plan(problem), self._cap()
        if not self.unusual_budget:
            require_usual_plan(plan, cap, word="unusual_budget=True")
        totals, result = self._run(problem, plan, cap)
        return self._fitted(result, totals, remarks)

    def _fitted(self, result: TrainingResult, totals: Mapping[str, Budget], remarks: Mapping[str, str]) -> Self:
        """Take over what a run came to."""
        self.plan_ = result.model.plan
        self.history_ = result.history
        self.model_, self.privacy_ = result.model, result.statement
        if self.ledgers is None:  # the ledger was this fit's only: it guarantees nothing of other fits
            self.model_ = result.model.model_copy(update={"guarantees": of_this_fit(result.model.guarantees)})
            self.privacy_ = with_totals(result.statement, totals, remarks)
        self._learn()
        self._note(result.evaluation)
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
        """Ask the silos once more, for this epsilon, and return every coefficient with its interval; `print` it.

        X, y, silos, persons and sample_weight are as in `fit`, and may be the same rows: they then pay for both.
        `by_silo` takes silos, not rows, for the draws. Squared and logistic losses, without ridge and clip.
        """
        check_is_fitted(self)
        problem, remarks = self._read(X, y, silos, persons, sample_weight)
        if problem.schema != self.plan_.data:
            raise EstimatorError("X and y must have the columns, and y the classes, that this model was fitted with.")
        names, cap = list(problem.silos), self._cap()
        require_level(level, len(names) if by_silo else None)
        epsilons, deltas = tables.per_silo("epsilon", epsilon, names), tables.per_silo("delta", delta, names)
        members = [Member(name, size, epsilons[name] or 0.0, deltas[name]) for name, size in problem.sizes().items()]
        plan = make_summary(self.plan_, self.model_.weights, members)
        if not self.unusual_budget:
            require_usual_plan(plan, cap, word="unusual_budget=True")
        totals, result = self._run(problem, plan, cap)
        statement = result.statement if self.ledgers is not None else with_totals(result.statement, totals, remarks)
        return summarise(statement, result.findings, level=level, by_silo=by_silo)

    def _read(self, X: Any, y: Any, silos: Any, persons: Any, weights: Any) -> tuple[FitData, dict[str, str]]:
        """Return the rows as records, and what a run's numbers do not count of them, by silo."""
        require_public_steps(self)
        rows = tables.join(X, y, silos, persons, weights)
        if self.ledgers is not None and not Path(self.ledgers).is_dir():
            raise EstimatorError(f"`ledgers` must name a folder that exists, but there is none at {self.ledgers}.")
        problem = self._problem(rows)
        return problem, remarks_on(problem, self.equal_rows, ledgers=self.ledgers is not None)

    def _plan(self, problem: FitData) -> Plan:
        request = self._request(problem.schema)
        return make_plan(problem.schema, self._members(problem, request), request)

    def _members(self, problem: FitData, request: PlanRequest) -> list[Member]:
        """Return the silos, with what each grants and holds out."""
        names = list(problem.silos)
        if problem.persons is None and (self.person_rule, self.rows_per_person) != (None, None):
            raise EstimatorError(
                "`person_rule` and `rows_per_person` say what a person's rows come to, but `fit` was not told whose "
                "each row is: give `persons`. Inside of scikit-learn's tools they take metadata routing and "
                "set_fit_request(persons=True)."
            )
        epsilons = tables.per_silo("epsilon", self.epsilon, names)
        deltas = tables.per_silo("delta", self.delta, names)
        members = []
        for name, size in problem.sizes().items():
            epsilon = epsilons[name]
            if epsilon is None or not epsilon > 0:
                raise EstimatorError(f"The epsilon of silo '{name}' must be a positive number.")
            try:
                training, held_out = request.divided(name, size)
            except PlanError as refused:
                raise EstimatorError(f"{refused} Here n_samples={size}; held_out=0 lets all of them train.") from None
            members.append(Member(name, training, epsilon, deltas[name], held_out=held_out))
        return members

    def _request(self, schema: Schema) -> PlanRequest:
        """Return what is asked of the plan; each estimator adds its loss, unless it is the usual one of the target."""
        del schema  # for those with a parameter in the target's units
        return PlanRequest(
            algorithm=None if self.algorithm == "auto" else self.algorithm,
            most_rounds=self.max_rounds,
            ridge=float(self.ridge),
            lasso=float(self.lasso),
            clip=None if self.clip is None else float(self.clip),
            person_rule=self.person_rule,
            rows_per_person=self.rows_per_person,
            held_out=self.held_out or 0.0,
        )

    def _cap(self) -> Budget | None:
        if self.cap is None or isinstance(self.cap, Budget):
            return self.cap
        try:
            epsilon, delta = map(float, self.cap)
        except (TypeError, ValueError):
            epsilon = delta = 0.0
        if not (0 < epsilon < np.inf and 0 < delta < 1):
            raise EstimatorError("`cap` must be (epsilon, delta): a positive number, and one between 0 and 1.")
        return Budget(epsilon, delta)

    def _settings(self) -> str:
        """Return what two fits must agree in to be the same question asked again."""
        settings = {name: value for name, value in self.get_params().items() if name not in _NO_QUESTION}
        return f"{type(self).__name__} {settings!r}"

    def _run(self, problem: FitData, plan: Plan, cap: Budget | None) -> tuple[dict[str, Budget], TrainingResult]:
        """Count the plan in this process's memory, then run it."""
        return self._counted(problem, [plan], cap, self._settings()), self._train(problem, plan, cap)

    def _counted(self, problem: FitData, plans: Sequence[Plan], cap: Budget | None, settings: str) -> dict[str, Budget]:
        """Count plans that are approved together in this process's memory, as one fit."""
        return MEMORY.charge(
            plans[0],
            problem.identities(),
            problem.owners(),
            problem.sections(plans[0].held_out),
            settings=f"{settings} for each {plans[0].unit}",
            others=plans[1:],
            cap=cap if self.ledgers is None else None,  # a ledger is an account of its own, and its gate the judge
            tuning=cap is not None,
            copies=self.equal_rows == "copies",
        )

    def _train(self, problem: FitData, plan: Plan, cap: Budget | None) -> TrainingResult:
        with self._silos(problem, cap) as silos:
            return train(plan, silos)

    @contextmanager
    def _silos(self, problem: FitData, cap: Budget | None) -> Iterator[dict[str, Silo]]:
        with ExitStack() as temporary:
            if self.ledgers is None:  # what outlives the fit is in the memory, which knows the cap
                folder, cap = Path(temporary.enter_context(tempfile.TemporaryDirectory(prefix="ringfence-"))), None
            else:
                folder = Path(self.ledgers)
            yield {
                name: Silo(
                    problem.part(name, marked=self.ledgers is not None),
                    folder / f"{name}.ledger",
                    cap,
                    new_beginning=self.new_beginning,
                )
                for name in problem.silos
            }

    # From a model to coefficients, and predictions.

    def _learn(self) -> None:
        linear = self.model_.linear()
        coefficients = linear.coefficients
        if self.schema is None:  # a schema sorts its columns by name
            places = {name: place for place, name in enumerate(linear.features)}
            coefficients = coefficients[:, [places[name] for name in self._column_names(self.n_features_in_)]]
        self.coef_ = coefficients
        self.intercept_ = linear.intercepts

    def _note(self, evaluation: EvaluationReport | None) -> None:
        """Keep the evaluation and its main figure; without one, forget that of a former fit."""
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
            X = tables.as_frame(X)
            if not tables.is_frame(X):
                raise EstimatorError("This model was fitted by a `schema`, so X must name its columns (pandas).")
            X = tables.without(X, self.schema.person)
            validate_data(self, X, reset=False, skip_check_array=True)
            matrix = self.model_.linear().matrix(frames.columns_of(X), source=SOURCE)
        scores: FloatArray = matrix @ np.atleast_2d(self.coef_).T + self.intercept_
        return scores


def documented(estimator: Estimator) -> Estimator:
    """Let the class's docstring go on with those of its bases, so that help shows every parameter."""
    shared = [base.__doc__ for base in estimator.__mro__ if issubclass(base, FederatedLinearModel)]
    estimator.__doc__ = "\n\n".join(inspect.cleandoc(text) for text in shared if text)
    return estimator
