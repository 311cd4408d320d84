"""A custom loss: its source is part of the plan, and it is computed only where an operator has installed it.

The source is read as arithmetic (`losses.elementwise`); Python never runs it. To install it is to agree to its digest:
in this process (`ringfence.custom_loss`, `federation.custom_loss.install_loss`), or by a file in a folder of `FOLDERS`
that holds exactly the source in the plan.
"""

import hashlib
import math
import os
import stat
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from ringfence.errors import PlanError, visible_lines
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.losses.base import BaseLoss, Constants, LinearLoss
from ringfence.protocol.losses.elementwise import read
from ringfence.protocol.public import Digest

_GRID = 201
"""Scores, and targets, at which a loss is checked."""

_PROBES = 33
"""Records whose values and slopes must stay the same, whatever is beside them."""

_BYSTANDERS = (0.0, 5e-324, 1e300, -1e300, np.inf, -np.inf, np.nan, (1e-300, 3.0, np.nan, -1e300, 0.5, np.inf, -7.0))
"""Scores, and targets, of the records beside them."""

INSTALLED: set[str] = set()
"""The digests of the sources that this process may compute."""

FOLDERS: set[Path] = set()
"""Where operators put the sources that this process may compute: no file is opened before a plan names it."""


class Custom(BaseLoss):
    """A convex loss of a score and a number, written for one study.

    `lipschitz` and `smoothness` are the largest |∂φ/∂u| and ∂²φ/∂u² for scores up to `largest_score` and scaled
    targets up to `largest_target`. They were found on a grid, so no loss bound is stated with them. A gate
    checks the grid again before it approves: the plan's author need not have done so.
    """

    may_be_negative: ClassVar[bool] = True
    is_proved: ClassVar[bool] = False
    name: Literal["custom"] = "custom"
    title: str = Field(min_length=1, max_length=100, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    source: str = Field(min_length=1, max_length=20_000)
    digest: Digest
    largest_score: float = Field(gt=0, le=1e6)
    largest_target: float = Field(gt=0, le=1e6)
    lipschitz: float = Field(ge=0, le=1e30)
    smoothness: float = Field(gt=0, le=1e30)

    @model_validator(mode="after")
    def _shows_its_source(self) -> Self:
        """Refuse a custom loss whose digest does not match its source, or whose source has invisible characters."""
        if digest_of(self.source) != self.digest:
            raise ValueError("the digest of the custom loss does not match its source")
        plain = self.source.replace("\t", " ")
        if visible_lines(plain) != plain:
            raise ValueError(
                "the source of the custom loss has invisible characters, so it may not do what it seems to do: remove "
                "them"
            )
        return self

    @property
    def called(self) -> str:
        """The title of a custom loss, and which program it is."""
        return f"custom '{self.title}' (a program of sha256 {self.digest[:12]}…)"

    @property
    def program(self) -> Self:
        """The custom loss itself: operators must install its source."""
        return self

    @property
    def missing(self) -> str:
        """Return why a custom loss cannot be computed here, such as that it is not installed; empty if it can."""
        named = f"its loss '{self.title}' (sha256 {self.digest[:12]}…)"
        if self.digest not in INSTALLED:
            problems = [problem for folder in sorted(FOLDERS) if (problem := self._problem_in(folder)) is not None]
            if "" not in problems:
                return next(iter(problems), "") or (
                    f"{named} is not installed here: read it with `ringfence silo loss FOLDER PLAN` and, if you agree "
                    "to compute it, install it with the same command"
                )
        try:
            found = examined(self.source, self.largest_score, self.largest_target)
        except PlanError as refused:
            return f"{named} {refused}: ask for a plan with another loss"
        if not np.allclose(found, (self.lipschitz, self.smoothness), rtol=1e-6):
            return (
                f"{named} does not have the slope or curvature that the plan states: ask for a plan that states its own"
            )
        return ""

    def values(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return the values of the installed custom loss."""
        return self._installed().values(scores, targets)

    def residuals(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return the derivative of the custom loss, by automatic differentiation."""
        return self._installed().residuals(scores, targets)

    def reach(self, feature_norm: float, target_bound: float) -> float:
        """Return a third of the weights that the custom loss was checked for: its largest score over 3X."""
        return self.largest_score / (3.0 * feature_norm)

    def constants(self, feature_norm: float, target_bound: float, weight_norm: float) -> Constants:
        """L and β of a custom loss by its largest derivatives on the checked grid; infinite beyond it."""
        within = weight_norm * feature_norm <= self.largest_score * (1 + 1e-9) and target_bound <= self.largest_target
        lipschitz, smoothness = (self.lipschitz, self.smoothness) if within else (math.inf, math.inf)
        return Constants(feature_norm * lipschitz, feature_norm**2 * smoothness, 0.0)

    def typical_gradient(self, feature_norm: float, target_bound: float) -> float:
        """Return half of the largest gradient of the custom loss on the checked grid."""
        return max(0.5 * feature_norm * self.lipschitz, 1e-12)

    @property
    def file_name(self) -> str:
        """The name of the file by which an operator installs the custom loss in a folder."""
        return f"{self.title}-{self.digest[:12]}.py"

    def _problem_in(self, folder: Path) -> str | None:
        """Return why the loss's file in a folder does not install it, empty if it does; None if there is none."""
        path, content = folder / self.file_name, self.source.encode()
        try:
            found = [place.lstat() for place in (folder, path)]
            kinds = [stat.S_IFMT(place.st_mode) for place in found]
            if kinds != [stat.S_IFDIR, stat.S_IFREG]:
                return f"{path} or its folder is a link or no file, so the loss in it is not installed: remove it"
            if any(place.st_mode & 0o022 or place.st_uid not in (0, os.geteuid()) for place in found):
                return (
                    f"{path} can be changed by other users, so the loss in it is not installed. Give it and its folder "
                    "to the silo's user (chown), and let nobody else write to them (chmod -R go-w)"
                )
            if found[1].st_size != len(content) or path.read_bytes() != content:
                return (
                    f"{path} does not hold the loss with the SHA-256 in its name: it was changed. Remove it, and read "
                    "and install the loss again (`ringfence silo loss`)"
                )
        except FileNotFoundError:
            return None
        except OSError as problem:
            return f"{path} cannot be read ({problem.strerror}), so the loss in it is not installed"
        return ""

    def _installed(self) -> LinearLoss:
        """Return the program of the custom loss; PlanError if it is not installed here."""
        if self.missing:
            raise PlanError(f"This plan cannot be computed here: {self.missing}.")
        return _program(self.source)


_program = lru_cache(maxsize=64)(read)


@lru_cache(maxsize=64)
def examined(source: str, largest_score: float, largest_target: float) -> tuple[float, float]:
    """Return the largest |∂φ/∂u| and ∂²φ/∂u² of a custom loss, on a grid of scores and targets up to these sizes.

    PlanError, with a clause, if it is not of the language, or there not finite, not convex or not smooth.
    """
    try:
        derived = _program(source)
    except PlanError as refused:
        raise PlanError(f"cannot be read ({str(refused).rstrip('.')})") from None
    scores = np.linspace(-largest_score, largest_score, _GRID)
    targets = np.linspace(-largest_target, largest_target, _GRID)
    grid, beside = np.repeat(scores, _GRID)[:, None], np.tile(targets, _GRID)
    values, slopes = derived.values(grid, beside), derived.residuals(grid, beside).reshape(_GRID, _GRID)
    with np.errstate(invalid="ignore"):  # of slopes that are not finite
        changes = np.diff(slopes, axis=0) / np.diff(scores)[:, None]
    lipschitz, smoothness = float(np.abs(slopes).max()), float(changes.max())
    problem = ""
    if mixes_records(derived, largest_score, largest_target):
        problem = "gives a record another value or slope beside other records"
    elif not (np.isfinite(values).all() and np.isfinite(slopes).all()):
        problem = "is not finite"
    elif changes.min() < -1e-9 * max(smoothness, 1.0):
        problem = "is not convex: its slope falls somewhere"
    elif smoothness <= 0 or _is_kinked(derived, scores, targets, smoothness):
        problem = "is not smooth: its slope jumps, or never changes"
    if problem:
        raise PlanError(f"{problem}, for scores up to {largest_score:g} and targets up to {largest_target:g}")
    return lipschitz, smoothness


def mixes_records(loss: LinearLoss, largest_score: float, largest_target: float) -> bool:
    """Tell whether a bit of a record's value or slope depends on the others: on how many, in what order, and which."""
    around = np.linspace(-1.0, 1.0, _PROBES)
    scores, targets = largest_score * around, largest_target * np.roll(around, _PROBES // 3)

    def computed(scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return the loss's values and slopes of the records."""
        return np.stack([loss.values(scores[:, None], targets), loss.residuals(scores[:, None], targets)[:, 0]])

    with np.errstate(all="ignore"):
        alone = np.concatenate([computed(scores[[place]], targets[[place]]) for place in range(_PROBES)], axis=1)
        for count in (_PROBES, _PROBES + 1, 100, 1000):
            places = np.linspace(0, count - 1, _PROBES).astype(int)
            for order in (places, places[::-1]):
                for others in _BYSTANDERS:
                    crowd = np.resize(others, (2, count))
                    crowd[:, order] = scores, targets
                    if not np.array_equal(computed(*crowd)[:, order], alone, equal_nan=True):
                        return True
    return False


def _is_kinked(derived: LinearLoss, scores: FloatArray, targets: FloatArray, smoothness: float) -> bool:
    """Tell whether a custom loss's slope changes, between two scores, a hundred times as fast as on average there.

    A jump does so on a grid a thousand times as fine, wherever it is; a smooth slope does not.
    """
    for target in targets[:: _GRID // 4]:
        slopes = derived.residuals(scores[:, None], np.full(len(scores), target))[:, 0]
        place = int(np.argmax(np.diff(slopes)))
        fine = np.linspace(scores[place], scores[place + 1], 1001)
        closer = derived.residuals(fine[:, None], np.full(len(fine), target))[:, 0]
        if np.max(np.diff(closer)) / (fine[1] - fine[0]) > 100 * smoothness:
            return True
    return False


def digest_of(source: str) -> str:
    """Return the digest that identifies the source of a custom loss."""
    return hashlib.sha256(source.encode()).hexdigest()
