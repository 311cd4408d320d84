"""Ringfence on a table, untuned: the planner's choice, simulated, and through real gates."""

import os
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from ringfence.planning.propose import propose
from ringfence.planning.request import Member, PlanRequest, Trust
from ringfence.protocol import FloatArray, Plan, PublicKeys, Schema
from ringfence.research.experiments.league.tables import LeagueTable
from ringfence.research.experiments.trust import stand_in_keys
from ringfence.simulation import trials


@dataclass(frozen=True)
class Trained:
    """What one run found, and in how many rounds."""

    weights: FloatArray
    rounds: int
    chosen: str = ""
    data: Schema | None = None
    """The schema that encodes records for the weights, if it is not the table's."""

    def error(self, table: LeagueTable) -> float:
        """Return the error of a model's weights on held-out records."""
        return table.error(self.weights, self.data)


@dataclass(frozen=True)
class Scored:
    """What one run of a model that is not linear says of the held-out records."""

    scores: FloatArray
    rounds: int
    chosen: str = ""

    def error(self, table: LeagueTable) -> float:
        """Return the error of these scores on held-out records."""
        return table.error_of(self.scores)


def simulated(table: LeagueTable, epsilon: float, seeds: Sequence[int], trust: Trust) -> list[Trained]:
    """Plan as `ringfence train` does where nothing but epsilon is given, and simulate a run for each seed."""
    plan = _plan(table, epsilon, trust, stand_in_keys(list(table.silos)))
    return _trained(plan, trials.simulated_models(plan, list(table.silos.values()), seeds))


def pooled(table: LeagueTable, epsilon: float, seeds: Sequence[int]) -> list[Trained]:
    """Plan for one silo that has all records, with the largest δ of the silos: a curator who is trusted by all."""
    member = Member("everybody", len(table.together), epsilon, max(table.deltas.values()))
    plan = propose(table.schema, [member], PlanRequest(run="league")).plan
    return _trained(plan, trials.simulated_models(plan, [table.together], seeds))


def through_gates(table: LeagueTable, epsilon: float, trust: Trust) -> Trained:
    """Train once through real gates with fresh ledgers, and with a real shuffler where one is trusted."""
    from ringfence.federation.local_shuffler import local_shuffler
    from ringfence.federation.training import Silo, train

    with (
        tempfile.TemporaryDirectory(prefix="ringfence-") as folder,
        _StateFolder(folder),
        nullcontext() if trust == "nobody" else local_shuffler(list(table.silos)) as shuffler,
    ):
        keys = stand_in_keys(list(table.silos)) if shuffler is None else shuffler.keys
        plan = _plan(table, epsilon, trust, keys)
        silos = {
            name: Silo(own, Path(folder) / f"{name}.ledger", key=None if shuffler is None else shuffler.silos[name])
            for name, own in table.silos.items()
        }
        result = train(plan, silos, collect=None if shuffler is None else shuffler.collect(plan))
    return _trained(plan, [trials.SimulatedModel(result.weights, result.model.data)])[0]


def _trained(plan: Plan, models: Sequence[trials.SimulatedModel]) -> list[Trained]:
    return [Trained(own.weights, plan.rounds, plan.algorithm.name, own.data) for own in models]


def _plan(table: LeagueTable, epsilon: float, trust: Trust, keys: PublicKeys) -> Plan:
    request = PlanRequest(run="league", trust=trust, keys=keys if trust == "shuffler" else None)
    return propose(table.schema, [Member(name, size, epsilon) for name, size in table.sizes.items()], request).plan


class _StateFolder:
    """A folder for what lies outside of ledgers, so that no run remembers another's: they are trials, not releases."""

    def __init__(self, folder: str) -> None:
        self._folder, self._before = folder, os.environ.get("XDG_STATE_HOME")

    def __enter__(self) -> None:
        os.environ["XDG_STATE_HOME"] = self._folder

    def __exit__(self, *problem: object) -> None:
        if self._before is None:
            os.environ.pop("XDG_STATE_HOME")
        else:
            os.environ["XDG_STATE_HOME"] = self._before
