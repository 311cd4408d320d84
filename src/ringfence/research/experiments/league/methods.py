"""What the league compares: Ringfence, and what others do with the same records at the same replace-one epsilon."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np

from ringfence.protocol import FloatArray, Schema
from ringfence.research.experiments.abstract import Geometry
from ringfence.research.experiments.league import apart, descent, dp_ebm, floors, flower, opacus, own
from ringfence.research.experiments.league.central import private_fit
from ringfence.research.experiments.league.own import Scored, Trained
from ringfence.research.experiments.league.tables import LeagueTable

Runs = Callable[[LeagueTable, float, Sequence[int]], Sequence[Trained | Scored]]
"""From a table, an ε and seeds to a run for each seed."""


@dataclass(frozen=True)
class Method:
    """A way to a model: who is trusted, and whether its settings were chosen on the test set, which flatters it."""

    name: str
    trusted: str
    run: Runs
    tuned: bool = False
    needs: str = ""
    extra: str = ""
    fewest_silos: int = 1
    several_classes: bool = True

    def suits(self, schema: Schema, silos: int) -> bool:
        """Return whether a table's silos are enough for it, and its classes not too many."""
        return silos >= self.fewest_silos and (self.several_classes or len(schema.target_column.classes) <= 2)

    @property
    def is_installed(self) -> bool:
        """Whether the library that it needs, if any, can be imported."""
        return not self.needs or find_spec(self.needs) is not None


def _once_each(fit: Callable[[LeagueTable, float, np.random.Generator], FloatArray]) -> Runs:
    def run(table: LeagueTable, epsilon: float, seeds: Sequence[int]) -> list[Trained]:
        return [Trained(fit(table, epsilon, np.random.default_rng(seed)), 1) for seed in seeds]

    return run


def _central(table: LeagueTable, epsilon: float, random: np.random.Generator) -> FloatArray:
    """Fit all records in one place, with the largest δ of the silos."""
    delta = max(table.deltas.values())
    return private_fit(table.loss, Geometry.of(table.schema))(*table.pooled, epsilon, delta, random)


def _simulated(table: LeagueTable, epsilon: float, seeds: Sequence[int]) -> list[Trained]:
    return own.simulated(table, epsilon, seeds, "nobody")


def _shuffled(table: LeagueTable, epsilon: float, seeds: Sequence[int]) -> list[Trained]:
    return own.simulated(table, epsilon, seeds, "shuffler")


NOBODY, SHUFFLER, CURATOR = "nobody", "a shuffler", "a curator"
OURS, OURS_SHUFFLED, OURS_POOLED, CENTRAL, DP_EBM = "ringfence", "shuffler", "pooled", "central", "dp-ebm"
METHODS = {
    OURS: Method("Ringfence, untuned", NOBODY, _simulated),
    OURS_SHUFFLED: Method("Ringfence, untuned", SHUFFLER, _shuffled, fewest_silos=3),
    "descent": Method("clipped descent", NOBODY, descent.tuned, tuned=True),
    "opacus": Method("Opacus and federated averaging", NOBODY, opacus.tuned, True, "opacus", "comparison"),
    "statistics": Method("noisy sufficient statistics", NOBODY, _once_each(apart.noisy_statistics)),
    "averaged": Method("private models of every silo, averaged", NOBODY, _once_each(apart.averaged)),
    "localdpmod": Method("Flower's LocalDpMod", NOBODY, flower.tuned, True, "flwr", "flower"),
    OURS_POOLED: Method("Ringfence, untuned, as one silo", CURATOR, own.pooled),
    CENTRAL: Method("AdaSSP; objective perturbation for labels", CURATOR, _once_each(_central)),
    DP_EBM: Method("DP-EBM", CURATOR, dp_ebm.runs, False, "interpret", "comparison", several_classes=False),
}
"""By the name that their cells have, in the order of the page."""
FLOORS = {
    "splines": Method("additive splines", CURATOR, floors.additive_splines),
    "trees": Method("boosted trees", CURATOR, floors.boosted_trees),
}
"""Without privacy, beside the linear model of the reference: their ε is infinite."""
STRESSED, WIDE = (OURS, CENTRAL, DP_EBM), "wide-"
"""Methods that run again where bounds are too wide, and how their cells' names begin then; none is tuned."""
