"""The same task for all: logistic regression on the hospitals of `ringfence example`, over twenty splits.

Ringfence plans and trains as it does where nothing but (ε, δ) is given, through real gates with ledgers. Opacus with
federated averaging, and LocalDpMod, are the league's (`ringfence.research.experiments.league`); of their settings the
one with the best mean over all test sets is shown, which favours them.
"""

import itertools
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.comparison.accounts import DELTA, epsilon_of_updates
from benchmarks.comparison.localdpmod import sigma
from ringfence import Member, PlanRequest, Silo, load_records, load_schema, make_plan, train
from ringfence.cli.first_steps import SIZES, write_example
from ringfence.protocol import FloatArray
from ringfence.research.experiments.league import flower, opacus
from ringfence.research.experiments.league.central import not_private
from ringfence.research.experiments.league.tables import LeagueTable
from ringfence.research.markdown import table

EPSILON, REPEATS = 1.0, 20
PER_ROUND = epsilon_of_updates(sigma(EPSILON), 1.0, flower.ROUNDS)
"""What LocalDpMod's rounds come to, together, that are each told an epsilon of 1."""

Fit = Callable[[LeagueTable, int], FloatArray]
"""From a split and its number to weights."""


class Hospitals(LeagueTable):
    """A split of the example's records; every silo's δ is 10⁻⁵."""

    @property
    def deltas(self) -> dict[str, float]:
        """The δ of all epsilons of the page."""
        return dict.fromkeys(self.silos, DELTA)


@dataclass(frozen=True)
class Method:
    """A line of the table: the run's true epsilon, and a fit for every setting that is tried."""

    name: str
    epsilon: str
    fits: Sequence[Fit]


def methods(folder: Path) -> list[Method]:
    """Return the table's lines; ledgers go into the folder."""
    opacus_settings = list(itertools.product(opacus.RATES, opacus.CLIPS))
    flower_settings = list(itertools.product(flower.CLIPS, flower.LOCAL_STEPS))

    def with_opacus(setting: tuple[float, float], split: LeagueTable, repeat: int) -> FloatArray:
        return opacus.run(split, EPSILON, *setting, seed=repeat)

    def with_localdpmod(epsilon: float, setting: tuple[float, int], split: LeagueTable, repeat: int) -> FloatArray:
        clip, steps = setting
        weights: FloatArray = flower.runs(split, epsilon, [clip], steps)[0]
        return weights

    def localdpmod(name: str, epsilon: float) -> Method:
        fits = [partial(with_localdpmod, epsilon, setting) for setting in flower_settings]
        return Method(f"{name}, best of {len(fits)}", f"{epsilon:.3g}", fits)

    return [
        Method("not private", "∞", [lambda split, repeat: not_private(split.loss, *split.pooled)]),
        Method("Ringfence, nothing tuned", f"{EPSILON:g}", [partial(_through_gates, folder)]),
        Method(
            f"Opacus and federated averaging, best of {len(opacus_settings)}",
            f"{EPSILON:g}",
            [partial(with_opacus, setting) for setting in opacus_settings],
        ),
        localdpmod("LocalDpMod, ε = 1 per round", PER_ROUND),
        localdpmod("LocalDpMod, noise for ε = 1 in total", EPSILON),
    ]


def accuracies(repeats: int = REPEATS) -> str:
    """Train everything on every split; return mean accuracies and their standard errors."""
    with tempfile.TemporaryDirectory(prefix="ringfence-") as name:
        os.environ["XDG_STATE_HOME"] = name
        ours = methods(Path(name))
        found: list[list[list[float]]] = [[[] for _ in method.fits] for method in ours]
        guesses = []
        for repeat, split in enumerate(_splits(Path(name), repeats)):
            for method, results in zip(ours, found, strict=True):
                for fit, own in zip(method.fits, results, strict=True):
                    own.append(1 - split.error(fit(split, repeat)))
            guesses.append(1 - split.guessing)
    lines = [
        (method.name, method.epsilon, *_shown(max(results, key=np.mean)))
        for method, results in zip(ours, found, strict=True)
    ]
    head = ["", "true ε of the run", "accuracy", "standard error"]
    return table(head, [*lines, ("guessing the larger class", "0", *_shown(guesses))])


def _through_gates(folder: Path, split: LeagueTable, repeat: int) -> FloatArray:
    """Train straight lines, as all others do, and otherwise as `ringfence train` does, with a ledger for each silo."""
    members = [Member(name, size, epsilon=EPSILON, delta=split.deltas[name]) for name, size in split.sizes.items()]
    silos = {
        name: Silo(own, folder / f"{repeat}-{name}.ledger", new_beginning="the comparison is repeated")
        for name, own in split.silos.items()
    }
    return train(make_plan(split.schema, members, PlanRequest(curves=0)), silos).weights


def _splits(folder: Path, repeats: int) -> Iterator[LeagueTable]:
    """Hold out a fifth of every hospital's records, another one each time."""
    write_example(folder)
    schema = load_schema(folder / "schema.toml", target="ill")
    everybody = {silo: load_records(folder / f"{silo}.csv", schema) for silo in SIZES}
    for repeat in range(repeats):
        choices = np.random.default_rng(repeat)
        orders = {silo: choices.permutation(len(records)) for silo, records in everybody.items()}
        yield Hospitals(
            "hospitals",
            schema,
            {silo: everybody[silo].take(order[len(order) // 5 :]) for silo, order in orders.items()},
            {silo: everybody[silo].take(order[: len(order) // 5]) for silo, order in orders.items()},
        )


def _shown(values: Sequence[float]) -> tuple[str, str]:
    return f"{np.mean(values):.3f}", f"{np.std(values, ddof=1) / math.sqrt(len(values)):.3f}"
