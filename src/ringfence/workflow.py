"""From one CSV file per silo to a trained model: what `ringfence train` does."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ringfence.errors import PlanError, RecordsError
from ringfence.planning.prescribe import Wishes, plan_for
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.plan import Plan
from ringfence.protocol.schema import load_schema
from ringfence.server.rounds import Outcome
from ringfence.silo.ledger import Budget
from ringfence.silo.records import Records, load_records
from ringfence.training import Result, Silo, evaluate, split, train


@dataclass(frozen=True)
class Request:
    """Which files to train on, what to predict, the plan's wishes, and how to test."""

    files: Sequence[Path]
    schema: Path
    target: str
    wishes: Wishes
    test_fraction: float = 0.2
    tests: Mapping[str, Path] = field(default_factory=dict)
    seed: int | None = None
    ledgers: Path | None = None
    cap: tuple[float, float] | None = None


@dataclass(frozen=True)
class Outcomes:
    """The result of a training run and its evaluation, if there was one."""

    result: Result
    test: Mapping[str, object] | None

    def report(self) -> dict[str, Any]:
        """Return the run as plain data for machines."""
        model, statement = self.result.model, self.result.statement
        report: dict[str, Any] = {
            "plan": model.plan.digest(),
            "loss": model.plan.loss.name,
            "rounds": model.plan.rounds,
            "silos": {name: vars(guarantee) for name, guarantee in statement.silos.items()},
        }
        if self.test is not None:
            report["test"] = dict(self.test)
            report["test_is_private"] = False
        return report


def train_files(
    request: Request,
    *,
    planned: Callable[[Plan], None] = lambda plan: None,
    watch: Callable[[Outcome], None] = lambda outcome: None,
) -> Outcomes:
    """Load every silo's file, make a plan, train through the gates, and evaluate on held-out records."""
    schema = load_schema(request.schema, request.target)
    paths = silo_paths(request.files)
    for name in [*request.wishes.budgets, *request.tests]:
        if name not in paths:
            raise PlanError(f"There is no silo '{name}'; the silos are {', '.join(paths)}.")
    records = {name: load_records(path, schema) for name, path in paths.items()}
    choices = np.random.default_rng(request.seed)
    training: dict[str, Records] = {}
    tests: dict[str, tuple[FloatArray, FloatArray]] = {}
    for name, all_records in records.items():
        training[name], held_out = split(all_records, request.test_fraction, choices)
        if name in request.tests:
            held_out = load_records(request.tests[name], schema)
        if held_out is not None:
            tests[name] = (held_out.features, held_out.targets)
    plan = plan_for(request.wishes, schema, {name: len(part) for name, part in training.items()})
    planned(plan)
    cap = None if request.cap is None else Budget(*request.cap)
    silos = {
        name: Silo(training[name], (request.ledgers or path.parent) / f"{name}.ledger", cap)
        for name, path in paths.items()
    }
    result = train(plan, silos, watch=watch)
    return Outcomes(result, evaluate(result.model, tests) if tests else None)


def silo_paths(files: Sequence[Path]) -> dict[str, Path]:
    """Name each silo by its file's stem."""
    paths: dict[str, Path] = {}
    for path in files:
        if path.stem in paths:
            raise RecordsError(f"Two files name the silo '{path.stem}'; rename one of them.")
        paths[path.stem] = path
    return paths
