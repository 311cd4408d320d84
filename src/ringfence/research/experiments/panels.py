"""What an experiment of the paper consists of: panels, epsilons, how to build a trial, and which curves to draw."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ringfence.research.experiments.curves import Candidate, Grid, TrialData

Build = Callable[[str, int, Path | None], "Trial"]
"""Build a panel's trial from the data directory."""


@dataclass(frozen=True)
class Trial:
    """One random split, seen in two ways: prepared by public knowledge only, and as the paper prepares it."""

    ours: TrialData
    paper: TrialData
    paper_clips: Sequence[float]


@dataclass(frozen=True)
class Experiment:
    """An experiment of the paper.

    `targets` are errors to reach, by panel and epsilon. `local_candidates` and `paper_steps` are the grids of
    the baselines; `grid` is Ringfence's own.
    """

    name: str
    title: str
    setting: str
    error_label: str
    panels: Sequence[str]
    epsilons: Sequence[float]
    targets: Mapping[str, Mapping[float, float]]
    build: Build
    grid: Grid
    paper_steps: Sequence[float]
    local_candidates: Callable[[TrialData], Sequence[Candidate]]
    notes: Sequence[str] = ()
