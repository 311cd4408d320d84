"""Training on one table per silo, and asking these tables one query: files, ledgers and plans around `training`.

`ringfence train` calls `train_files`: it reads the files, lets `planning` propose a plan, and hands plan and silos to
`training.train`, or with several candidates to `choosing.train_and_choose`. Both run the rounds
through the silos' gates.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ringfence import sources
from ringfence.accounting.events import require_positive, require_probability
from ringfence.errors import PlanError, RecordsError, TrainingError
from ringfence.federation.choosing import train_and_choose
from ringfence.federation.local_shuffler import LocalShuffler, local_shuffler
from ringfence.federation.requests import AskRequest, ChargeOptions, LedgerOptions, TrainRequest
from ringfence.federation.tracking import marks
from ringfence.federation.training import ExactScores, Silo, TrainingResult, exact_scores, train
from ringfence.federation.unclamped import first_below
from ringfence.model.common_knots import common_features
from ringfence.model.model import Model
from ringfence.model.summary import Summary, require_level, summarise_coefficients
from ringfence.planning.explain import as_data
from ringfence.planning.noise_warnings import plan_warnings
from ringfence.planning.propose import Proposal, propose_for
from ringfence.planning.query_plans import make_evaluation_plan, make_summary_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.planning.search import CandidateRequest, SearchProposal, candidate_request, grid, propose_search
from ringfence.protocol import Plan, Schema, load_schema, pack
from ringfence.protocol.losses.targets import split_targets, values_of
from ringfence.protocol.plan import sections
from ringfence.rehearsal.quote import Quote, rehearse
from ringfence.server import state as learned
from ringfence.server.queries import column_distributions
from ringfence.server.rounds import RoundOutcome
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.ledger import Ledger
from ringfence.silo.operator.usual_budgets import require_usual, require_usual_plan
from ringfence.silo.records.records import Records, load_records

Planned: TypeAlias = Callable[[Sequence[Plan], Sequence[str]], None]
"""Called with the plans, and remarks to read before anything is charged."""

Quoted: TypeAlias = Callable[[Quote], None]
"""Called with what to expect, before anything is charged; what it raises stops that."""

PlanMaker: TypeAlias = Callable[[Sequence[Member]], Plan]
"""Makes the plan of a query from the silos that are asked."""

WatchPlan: TypeAlias = Callable[[Plan, RoundOutcome], None]
"""Called with every finished round of a plan."""


@dataclass(frozen=True)
class WorkflowResult:
    """The proposal of the plan, the result of the run, and its evaluation without noise, if one was asked for.

    `losses` has the mean loss on test records at the weights of some rounds; like `test`, it is not private. With
    several candidates, `proposal` is the best one's, and `division` has them all.
    """

    proposal: Proposal
    result: TrainingResult
    test: ExactScores | None
    quote: Quote
    losses: Mapping[int, float] = field(default_factory=dict)
    division: SearchProposal | None = None

    def report(self) -> dict[str, Any]:
        """Return the workflow's run as plain data for machines."""
        model, statement = self.result.model, self.result.statement
        report: dict[str, Any] = {
            "plan": model.plan.digest(),
            "loss": model.plan.loss.name,
            "algorithm": model.plan.algorithm.name,
            "sampling": model.plan.training_stages[0].sampling.name,
            "rounds": sum(plan.rounds for plan in statement.plans),
            "steps": model.plan.steps,
            **as_data(self.proposal),
            **self.quote.as_data(),
            "silos": {name: guarantee.model_dump(mode="json") for name, guarantee in statement.silos.items()},
            "findings": learned.as_data(self.result.findings),
            "wide_columns": column_distributions.remarks(self.result.findings),
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


def ask_files(
    request: AskRequest,
    schema: Schema,
    make: PlanMaker,
    *,
    rehearsed: Callable[[Plan], Quote] = rehearse,
    quoted: Quoted = lambda quote: None,
) -> TrainingResult:
    """Make a plan for the files' silos, rehearse it, and run it through their gates; each silo's ledger is charged.

    PlanError in a dry run, and, unless the request says `anyway`, if nothing useful is expected.
    """
    cap = _budget(request.cap)
    paths = silo_paths(request.files)
    records = {name: load_records(path, schema) for name, path in paths.items()}
    plan = make(request.members({name: len(own) for name, own in records.items()}))
    if not request.unusual_budget:
        require_usual_plan(plan, cap)
    _decide(request, rehearsed(plan), quoted)
    return train(plan, _silos(request, paths, records, cap))


def _decide(request: ChargeOptions, quote: Quote, quoted: Quoted) -> None:
    """Pass a quote on; PlanError in a dry run, or if what is expected is worth nothing and is not wanted anyway."""
    quoted(quote)
    if request.dry_run:
        raise PlanError(f"A dry run ends here. {quote}")
    if not request.anyway:
        quote.require_worth()


def evaluation_plan_maker(
    model: Model, *, against: Model | None = None, all_records: bool = False, figures: Sequence[str] | None = None
) -> PlanMaker:
    """Return a function from silos to the plan that evaluates the model, and compares it with `against`.

    The plan asks the records that training held out, or all with `all_records`. PlanError if the models do not predict
    the same thing from the same features.
    """
    asked = partial(make_evaluation_plan, all_records=all_records, figures=figures)
    if against is None:
        return partial(asked, model.placed_plan, model.weights)
    common = common_features(model, against) if against.plan.loss == model.plan.loss else None
    if common is None:
        raise PlanError(
            "The two models were trained with different schemas or losses, so their losses cannot be compared: "
            "evaluate each one separately."
        )
    plan = model.plan.model_copy(update={"data": common.data})
    return partial(asked, plan, pack(common.one), against=pack(common.other))


def exact_on_files(files: Sequence[Path], model: Model, *, all_records: bool = False) -> ExactScores:
    """Measure the model without noise on the records that its evaluation asks, for those who may see them."""
    share = 0.0 if all_records else model.plan.held_out or 0.0
    records = {name: load_records(path, model.data) for name, path in silo_paths(files).items()}
    return exact_scores(model, {name: _held_out(own, share) if share else own for name, own in records.items()})


def summarise_files(
    request: AskRequest,
    model: Model,
    *,
    level: float = 0.95,
    by_silo: bool = False,
    quoted: Quoted = lambda quote: None,
) -> Summary:
    """Ask every silo's file for second moments around the model's weights, and return coefficients with intervals."""
    require_level(level, len(request.files) if by_silo else None)
    make_plan = partial(make_summary_plan, model.placed_plan, model.weights)
    rehearsed = partial(rehearse, level=level, by_silo=by_silo)
    result = ask_files(request, model.data, make_plan, rehearsed=rehearsed, quoted=quoted)
    return summarise_coefficients(result.statement, result.findings, level=level, by_silo=by_silo)


def train_files(
    request: TrainRequest,
    *,
    planned: Planned = lambda plans, remarks: None,
    watch: WatchPlan = lambda plan, outcome: None,
    quoted: Quoted = lambda quote: None,
) -> WorkflowResult:
    """Read every silo's file, make a plan, train through the gates, and evaluate on held-out records.

    With `tries` there is a candidate for every combination of values, and the best on held-out records is returned; all
    of it costs what the request grants. `planned` gets the plans, and remarks to read before anything is charged, and
    `quoted` what a rehearsal lets expect. PlanError in a dry run, and, unless the request says `anyway`, for a model
    that is not expected to beat guessing. What cannot be done is refused before that, too.
    """
    with _loaded(request) as loaded:
        run = _search if request.tries else _train
        return run(request, loaded, planned, watch, quoted)


def _train(
    request: TrainRequest, loaded: "_Loaded", planned: Planned, watch: WatchPlan, quoted: Quoted
) -> WorkflowResult:
    """Propose a plan for the files' silos, train it, and measure the model on test records."""
    # With test files, no records need to be held out.
    held_out = 0.0 if request.tests and request.plan.held_out is None else request.plan.held_out
    proposal = propose_for(replace(loaded.plan, held_out=held_out), loaded.schema, loaded.sizes)
    plan, tests = proposal.plan, loaded.tests
    loaded.require_suited(plan)
    if not request.unusual_budget:
        require_usual_plan(plan, loaded.cap)
    planned([plan], plan_warnings(proposal))
    quote = rehearse(plan)
    _decide(request, quote, quoted)
    marked = marks(plan)
    losses: dict[int, float] = {}

    def observe(outcome: RoundOutcome) -> None:
        """Note the loss on test records in marked rounds of training on files, and pass the outcome on."""
        if tests and outcome.weights is not None and outcome.round in marked:
            matrix = plan.loss.matrix(outcome.weights, plan.data.width)
            data = plan.data if outcome.knots is None else plan.data.placed(outcome.knots)
            encoded = [test.encoded(data) for test in tests.values()]
            values = [values_of(plan.loss, test.features @ matrix, test.targets) for test in encoded]
            losses[outcome.round] = float(np.mean(np.concatenate(values)))
        watch(plan, outcome)

    collect = None if loaded.shuffler is None else loaded.shuffler.collect(plan)
    result = train(plan, loaded.silos, watch=observe, peer_to_peer=request.peer_to_peer, collect=collect)
    return WorkflowResult(proposal, result, loaded.measured(result.model), quote, losses)


def _search(
    request: TrainRequest, loaded: "_Loaded", planned: Planned, watch: WatchPlan, quoted: Quoted
) -> WorkflowResult:
    """Train all candidates of a search on the files' silos, compare them, and keep the best."""
    if request.peer_to_peer:
        raise PlanError("Candidates are compared by a server: remove --peer-to-peer, or train a single candidate.")
    candidates = [(own, candidate_request(loaded.plan, own)) for own in grid(request.tries)]
    proposed = propose_search(
        loaded.schema, [CandidateRequest(own, asked, asked.members(loaded.sizes)) for own, asked in candidates]
    )
    for candidate in proposed.candidates:
        loaded.require_suited(candidate.plan)
    if not request.unusual_budget:
        limits = () if loaded.cap is None else loaded.cap.limits
        for silo, promised in proposed.promised.items():
            require_usual([promised[0], *limits], len(loaded.silos[silo].records))
    planned(proposed.plans, [*proposed.explain(), *proposed.warnings()])
    quote = rehearse(proposed.comparison, *(each.plan for each in proposed.candidates))
    _decide(request, quote, quoted)
    collect = None if loaded.shuffler is None else loaded.shuffler.collect
    result, choice = train_and_choose(proposed, loaded.silos, watch=watch, collect=collect)
    best = proposed.candidates[choice.best]
    return WorkflowResult(best, result, loaded.measured(result.model), quote, division=proposed)


@dataclass(frozen=True)
class _Loaded:
    """The files of a request: silos, the request for a plan, and records to measure on without noise."""

    schema: Schema
    plan: PlanRequest
    silos: Mapping[str, Silo]
    named_tests: Mapping[str, Records]
    exact: bool
    cap: Budget | None
    shuffler: LocalShuffler | None

    @property
    def sizes(self) -> dict[str, int]:
        """Records of every silo whose file was loaded."""
        return {name: len(silo.records) for name, silo in self.silos.items()}

    @cached_property
    def tests(self) -> Mapping[str, Records]:
        """Records to measure on without noise: test files, or held-out records; TrainingError if there are none."""
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
        """Raise RecordsError if a target is outside the loss's range: the caller may see all files.

        A gate does not check this: its answer would depend on a record.
        """
        loss = plan.loss
        for name, silo in self.silos.items():
            row = first_below(silo.records, loss.takes_least)
            if row is not None:
                where = f"row {row + 2}, " if silo.records.persons is None else ""
                least = "above 0" if loss.takes_least > 0 else "0 or more"
                raise RecordsError(
                    f"Silo '{name}', {where}column '{plan.data.target}': the value is not {least}, as the {loss.name} "
                    "loss requires. Correct it, remove the row, or choose another --loss."
                )
        if loss.target_kind == "time" and not any(
            split_targets(own.records.targets).targets[:, 1].any() for own in self.silos.values()
        ):
            raise RecordsError(
                f"All times in '{plan.data.target}' are censored: without a single event there is no hazard to learn. "
                "Observe for longer, or correct the events."
            )

    def measured(self, model: Model) -> ExactScores | None:
        """Return the model's scores on the loaded test records without noise, if there are any."""
        return exact_scores(model, self.tests) if self.tests else None


def _held_out(records: Records, share: float) -> Records:
    """Return the held-out section of a file's records."""
    return records.take(sections.members("held-out", len(records), share))


@contextmanager
def _loaded(request: TrainRequest) -> Iterator[_Loaded]:
    """Read the schema and every file of a training request, and open the silos, with a shuffler if it asks for one."""
    cap = _budget(request.cap)
    paths = silo_paths(request.files)
    schema = load_schema(request.schema, request.target, lambda: sources.header(next(iter(paths.values()))))
    for name in request.tests:
        if name not in paths:
            raise PlanError(f"There is no silo '{name}'; the silos are {', '.join(paths)}.")
    records = {name: load_records(path, schema) for name, path in paths.items()}
    tests = {name: load_records(path, schema) for name, path in request.tests.items()}
    with _shuffler(request.plan, paths) as shuffler:
        silos = _silos(request, paths, records, cap, {} if shuffler is None else shuffler.silos)
        plan = request.plan if shuffler is None else replace(request.plan, keys=shuffler.keys)
        yield _Loaded(schema, plan, silos, tests, request.exact, cap, shuffler)


def _silos(
    request: LedgerOptions,
    paths: Mapping[str, Path],
    records: Mapping[str, Records],
    cap: Budget | None,
    keys: Mapping[str, bytes] | None = None,
) -> dict[str, Silo]:
    """Return the silos, each with its ledger: one of `same_data_as`, or in the ledgers' folder, or beside the table."""
    named: dict[str, Path] = {}
    for path in request.same_data_as:
        with Ledger.open(path, marked=False) as ledger:
            owner = ledger.account().silo
        if owner not in paths:
            raise RecordsError(
                f"The ledger {path} belongs to silo '{owner}', but none of these files is named after it. Rename the "
                f"silo's file to {owner}.csv, or link to it under that name."
            )
        named[owner] = path
    return {
        name: Silo(
            own,
            named.get(name, (request.ledgers or paths[name].parent) / f"{name}.ledger"),
            cap,
            (keys or {}).get(name),
            request.new_beginning,
            is_their_ledger=name in named,
        )
        for name, own in records.items()
    }


def _shuffler(request: PlanRequest, silos: Iterable[str]) -> AbstractContextManager[LocalShuffler | None]:
    """Return a shuffler in this process if the plan trusts one, for which a single process runs all parties."""
    if request.trust == "nobody":
        return nullcontext()
    if request.keys is not None:
        raise PlanError("A run in one process makes its own keys: remove --keys.")
    return local_shuffler(silos)


def _budget(cap: Sequence[float] | None) -> Budget | None:
    """Return the workflow's cap on all runs as a budget: epsilon, delta, and optionally epsilon against everybody."""
    if cap is None:
        return None
    epsilon, delta, *alone = cap
    require_positive("the cap's epsilon", epsilon)
    return Budget(epsilon, require_probability("the cap's delta", delta), anyone=alone[0] if alone else None)


def silo_paths(files: Sequence[Path]) -> dict[str, Path]:
    """Name each silo by its file's stem."""
    paths: dict[str, Path] = {}
    for path in files:
        name = path.with_suffix("").stem if path.suffix == ".gz" else path.stem
        if name in paths:
            raise RecordsError(f"Two files are named '{name}', and a silo is named after its file: rename one of them.")
        paths[name] = path
    return paths
