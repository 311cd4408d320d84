"""A silo's own model: the federation's, adapted to the silo's records and kept in its folder.

`personalise` fits it (`model.personal_fit`), `compare` measures what taking part is worth to the silo. Both write an
entry without cost into the ledger, and all results into the folder `own` inside the silo's, readable by its owner
alone. None of it is private: weights, strengths and scores depend on records without noise.
"""

import hashlib
import math
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ringfence.errors import WHY, MessageError, OutputError, RecordsError, os_error_as
from ringfence.html.charts import Line, figure, line_chart
from ringfence.html.markup import Value, bullets, document, section, table, tag
from ringfence.model import personal_fit
from ringfence.model.model import OWN_KIND, Model, Predictor, measured
from ringfence.model.personal_fit import ALONE, FEDERATION, OWN, OwnRows
from ringfence.protocol import Digest, FloatArray, Plan, SiloName, pack, unpack
from ringfence.protocol.losses.targets import shifted
from ringfence.protocol.plan import sections
from ringfence.silo.folder import SiloFolder
from ringfence.silo.ledger.history import Account
from ringfence.silo.ledger.ledger import Ledger
from ringfence.silo.records.records import DataSet
from ringfence.storage.files import LARGE_LIMIT, read_file, replace_private

NOT_PRIVATE = (
    "NOT PRIVATE: this was computed from the silo's records without noise, and stays with the silo. Passing it on, or "
    "acting on it outside the silo, reveals something about these records that no epsilon covers."
)
"""The notice on every result."""

CHANGES_SHOWN = 10
"""How many of the largest changes of weights a page shows."""


class PersonalModel(Predictor):
    """A silo's own model. It is NOT private and never leaves the silo: it was fitted without noise.

    `model` is the digest of the federation's model, `strength` that of the pull towards it: None if cross-validation
    chose the federation's model as it is.
    """

    kind: Literal["ringfence-own-model"] = "ringfence-own-model"
    format: Literal[1] = 1
    silo: SiloName
    model: Digest
    strength: float | None = Field(default=None, gt=0)
    rmse: float | None = Field(default=None, ge=0)
    notice: str = NOT_PRIVATE

    @property
    def error_spread(self) -> float | None:
        """The RMSE of a silo's own model in cross-validation: not private either."""
        return self.rmse


@dataclass(frozen=True)
class Personalised:
    """A silo's own model, the cross-validated loss at each strength (strongest first), and the files of both."""

    model: PersonalModel
    start: Model
    losses: Mapping[float, float]
    path: Path
    page: Path

    @property
    def strength(self) -> str:
        """The strength of the own model's pull towards the federation's, in words."""
        found = self.model.strength
        return "the federation's model as it is" if found is None else f"{found:.2g}"

    def moved(self) -> list[tuple[str, str, float, float]]:
        """Return feature, output, federation's weight and own weight, largest change first."""
        before = {(name, output): weight for name, output, weight in self.start.by_size()}
        rows = [(name, output, before[name, output], weight) for name, output, weight in self.model.by_size()]
        return sorted(rows, key=lambda row: -abs(row[3] - row[2]))

    def as_data(self) -> dict[str, Any]:
        """Return the silo's own model and its losses as plain data."""
        return {
            "silo": self.model.silo,
            "model": str(self.path),
            "page": str(self.page),
            "strength": self.model.strength,
            "loss": {"federation": self.losses[math.inf], "own": self.losses[self.model.strength or math.inf]},
            "private": False,
            "notice": NOT_PRIVATE,
        }


@dataclass(frozen=True)
class OwnComparison:
    """Scores and mean losses of three models on records that none of them was fitted to.

    `gains` has, for the federation's model and the silo's own, the mean loss saved relative to a model of the silo's
    records alone, and its standard error over records.
    """

    silo: str
    metric: str
    records: int
    unit: str
    scores: Mapping[str, float]
    losses: Mapping[str, float]
    gains: Mapping[str, tuple[float, float]]
    remark: str
    page: Path

    def sentences(self) -> list[str]:
        """Return, in words, what taking part in the federation is worth to the silo."""
        return [*(self._gain(name) for name in self.gains), *filter(None, [self.remark])]

    def _gain(self, name: str) -> str:
        """Return in words how much loss a model saves the silo."""
        gain, error = self.gains[name]
        sure = "" if abs(gain) > 2 * error else f"; with {self.records} {self.unit}s this is not significant"
        word = "less" if gain >= 0 else "more"
        return f"With {name} the loss is {abs(gain):.3g} {word} than with the {ALONE}, give or take {error:.2g}{sure}."

    def as_data(self) -> dict[str, Any]:
        """Return as plain data what taking part is worth to a silo."""
        models = {
            name: {self.metric: self.scores[name], "loss": self.losses[name]}
            | dict(zip(("gain", "standard_error"), self.gains.get(name, ()), strict=False))
            for name in self.scores
        }
        held_out = {"records": self.records, "unit": self.unit, "remark": self.remark}
        return {
            "silo": self.silo, "models": models, "measured_on": held_out, "page": str(self.page), "private": False,
            "notice": NOT_PRIVATE,
        }  # fmt: skip


def load_any(path: Path) -> Model | PersonalModel:
    """Read a federation's model or a silo's own."""
    content = read_file(path, "model file", MessageError, LARGE_LIMIT)
    kind = PersonalModel if OWN_KIND in content else Model
    return kind.parse(content, error=MessageError, limit=LARGE_LIMIT, source=str(path))


def personalise(folder: SiloFolder, model: Model, *, note: str = "") -> Personalised:
    """Adapt the federation's model to all of the silo's records, and keep the result in its folder.

    Raises RecordsError if the model is not about this silo's data, or if its records are too few to choose by.
    """
    plan, digest = model.plan, hashlib.sha256(model.canonical()).hexdigest()
    with folder.ledger() as ledger:
        _, rows = _rows(folder, ledger, model)
        personal_fit.require_enough(rows)
        own = _own_folder(folder)
        ledger.use_inside("personalised", model=digest, plan=plan.digest(), note=note)
    tuned = personal_fit.tune(plan.loss, rows, unpack(model.weights))
    made = PersonalModel(
        plan=plan,
        weights=pack(tuned.weights),
        knots=model.knots,
        silo=folder.name,
        model=digest,
        strength=None if math.isinf(tuned.strength) else tuned.strength,
        rmse=measured(plan, shifted(tuned.scores, rows.targets), rows.targets, rows.counts).get("rmse"),
    )
    losses = dict(zip(personal_fit.STRENGTHS, tuned.losses.tolist(), strict=True))
    found = Personalised(made, model, losses, own / f"model-{digest[:12]}.json", own / f"model-{digest[:12]}.html")
    _keep(found.path, made.canonical().decode())
    _keep(found.page, _page_of_model(found))
    return found


def compare(folder: SiloFolder, model: Model, *, note: str = "") -> OwnComparison:
    """Compare a model of the silo's records alone, the federation's and the silo's own on records that no fit saw.

    These are the records that the federation's training held out, if any; otherwise all of them.
    """
    plan, digest = model.plan, hashlib.sha256(model.canonical()).hexdigest()
    with folder.ledger() as ledger:
        data, rows = _rows(folder, ledger, model)
        unseen, remark = _unseen(plan, rows, ledger.account(), were_moved=data.were_moved)
        personal_fit.require_comparable(rows, unseen)
        own = _own_folder(folder)
        ledger.use_inside("compared", model=digest, plan=plan.digest(), note=note)
    predicted, losses = personal_fit.predict_unseen(plan.loss, rows, unpack(model.weights), unseen)
    targets, counts = rows.targets[unseen], rows.counts[unseen]
    scores = {name: measured(plan, shifted(scored, targets), targets, counts) for name, scored in predicted.items()}
    (metric,) = scores[OWN]
    made = OwnComparison(
        silo=folder.name,
        metric=metric,
        records=len(losses[OWN]),
        unit=plan.unit,
        scores={name: score[metric] for name, score in scores.items()},
        losses={name: float(np.mean(own)) for name, own in losses.items()},
        gains={name: _mean_and_error(losses[ALONE] - losses[name]) for name in (FEDERATION, OWN)},
        remark=remark,
        page=own / f"comparison-{digest[:12]}.html",
    )
    _keep(made.page, _page_of_comparison(made))
    return made


def _mean_and_error(differences: FloatArray) -> tuple[float, float]:
    """Return the mean loss that a model saves the silo, and its standard error."""
    return float(np.mean(differences)), float(np.std(differences, ddof=1) / math.sqrt(len(differences)))


def _rows(folder: SiloFolder, ledger: Ledger, model: Model) -> tuple[DataSet, OwnRows]:
    """Return the silo's data, and its rows as the model encodes them; RecordsError if it is not the model's."""
    data = folder.current_records(ledger)
    if problem := data.difference(model.data):
        raise RecordsError(
            f"This model does not fit the data of silo '{folder.name}': {problem}. Name a model that was trained with "
            "this silo's schema."
        )
    return data, OwnRows.of(data.encoded(model.data), model.plan)


def _unseen(plan: Plan, rows: OwnRows, account: Account, *, were_moved: bool) -> tuple[NDArray[np.bool_], str]:
    """Return which rows the federation's training did not see, and a remark about that."""
    everything = np.ones(len(rows.targets), dtype=bool)
    if plan.terms(account.silo) is None:
        return everything, "This silo did not take part in the training, so the model has seen none of its records."
    approved = account.plans.get(plan.digest())
    is_other = were_moved or (approved is not None and approved.version != account.version)
    if plan.held_out is None or is_other:
        why = "the data has changed since" if is_other else "no record was held out"
        return everything, (
            f"The federation's model was trained on these records, with noise ({why}), so it may look slightly better "
            "than it is. Held-out records (`train --held-out`) would show its true performance."
        )
    return np.isin(rows.of_row, sections.members("held-out", len(rows), plan.held_out)), ""


def _own_folder(folder: SiloFolder) -> Path:
    """Return the folder for a silo's own models, readable by its owner alone."""
    own = folder.path / "own"
    with _refusing_unwritable(own):
        own.mkdir(mode=0o700, exist_ok=True)
        own.chmod(0o700)
    return own


def _keep(path: Path, content: str) -> None:
    """Write a file of the silo's own model, readable by its owner alone."""
    with _refusing_unwritable(path):
        replace_private(path, content.encode())


def _refusing_unwritable(path: Path) -> AbstractContextManager[None]:
    """Raise OutputError if a file of the silo's own model cannot be written."""
    return os_error_as(
        OutputError,
        f"{path} cannot be written ({WHY}): what is not private is kept in the silo's own folder and nowhere else. "
        "Free some space there, or give this user write permission.",
    )


def _page_of_model(found: Personalised) -> str:
    """Return the page about a silo's own model: the losses by strength, and the weights that moved."""
    made = found.model
    finite = {strength: loss for strength, loss in found.losses.items() if math.isfinite(strength)}
    chart = line_chart(
        [
            Line("own model", sorted(finite.items())),
            Line(FEDERATION, [(strength, found.losses[math.inf]) for strength in sorted(finite)], level=True),
        ],
        title="Cross-validated loss",
        description="Mean loss on records that were not used for fitting, for each strength of the pull.",
        x_label="strength",
        y_label="mean loss",
        log_x=True,
    )
    changes = "Weights of scaled features, largest change first"
    return _page(
        f"The own model of silo '{made.silo}' for {made.plan.data.target_words}",
        section(
            "What was chosen",
            tag("p", f"Strength of the pull towards the federation's model: {found.strength}."),
            figure(
                chart,
                "The strength was chosen by the smallest of these, which is therefore slightly optimistic: see "
                "`compare`.",
            ),
        ),
        section(
            "Largest changes", table(changes, ["feature", "output", "federation", "own"], found.moved()[:CHANGES_SHOWN])
        ),
    )


def _page_of_comparison(found: OwnComparison) -> str:
    """Return the page that compares a silo's own model with the federation's and one of its records alone."""
    rows = [
        (name, found.scores[name], found.losses[name], *(found.gains.get(name) or (None, None)))
        for name in found.scores
    ]
    return _page(
        f"What silo '{found.silo}' gains by taking part",
        section(
            f"On {found.records} {found.unit}s that no model was fitted to",
            table(
                "Scores, mean loss, and the gain over a model of the silo's own records alone",
                ["model", found.metric, "loss", "gain", "its standard error"],
                rows,
            ),
            bullets(*found.sentences()),
        ),
    )


def _page(title: str, *parts: Value) -> str:
    """Return a page of the silo's own model, under the notice that it is not private."""
    head = tag("header", tag("p", "For this silo only", class_="kicker"), tag("h1", title))
    return document(title, head, tag("p", tag("strong", NOT_PRIVATE), class_="note warning"), *parts)
