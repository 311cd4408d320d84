"""From one CSV file per silo to a trained model: what `ringfence train` does."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ringfence import sources
from ringfence.accounting.events import require_positive, require_probability
from ringfence.choosing import choose
from ringfence.errors import AccountingError, PlanError, RecordsError, TrainingError
from ringfence.model import Model
from ringfence.planning.candidates import candidate_request, grid
from ringfence.planning.choices import CandidatePlan, ChoiceProposal, propose_choice
from ringfence.planning.evaluations import make_evaluation
from ringfence.planning.explain import as_data
from ringfence.planning.propose import Proposal, propose_for
from ringfence.planning.request import Member, PlanRequest
from ringfence.planning.summaries import make_summary
from ringfence.protocol import sections
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.losses.told import told, values_of
from ringfence.protocol.plan import Plan
from ringfence.protocol.schema import Schema, load_schema
from ringfence.server import learned
from ringfence.server.rounds import RoundOutcome
from ringfence.silo.budget import Budget
from ringfence.silo.consent import require_usual, require_usual_plan
from ringfence.silo.ledger import Ledger
from ringfence.silo.records import Records, load_records
from ringfence.summary import Summary, require_level, summarise
from ringfence.tracking import marks
from ringfence.training import ExactScores, Silo, TrainingResult, exact_scores, train

if TYPE_CHECKING:
    from ringfence.local_shuffler import LocalShuffler


@dataclass(frozen=True)
class TrainRequest:
    """Which files to train on, what to predict, what is asked of the plan, and how to test.

    `exact` measures the model without noise on the held-out records, and `tests` on files of their own: for whoever
    may see those.
    """

    files: Sequence[Path]
    schema: Path
    target: str | Sequence[str]
    plan: PlanRequest
    exact: bool = False
    tests: Mapping[str, Path] = field(default_factory=dict)
    ledgers: Path | None = None
    same_data_as: Sequence[Path] = ()
    new_beginning: str = ""
    cap: tuple[float, ...] | None = None
    unusual_budget: bool = False
    peer_to_peer: bool = False


@dataclass(frozen=True)
class WorkflowResult:
    """The plan and why it is as it is, the result of the run, and its evaluation, if there was one.

    `losses` has the mean loss on the held-out records, by round, at the public weights of some rounds: not
    private, like `test`. Where the model was chosen from candidates, `proposal` is the best one's, and `division` has
    them all.
    """

    proposal: Proposal
    result: TrainingResult
    test: ExactScores | None
    losses: Mapping[int, float] = field(default_factory=dict)
    division: ChoiceProposal | None = None

    def report(self) -> dict[str, Any]:
        """Return the run as plain data for machines."""
        model, statement = self.result.model, self.result.statement
        report: dict[str, Any] = {
            "plan": model.plan.digest(),
            "loss": model.plan.loss.name,
            "algorithm": model.plan.algorithm.name,
            "sampling": model.plan.training_stages[0].sampling.name,
            "rounds": model.plan.steps,
            **as_data(self.proposal),
            "silos": {name: guarantee.model_dump(mode="json") for name, guarantee in statement.silos.items()},
            "findings": learned.as_data(self.result.findings),
        }
        if model.choice is not None:
            report["choice"] = model.choice.model_dump(mode="json", exclude={"plans"})
        if self.division is not None:
            report["explanation"] = [*self.division.explain(), *report["explanation"]]
            report["warnings"] = self.division.warnings()
        if self.result.evaluation is not None:
            report["evaluation"] = self.result.evaluation.model_dump(mode="json")
        if self.test is not None:
            report |= self.test.as_data()
        return report


@dataclass(frozen=True)
class AskRequest:
    """Which files to ask one question about, what it may cost every silo, and where its ledger is.

    `cap` is the most that all runs on a silo's data may cost together.
    """

    files: Sequence[Path]
    epsilon: float
    delta: float | None = None
    ledgers: Path | None = None
    same_data_as: Sequence[Path] = ()
    new_beginning: str = ""
    unusual_budget: bool = False
    cap: tuple[float, ...] | None = None


def ask_files(request: AskRequest, schema: Schema, make: Callable[[Sequence[Member]], Plan]) -> TrainingResult:
    """Make a plan for the files' silos, and run it through their gates; each silo's ledger is charged."""
    cap = None if request.cap is None else _cap(*request.cap)
    paths = silo_paths(request.files)
    records = {name: load_records(path, schema) for name, path in paths.items()}
    plan = make([Member(name, len(own), request.epsilon, request.delta) for name, own in records.items()])
    if not request.unusual_budget:
        require_usual_plan(plan, cap)
    places = _places(paths, request.ledgers, request.same_data_as)
    silos = {
        name: Silo(
            own, places[name].path, cap, new_beginning=request.new_beginning, is_their_ledger=places[name].is_named
        )
        for name, own in records.items()
    }
    return train(plan, silos)


def evaluate_files(
    request: AskRequest, model: Model, *, against: Model | None = None, all_records: bool = False
) -> TrainingResult:
    """Ask every silo's file how well the model predicts, and how much better than another, if one is given.

    Where the model's training held records out, these are asked, unless `all_records` are wanted.
    """
    require_comparable(model, against)
    other = None if against is None else against.weights
    return ask_files(
        request,
        model.plan.data,
        lambda members: make_evaluation(model.plan, model.weights, members, against=other, all_records=all_records),
    )


def exact_on_files(files: Sequence[Path], model: Model, *, all_records: bool = False) -> ExactScores:
    """Measure the model without noise on the records that `evaluate_files` asks: for whoever may see those."""
    share = 0.0 if all_records else model.plan.held_out or 0.0
    records = {name: load_records(path, model.plan.data) for name, path in silo_paths(files).items()}
    return exact_scores(model, {name: _held_out(own, share) if share else own for name, own in records.items()})


def require_comparable(model: Model, against: Model | None) -> None:
    """Refuse to compare models that do not predict the same thing from the same features."""
    if against is not None and (against.plan.data, against.plan.loss) != (model.plan.data, model.plan.loss):
        raise PlanError(
            "The two models were trained with different schemas or losses, so their losses cannot be compared: "
            "evaluate each one separately."
        )


def summarise_files(request: AskRequest, model: Model, *, level: float = 0.95, by_silo: bool = False) -> Summary:
    """Ask every silo's file for second moments around the model's weights, and return coefficients with intervals."""
    require_level(level, len(request.files) if by_silo else None)
    result = ask_files(request, model.plan.data, lambda members: make_summary(model.plan, model.weights, members))
    return summarise(result.statement, result.findings, level=level, by_silo=by_silo)


def train_files(
    request: TrainRequest,
    *,
    planned: Callable[[Proposal], None] = lambda proposal: None,
    watch: Callable[[RoundOutcome], None] = lambda outcome: None,
) -> WorkflowResult:
    """Load every silo's file, make a plan, train through the gates, and evaluate on held-out records."""
    losses: dict[int, float] = {}

    def observe(outcome: RoundOutcome) -> None:
        if tests and outcome.weights is not None and outcome.round in marked:
            losses[outcome.round] = _held_out_loss(proposal.plan, outcome.weights, tests)
        watch(outcome)

    with _loaded(request) as loaded:
        # Whoever names test files need not hold records out as well.
        held_out = 0.0 if request.tests and request.plan.held_out is None else request.plan.held_out
        proposal = propose_for(replace(loaded.plan, held_out=held_out), loaded.schema, loaded.sizes)
        tests = loaded.tests
        loaded.require_suited(proposal.plan)
        if not request.unusual_budget:
            require_usual_plan(proposal.plan, loaded.cap)
        planned(proposal)
        marked = marks(proposal.plan)
        collect = None if loaded.shuffler is None else loaded.shuffler.collect(proposal.plan)
        result = train(proposal.plan, loaded.silos, watch=observe, peer_to_peer=request.peer_to_peer, collect=collect)
    return WorkflowResult(proposal, result, loaded.measured(result.model), losses)


def choose_files(
    request: TrainRequest,
    tries: Mapping[str, Sequence[Any]],
    *,
    planned: Callable[[ChoiceProposal], None] = lambda proposal: None,
    watch: Callable[[Plan, RoundOutcome], None] = lambda plan, outcome: None,
) -> WorkflowResult:
    """Train a candidate for every combination of what is tried, compare them on held-out records, return the best.

    All of it together costs what the request grants. Everything that cannot be is refused before anything is spent.
    """
    if request.peer_to_peer:
        raise PlanError("Candidates are compared by a server: remove --peer-to-peer, or train a single candidate.")
    settings = grid(tries)
    with _loaded(request) as loaded:
        asked = [candidate_request(loaded.plan, own) for own in settings]
        proposed = propose_choice(
            loaded.schema,
            [CandidatePlan(*each, each[1].members(loaded.sizes)) for each in zip(settings, asked, strict=True)],
        )
        for candidate in proposed.candidates:
            loaded.require_suited(candidate.plan)
        if not request.unusual_budget:
            for silo, promised in proposed.promised.items():
                require_usual(
                    [promised[0], *(() if loaded.cap is None else loaded.cap.limits)], len(loaded.silos[silo].records)
                )
        planned(proposed)
        collect = None if loaded.shuffler is None else loaded.shuffler.collect
        chosen = choose(proposed, loaded.silos, watch=watch, collect=collect)
    return WorkflowResult(chosen.proposal, chosen.result, loaded.measured(chosen.result.model), division=proposed)


@dataclass(frozen=True)
class _Loaded:
    """A request's files, read: the silos behind their gates, what is asked of a plan, and records to measure on."""

    schema: Schema
    plan: PlanRequest
    silos: Mapping[str, Silo]
    named_tests: Mapping[str, Records]
    exact: bool
    cap: Budget | None
    shuffler: "LocalShuffler | None"

    @property
    def sizes(self) -> dict[str, int]:
        """How many records every silo has."""
        return {name: len(silo.records) for name, silo in self.silos.items()}

    @cached_property
    def tests(self) -> Mapping[str, Records]:
        """What to measure on without noise: files of their own, or the held-out records; TrainingError if none is."""
        if self.named_tests or not self.exact:
            return self.named_tests
        share = self.plan.held_out_share
        if not share:
            raise TrainingError(
                "--exact measures on held-out records, but none is held out: set --held-out above 0, or give test "
                "files."
            )
        return {name: _held_out(silo.records, share) for name, silo in self.silos.items()}

    def require_suited(self, plan: Plan) -> None:
        """Raise RecordsError if targets are none that the plan's loss is of: who trains on all files may see them all.

        A gate does not look: what it answered would depend on a record.
        """
        loss = plan.loss
        for name, silo in self.silos.items():
            row = silo.records.first_below(loss.takes_least)
            if row is not None:
                where = f"row {row + 2}, " if silo.records.persons is None else ""
                least = "above 0" if loss.takes_least > 0 else "0 or more"
                raise RecordsError(
                    f"Silo '{name}', {where}column '{plan.data.target}': the value is not {least}, as the {loss.name} "
                    "loss requires. Correct it, remove the row, or choose another --loss."
                )
        if loss.target_kind == "time" and not any(
            told(own.records.targets).events.any() for own in self.silos.values()
        ):
            raise RecordsError(
                f"All times in '{plan.data.target}' are censored: without a single event there is no hazard to learn. "
                "Observe for longer, or correct the events."
            )

    def measured(self, model: Model) -> ExactScores | None:
        """Return how good the model is without noise, if that is to be measured."""
        return exact_scores(model, self.tests) if self.tests else None


def _held_out(records: Records, share: float) -> Records:
    return records.take(sections.members("held-out", len(records), share))


@contextmanager
def _loaded(request: TrainRequest) -> Iterator[_Loaded]:
    cap = None if request.cap is None else _cap(*request.cap)
    paths = silo_paths(request.files)
    schema = load_schema(request.schema, request.target, lambda: sources.header(next(iter(paths.values()))))
    for name in request.tests:
        if name not in paths:
            raise PlanError(f"There is no silo '{name}'; the silos are {', '.join(paths)}.")
    records = {name: load_records(path, schema) for name, path in paths.items()}
    tests = {name: load_records(path, schema) for name, path in request.tests.items()}
    places = _places(paths, request.ledgers, request.same_data_as)
    with _shuffler(request.plan, paths) as shuffler:
        silos = {
            name: Silo(
                own,
                places[name].path,
                cap,
                None if shuffler is None else shuffler.silos[name],
                request.new_beginning,
                places[name].is_named,
            )
            for name, own in records.items()
        }
        plan = request.plan if shuffler is None else replace(request.plan, keys=shuffler.keys)
        yield _Loaded(schema, plan, silos, tests, request.exact, cap, shuffler)


def what_if(request: PlanRequest, plan: Plan) -> dict[float, Proposal]:
    """Return what the planner would propose for the plan's silos with other budgets, by the factor on every epsilon.

    Numbers only: no record is looked at. A factor for which there is no plan is left out.
    """
    sizes = {terms.name: terms.records for terms in plan.silos}
    request = replace(request, keys=plan.keys)
    proposals: dict[float, Proposal] = {}
    for factor in (0.25, 0.5, 1.0, 2.0, 4.0):
        budgets = {name: (factor * epsilon, delta) for name, (epsilon, delta) in request.budgets.items()}
        epsilon = None if request.epsilon is None else factor * request.epsilon
        with suppress(PlanError, AccountingError):
            proposals[factor] = propose_for(replace(request, epsilon=epsilon, budgets=budgets), plan.data, sizes)
    return proposals


def _held_out_loss(plan: Plan, weights: FloatArray, tests: Mapping[str, Records]) -> float:
    matrix = plan.loss.matrix(weights, plan.data.width)
    values = [values_of(plan.loss, test.features @ matrix, test.targets) for test in tests.values()]
    return float(np.mean(np.concatenate(values)))


def _shuffler(request: PlanRequest, silos: Iterable[str]) -> "AbstractContextManager[LocalShuffler | None]":
    """Return a shuffler of this process if the plan is to trust one: whoever trains on all files runs all parties."""
    if request.trust == "nobody":
        return nullcontext()
    if request.keys is not None:
        raise PlanError("A run in one process makes its own keys: remove --keys.")
    try:
        from ringfence.local_shuffler import local_shuffler
    except ModuleNotFoundError as missing:
        raise TrainingError(
            f"Sealing needs '{missing.name}', which is not installed: pip install \"ringfence[deployment]\"."
        ) from None
    return local_shuffler(silos)


def _cap(epsilon: float, delta: float, anyone: float | None = None) -> Budget:
    require_positive("the cap's epsilon", epsilon)
    return Budget(epsilon, require_probability("the cap's delta", delta), anyone=anyone)


class _Place(NamedTuple):
    """Where a silo's ledger is, and whether somebody named it as that of the silo's records."""

    path: Path
    is_named: bool = False


def _places(paths: Mapping[str, Path], ledgers: Path | None, named: Sequence[Path]) -> dict[str, _Place]:
    """Return where every silo's ledger is: where it was named, else in the ledgers' folder, else beside the data."""
    places = {name: _Place((ledgers or path.parent) / f"{name}.ledger") for name, path in paths.items()}
    for path in named:
        with Ledger.open(path) as ledger:
            owner = ledger.account().silo
        if owner not in places:
            raise RecordsError(
                f"The ledger {path} belongs to silo '{owner}', but none of these files is named after it. Rename the "
                f"silo's file to {owner}.csv, or link to it under that name."
            )
        places[owner] = _Place(path, is_named=True)
    return places


def silo_paths(files: Sequence[Path]) -> dict[str, Path]:
    """Name each silo by its file's stem."""
    paths: dict[str, Path] = {}
    for path in files:
        name = path.with_suffix("").stem if path.suffix == ".gz" else path.stem
        if name in paths:
            raise RecordsError(f"Two files are named '{name}', and a silo is named after its file: rename one of them.")
        paths[name] = path
    return paths
