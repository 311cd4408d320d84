"""Run an experiment of the paper, resumably, and write its table, figures and page."""

from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path

from ringfence.errors import PlanError
from ringfence.research.experiments import algorithms, curves, features, figures, personal, shuffle
from ringfence.research.experiments.curves import CurvePoint, TrialData
from ringfence.research.experiments.insurance import INSURANCE
from ringfence.research.experiments.league import reproduce as league
from ringfence.research.experiments.mnist import MNIST
from ringfence.research.experiments.obesity import OBESITY
from ringfence.research.experiments.panels import Experiment, Trial
from ringfence.research.experiments.relatives import reproduce as relatives
from ringfence.research.experiments.sweeps import SweepPart, Watch, run_parts
from ringfence.research.markdown import command
from ringfence.research.theory.paper import practical_batch
from ringfence.simulation.cells import Cell, Row, cells

EXPERIMENTS = {experiment.name: experiment for experiment in (MNIST, INSURANCE, OBESITY)}
COMPARISONS = {part.NAME: part.reproduce for part in (algorithms, shuffle, league, relatives, personal, features)}
"""What has a page of its own kind."""
PRIVATE = ("ringfence", "untuned", "paper", "local")
NOT_PRIVATE = ("local non-private", "minibatch non-private", "optimum")
NO_EPSILON = 0.0
"""Stands for the missing epsilon of a curve that is not private."""

TRIALS, REPEATS = 20, 3
QUICK_TRIALS = 2


def reproduce(
    name: str,
    out: Path,
    *,
    data_dir: Path | None = None,
    quick: bool = False,
    watch: Watch = lambda done, total: None,
) -> Path:
    """Run all cells that `out` does not hold yet and write cells.csv, figures and index.md beside them.

    `quick` runs two trials of the first panel at two epsilons: a rehearsal of everything, not a result.
    """
    if name in COMPARISONS:
        page: Path = COMPARISONS[name](out, data_dir=data_dir, quick=quick, watch=watch)
        return page
    if name not in EXPERIMENTS:
        names = ", ".join((*EXPERIMENTS, *COMPARISONS))
        raise PlanError(f"There is no experiment '{name}'; choose one of {names}.")
    experiment = EXPERIMENTS[name]
    part = SweepPart(partial(_task, name, data_dir), list(_cells(experiment, quick)), ("panel", "curve", "trial"))
    (rows,) = run_parts(name, [part], out, quick=quick, watch=watch).values()
    figures.draw(rows, out, title=experiment.title, error_label=experiment.error_label, targets=experiment.targets)
    figures.write_cells(rows, out)
    return figures.write_page(
        rows,
        out,
        title=experiment.title,
        command=command(name, out, quick),
        setting=experiment.setting,
        targets=experiment.targets,
        notes=(*experiment.notes, *COMMON_NOTES),
    )


COMMON_NOTES = (
    "All tuned curves choose their settings by training loss on the private records, averaged over three repetitions "
    "(one for Local SGD), and are then run again with fresh noise; those runs are shown. As in the paper, epsilon "
    "does not count that choice: a consortium that tunes on its records must pay for every run.",
    "The planner's curve tunes nothing and reads no record before training. Its constants were chosen once, with the "
    "three data sets of these pages in view.",
    "Local SGD's noise pays for all its local steps. The paper's closed form does not.",
)


def _cells(experiment: Experiment, quick: bool) -> Iterator[Cell]:
    panels = experiment.panels[:1] if quick else experiment.panels
    epsilons = experiment.epsilons[:2] if quick else experiment.epsilons
    trials = QUICK_TRIALS if quick else TRIALS
    yield from cells({"panel": panels, "curve": PRIVATE, "epsilon": epsilons}, trials)
    yield from cells({"panel": panels, "curve": NOT_PRIVATE, "epsilon": (NO_EPSILON,)}, trials)


def _task(name: str, data_dir: Path | None, block: list[Cell]) -> list[Row]:
    """Run one curve of one trial for all its epsilons."""
    experiment = EXPERIMENTS[name]
    panel, curve, number = str(block[0]["panel"]), str(block[0]["curve"]), int(block[0]["trial"])
    trial = _trial(name, panel, number, data_dir)
    points = _curve(experiment, trial, curve, [float(cell["epsilon"]) for cell in block], seed=number)
    return [
        {
            "true_epsilon": point.true_epsilon,
            "error": point.error,
            "training_loss": point.training_loss,
            "chosen": point.chosen,
        }
        for point in points
    ]


@lru_cache(maxsize=2)
def _trial(name: str, panel: str, number: int, data_dir: Path | None) -> Trial:
    return EXPERIMENTS[name].build(panel, number, data_dir)


def _curve(
    experiment: Experiment, trial: Trial, curve: str, epsilons: Sequence[float], *, seed: int
) -> Sequence[CurvePoint]:
    ours = trial.ours
    if curve == "ringfence":
        return curves.ringfence_tuned(ours, epsilons, experiment.grid, seed=seed, repeats=REPEATS)
    if curve == "untuned":
        return curves.ringfence_untuned(ours, epsilons, seed=seed, repeats=REPEATS)
    if curve == "paper":
        return curves.paper_recipe(
            trial.paper, epsilons, experiment.paper_steps, trial.paper_clips, seed=seed, repeats=REPEATS
        )
    if curve == "local":
        return _local(experiment, ours, list(epsilons), seed)
    if curve == "local non-private":
        return _local(experiment, ours, [None], seed)
    if curve == "minibatch non-private":
        return [curves.non_private_minibatch(ours, experiment.grid, seed=seed)]
    return [curves.optimum(ours)]


def _local(
    experiment: Experiment, problem: TrialData, epsilons: Sequence[float | None], seed: int
) -> Sequence[CurvePoint]:
    """Take as many local steps as the paper's batch has records, at the largest epsilon where there is none."""

    def local_steps(epsilon: float | None) -> int:
        largest = max(experiment.epsilons)
        return practical_batch(
            records=min(problem.sizes), rounds=problem.rounds, epsilon=largest if epsilon is None else epsilon
        )

    return curves.local(
        problem, epsilons, experiment.local_candidates(problem), local_steps=local_steps, seed=seed, repeats=1
    )
