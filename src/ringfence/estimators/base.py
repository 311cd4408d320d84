"""What the estimators share: from X, y and silos to a plan, through the gates, to coefficients in X's own units."""

import inspect
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from pydantic import ValidationError
from sklearn.base import BaseEstimator, is_regressor
from sklearn.utils.validation import check_is_fitted, validate_data

from ringfence.errors import EstimatorError
from ringfence.estimators import tables
from ringfence.estimators.fit_data import SOURCE, FitData
from ringfence.estimators.parameters import Parameters
from ringfence.estimators.session import MEMORY
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.planning.summaries import make_summary
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.plan import Plan
from ringfence.protocol.public import explain
from ringfence.protocol.schema import Categorical, Column, Numeric, Schema
from ringfence.silo.budget import Budget
from ringfence.silo.consent import require_usual_plan
from ringfence.statement import SiloGuarantee, Statement
from ringfence.summary import Summary, require_level, summarise
from ringfence.training import Silo, TrainingResult, train

Estimator = TypeVar("Estimator", bound=type)

_NO_QUESTION = {"cap", "ledgers", "equal_rows", "new_beginning", "unusual_budget"}
"""Parameters in which two fits that ask the same may differ."""


class FederatedLinearModel(Parameters, BaseEstimator, ABC):  # type: ignore[misc]  # scikit-learn ships no types
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
    clip : where a row's gradient is cut; by default a public rule
    fit_intercept : whether to learn a constant
    person_rule : "mean" (the default), "rows" or "sum"
        What a person's rows come to in a gradient, where `fit` is told whose they are: the mean of the cut gradients;
        the sum of the first `rows_per_person`, divided by that number; or the sum of all, cut as one. Once named, `fit`
        insists on `persons`.
    rows_per_person : how many rows of a person count at most, by the rule "rows"
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
    plan_ : the public plan that every silo approved
    history_ : who answered in which round
    model_ : the model as `Model.save` writes it, with plan and statement, free of any record
    n_features_in_, feature_names_in_ : as everywhere in scikit-learn

    `score` measures on the records that it is given, without noise: it is not private.
    """

    coef_: FloatArray
    intercept_: Any  # an array, or for a regressor a float

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True  # real noise has no seed
        return tags

    def fit(self, X: Any, y: Any, silos: Any = None, persons: Any = None) -> Self:
        """Train on the silos' rows through their gates.

        Parameters
        ----------
        X : one table (NumPy, pandas), a list of one table per silo, or a mapping from silo to table
        y : the targets, in the same form
        silos : a silo's label per row (per table, if X is a list); without it, all rows are one silo's
        persons : whose each row is, as a label per row, in the same form as y
            With it, the guarantee is for each person; without it, for each row. Equal labels are one person, in all
            silos and all fits. With a `schema` that names the column of persons, X may have that column instead.
        """
        X, y, labels, persons = tables.join(X, y, silos, persons)
        if self.ledgers is not None and not Path(self.ledgers).is_dir():
            raise EstimatorError(f"`ledgers` must name a folder that exists, but there is none at {self.ledgers}.")
        problem = self._problem(X, y, labels, persons)
        remarks = self._remarks(problem)
        plan = self._plan(problem)
        cap = self._cap()
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
            self.model_ = result.model.model_copy(update={"guarantees": _of_this_fit(result.model.guarantees)})
            self.privacy_ = _with_totals(result.statement, totals, remarks)
        self._learn()
        return self

    def summary(
        self,
        X: Any,
        y: Any,
        silos: Any = None,
        persons: Any = None,
        *,
        epsilon: Any,
        delta: Any = None,
        level: float = 0.95,
        by_silo: bool = False,
    ) -> Summary:
        """Ask the silos once more, for this epsilon, and return every coefficient with its interval; `print` it.

        X, y, silos and persons are as in `fit`, and may be the same rows: they then pay for both. `by_silo` takes
        silos, not rows, for the draws. Squared and logistic losses, without ridge and clip.
        """
        check_is_fitted(self)
        X, y, labels, persons = tables.join(X, y, silos, persons)
        problem = self._problem(X, y, labels, persons)
        if problem.schema != self.plan_.data:
            raise EstimatorError("X and y must have the columns, and y the classes, that this model was fitted with.")
        remarks, names, cap = self._remarks(problem), list(problem.silos), self._cap()
        require_level(level, len(names) if by_silo else None)
        epsilons, deltas = tables.per_silo("epsilon", epsilon, names), tables.per_silo("delta", delta, names)
        members = [Member(name, size, epsilons[name] or 0.0, deltas[name]) for name, size in problem.sizes().items()]
        plan = make_summary(self.plan_, self.model_.weights, members)
        if not self.unusual_budget:
            require_usual_plan(plan, cap, word="unusual_budget=True")
        totals, result = self._run(problem, plan, cap)
        statement = result.statement if self.ledgers is not None else _with_totals(result.statement, totals, remarks)
        return summarise(statement, result.findings, level=level, by_silo=by_silo)

    # What the kinds of estimators differ in.

    @abstractmethod
    def _target(self, y: Any) -> tuple[Any, Column]:
        """Return the target's cells and its public column; only where there is no schema."""

    @abstractmethod
    def _targets_by_schema(self, y: Any, column: Numeric | Categorical) -> list[str]:
        """Return the target's cells as text, to be read by the schema."""

    # From arguments to a problem.

    def _problem(self, X: Any, y: Any, labels: tables.Labels, persons: Any) -> FitData:
        if self.schema is not None:
            return self._problem_by_schema(self.schema, X, y, labels, persons)
        if self.bounds is None:
            raise EstimatorError(
                "`bounds` is missing: say between which values every feature lies, as bounds=(lower, upper), from "
                "public knowledge (a code book, a law, common sense), or give a `schema`. They are not taken from X, "
                "because bounds read from private records leak them. They need not be tight."
            )
        target_name = getattr(y, "name", None)
        with _hiding_values():
            X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=is_regressor(self))
        names = self._column_names(X.shape[1])
        target = tables.unused(target_name, "target", names)
        cells, column = self._target(y)
        columns: dict[str, Column] = {**self._numeric_columns(names), target: column}
        intercept = 1.0 if self.fit_intercept else 0.0
        try:
            schema = Schema(columns=columns, target=target, intercept=intercept, person=_person(persons, columns))
        except ValidationError as refused:
            raise EstimatorError(f"No schema can be made of `bounds` and the target: {explain(refused)}.") from None
        table: Any = {**dict(zip(names, X.T, strict=True)), target: cells}  # numbers need not go through text
        return FitData.of(schema, table, list(tables.row_bytes(X)), labels, tables.owners(persons, len(X)))

    def _problem_by_schema(self, schema: Schema, X: Any, y: Any, labels: tables.Labels, persons: Any) -> FitData:
        if self.bounds is not None:
            raise EstimatorError("Both `bounds` and `schema` are given, which say the same: leave one out.")
        if not tables.is_frame(X):
            raise EstimatorError("A `schema` describes columns by name, so X must be a table that names them (pandas).")
        if y is None:
            raise EstimatorError("y is missing: estimators here learn from targets, so `fit` needs both X and y.")
        if schema.person is None:
            schema = schema.model_copy(update={"person": _person(persons, schema.columns)})
        elif (schema.person in X.columns) == (persons is not None):
            raise EstimatorError(
                f"By the schema, the column '{schema.person}' tells whose a row is: give it in X, or its cells as "
                "`persons`, one of both."
            )
        elif persons is None:
            persons = X[schema.person]
        validate_data(self, tables.without(X, schema.person), skip_check_array=True)  # notes the columns' names
        table = tables.cells(X)
        identity = list(tables.row_bytes(table))
        targets = self._targets_by_schema(y, schema.target_column)
        if len(targets) != len(identity):
            raise EstimatorError(f"X has {len(identity)} rows, and y has {len(targets)}.")
        if not self.fit_intercept:
            schema = schema.model_copy(update={"intercept": 0.0})
        owners = tables.owners(persons, len(identity))
        return FitData.of(schema, {**table, schema.target: targets}, identity, labels, owners)

    def _column_names(self, count: int) -> list[str]:
        if hasattr(self, "feature_names_in_"):
            return [str(name) for name in self.feature_names_in_]
        return [f"x{place}" for place in range(count)]

    def _numeric_columns(self, names: list[str]) -> dict[str, Column]:
        if isinstance(self.bounds, Mapping):
            if set(self.bounds) != set(names):
                raise EstimatorError(f"`bounds` must name every column of X, and no other: {', '.join(names)}.")
            pairs = [self.bounds[name] for name in names]
        else:
            try:
                lower, upper = (np.broadcast_to(np.asarray(side, dtype=np.float64), len(names)) for side in self.bounds)
            except (TypeError, ValueError):
                raise EstimatorError(
                    f"`bounds` must be (lower, upper): two numbers, or two sequences of {len(names)} numbers, one per "
                    "column of X."
                ) from None
            pairs = list(zip(lower, upper, strict=True))
        return {name: interval(f"`bounds` of column '{name}'", pair) for name, pair in zip(names, pairs, strict=True)}

    def _plan(self, problem: FitData) -> Plan:
        return make_plan(problem.schema, self._members(problem), self._request(problem.schema))

    def _members(self, problem: FitData) -> list[Member]:
        """Return the silos, with what each grants."""
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
            members.append(Member(name, size, epsilon, deltas[name]))
        return members

    def _request(self, schema: Schema) -> PlanRequest:
        """Return what is asked of the plan; each estimator adds its loss, unless it is the usual one of the target."""
        del schema  # for those with a parameter in the target's units
        return PlanRequest(
            algorithm=None if self.algorithm == "auto" else self.algorithm,
            most_rounds=self.max_rounds,
            ridge=float(self.ridge),
            clip=None if self.clip is None else float(self.clip),
            person_rule=self.person_rule,
            rows_per_person=self.rows_per_person,
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

    def _remarks(self, problem: FitData) -> dict[str, str]:
        """Return, by silo, what one record or person has more of than this run's numbers count.

        A ledger, which counts what its own silo releases, by the row or by the person, can count neither.
        """
        if self.equal_rows not in ("copies", "records"):
            raise EstimatorError('`equal_rows` must be "copies" or "records".')
        if problem.persons is not None:
            most, remark, refusal = problem.spread(), _SPREAD, _SPREAD_REFUSED
        elif self.equal_rows == "copies":
            most, remark, refusal = problem.copies(), _COPIES, _COPIES_REFUSED
        else:
            return {}
        several = {name: number for name, number in most.items() if number > 1}
        if several and self.ledgers is not None:
            raise EstimatorError(refusal.format(silo=next(iter(several))))
        return {name: remark.format(number=number) for name, number in several.items()}

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

    def _scores(self, X: Any) -> FloatArray:
        """Return X @ coef_.T + intercept_, one column per output."""
        check_is_fitted(self)
        if self.schema is None:
            with _hiding_values():
                matrix: FloatArray = validate_data(self, X, reset=False, dtype=np.float64)
        else:
            if not tables.is_frame(X):
                raise EstimatorError("This model was fitted by a `schema`, so X must name its columns (pandas).")
            X = tables.without(X, self.schema.person)
            validate_data(self, X, reset=False, skip_check_array=True)
            matrix = self.model_.linear().matrix(tables.cells(X), source=SOURCE)
        scores: FloatArray = matrix @ np.atleast_2d(self.coef_).T + self.intercept_
        return scores


@contextmanager
def _hiding_values() -> Iterator[None]:
    """Let scikit-learn check X and y, but not quote the cell that is no number."""
    try:
        yield
    except ValueError as problem:
        if "could not convert" not in str(problem):
            raise
        raise EstimatorError(
            "X, or a numeric target, holds text that is not a number. Encode it by a public list of categories "
            "(OneHotEncoder(categories=[...]), or a `schema`), never by one learned from the records."
        ) from None


def documented(estimator: Estimator) -> Estimator:
    """Let the class's docstring go on with those of its bases, so that help shows every parameter."""
    shared = [base.__doc__ for base in estimator.__mro__ if issubclass(base, FederatedLinearModel)]
    estimator.__doc__ = "\n\n".join(inspect.cleandoc(text) for text in shared if text)
    return estimator


def interval(what: str, pair: Any) -> Numeric:
    """Return the column of numbers between the two of a pair."""
    try:
        lower, upper = map(float, pair)
        return Numeric(lower=lower, upper=upper)
    except ValidationError as refused:
        raise EstimatorError(f"{what}: {explain(refused)}.") from None
    except (TypeError, ValueError):
        raise EstimatorError(f"{what} must be two numbers, lower and upper.") from None


def _of_this_fit(guarantees: Mapping[str, SiloGuarantee]) -> dict[str, SiloGuarantee]:
    return {name: guarantee.model_copy(update={"used": ()}) for name, guarantee in guarantees.items()}


def _person(persons: Any, taken: Collection[str]) -> str | None:
    """Return a public name for the column that `persons` is, if it is given."""
    return None if persons is None else tables.unused(getattr(persons, "name", None), "person", taken)


def _with_totals(statement: Statement, totals: Mapping[str, Budget], remarks: Mapping[str, str]) -> Statement:
    silos = {  # the memory composes what was used, which is no guarantee of all fits
        name: guarantee.model_copy(
            update={
                "all_runs": totals[name].limits,
                "remarks": (*guarantee.remarks, *([remarks[name]] if name in remarks else [])),
            }
        )
        for name, guarantee in _of_this_fit(statement.silos).items()
    }
    return replace(statement, silos=silos)


_COPIES = (
    "A row occurs {number} times in this fit. The numbers of this run are for one row; the total of all runs counts "
    "{number} copies of one record. If rows with equal features are different records, say equal_rows='records'."
)
_COPIES_REFUSED = (
    "Rows of silo '{silo}' have equal features, and a ledger charges every row as a record of its own. Nothing was "
    "released. If they are copies of one record, as in a bootstrap sample, leave out all but one, or fit without "
    "`ledgers`; if they are different records, say equal_rows='records'."
)
_SPREAD = (
    "A person has rows in {number} silos of this fit. The numbers of this run are for a person's rows in one silo; the "
    "total of all runs counts what all these silos released. If one label means different persons in different silos, "
    "make their labels differ."
)
_SPREAD_REFUSED = (
    "A person of silo '{silo}' has rows in other silos too, and a ledger counts what its own silo releases. Nothing "
    "was released. Give all rows of a person to one silo, or fit without `ledgers`; if a person of one silo is all "
    "that is to be protected, or one label means different persons, make the labels of different silos differ."
)
