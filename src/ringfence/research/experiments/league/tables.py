"""The league's tables: one folder each, with a CSV file per silo, held-out files, a public schema and a target.

A folder of the league has `SILO.csv` for every silo, `test/SILO.csv` with held-out records, `schema.toml`, and
`target.txt`, which names the column to predict. Any folder of such folders is a league.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringfence.errors import DatasetError
from ringfence.planning import defaults
from ringfence.protocol import FloatArray, Loss, Schema, load_schema
from ringfence.protocol.schema.columns.base import Reading
from ringfence.protocol.schema.columns.numeric import Numeric
from ringfence.research.datasets import DATA_VARIABLE
from ringfence.silo.records.records import Records, load_records

FOLDER, TARGET, SCHEMA, TEST = "league", "target.txt", "schema.toml", "test"
WIDER = 10
"""How many times as wide the intervals of numeric features are, where bounds are too wide."""


@dataclass(frozen=True, eq=False, repr=False)
class LeagueTable:
    """A table's records in silos, training and held out, as the public schema encodes them: targets are clamped."""

    name: str
    schema: Schema
    silos: Mapping[str, Records]
    tests: Mapping[str, Records]

    @property
    def loss(self) -> Loss:
        """The default loss of the target's type."""
        return defaults.default_loss(self.schema)

    @property
    def shape(self) -> tuple[int, int]:
        """How many features and outputs a model has."""
        return self.schema.width, self.loss.outputs

    @property
    def is_number(self) -> bool:
        """Whether a number is predicted."""
        return self.loss.target_kind == "number"

    @property
    def sizes(self) -> dict[str, int]:
        """Training records of every silo."""
        return {name: len(own) for name, own in self.silos.items()}

    @property
    def deltas(self) -> dict[str, float]:
        """Every silo's δ: the planner's default."""
        return {name: defaults.default_delta(size) for name, size in self.sizes.items()}

    @cached_property
    def pooled(self) -> tuple[FloatArray, FloatArray]:
        """All training records in one place."""
        return _together(self.silos)

    @cached_property
    def together(self) -> Records:
        """All training records in one place, with their cells."""
        silos = [own.table_cells("A table has") for own in self.silos.values()]
        cells = {name: Reading(*_joined([own[name] for own in silos])) for name in silos[0]}
        return Records.of_cells(self.schema, cells)

    @cached_property
    def held_out(self) -> tuple[FloatArray, FloatArray]:
        """All held-out records in one place."""
        return _together(self.tests)

    @cached_property
    def guessing(self) -> float:
        """The error of the most frequent class of the training records; 1 of a number, whose mean is the unit."""
        if self.is_number:
            return 1.0
        labels, counts = np.unique(self.pooled[1], return_counts=True)
        return float(np.mean(self.held_out[1] != labels[np.argmax(counts)]))

    @cached_property
    def _unit(self) -> float:
        return float(np.sqrt(np.mean((self.held_out[1] - self.pooled[1].mean()) ** 2))) if self.is_number else 1.0

    def error(self, weights: FloatArray, data: Schema | None = None) -> float:
        """Return the share of wrong labels; of a number, the RMSE in units of that of guessing the training mean.

        `data` encodes the records for the weights, if it is not the table's schema.
        """
        tests = self.tests if data is None else {name: own.encoded(data) for name, own in self.tests.items()}
        features = _together(tests)[0]
        return self.error_of(features @ np.asarray(weights, dtype=np.float64).reshape(features.shape[1], -1))

    def error_of(self, scores: FloatArray) -> float:
        """Return the same error for any model's scores of the held-out records, a column for each output."""
        targets = self.held_out[1]
        if self.is_number:
            return float(np.sqrt(np.mean((scores[:, 0] - targets) ** 2))) / self._unit
        if self.loss.target_kind == "class":
            return float(np.mean(np.argmax(scores, axis=1) != targets))
        return float(np.mean(np.where(scores[:, 0] > 0, 1.0, -1.0) != targets))


def league_folder(data_dir: Path | None) -> Path:
    """Return the folder of tables: `league` below the data folder, or that folder itself if it holds tables."""
    named = data_dir or (Path(os.environ[DATA_VARIABLE]) if DATA_VARIABLE in os.environ else None)
    if named is None:
        raise DatasetError(
            f"The league's tables cannot be downloaded. Pass the folder that contains '{FOLDER}' with --data or "
            f"{DATA_VARIABLE}."
        )
    for folder in (named / FOLDER, named):
        if any(folder.glob(f"*/{TARGET}")):
            return folder
    raise DatasetError(
        f"There is no table in {named / FOLDER} or {named}. A table is a folder with {TARGET}, {SCHEMA}, one CSV file "
        f"per silo, and their held-out records in {TEST}/."
    )


def table_names(folder: Path) -> list[str]:
    """Return the names of all tables of a league, sorted."""
    return sorted(path.parent.name for path in folder.glob(f"*/{TARGET}"))


def table_schema(folder: Path, name: str) -> Schema:
    """Return the schema of a league's table, with its target."""
    home = folder / name
    return load_schema(home / SCHEMA, (home / TARGET).read_text(encoding="utf-8").strip())


def widened(schema: Schema) -> Schema:
    """Return the schema with intervals of numeric features that are ten times as wide.

    A bound of 0 stays, since a quantity that cannot be negative is known to be one; other intervals grow around their
    middle. The target keeps its bounds: errors are measured within them.
    """
    wide = {
        name: column.model_copy(update=dict(zip(("lower", "upper"), _wider(column.lower, column.upper), strict=True)))
        for name, column in schema.features.items()
        if isinstance(column, Numeric)
    }
    fields = {name: getattr(schema, name) for name in schema.model_fields_set}
    return Schema(**{**fields, "columns": {**schema.columns, **wide}})


def _wider(lower: float, upper: float) -> tuple[float, float]:
    if 0 in (lower, upper):
        return WIDER * lower, WIDER * upper
    middle, half = (lower + upper) / 2, WIDER * (upper - lower) / 2
    return middle - half, middle + half


@lru_cache(maxsize=2)
def load_table(folder: Path, name: str, *, wide: bool = False) -> LeagueTable:
    """Read a table of a league, by its schema or by the same one with bounds that are too wide."""
    home, schema = folder / name, table_schema(folder, name)
    schema = widened(schema) if wide else schema
    silos, tests = (
        {path.stem: load_records(path, schema) for path in sorted(where.glob("*.csv"))} for where in (home, home / TEST)
    )
    if not silos or not tests:
        raise DatasetError(f"The table {home} needs a CSV file for every silo, and held-out records in {TEST}/.")
    return LeagueTable(name, schema, silos, tests)


def _joined(parts: Sequence[Reading]) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
    """Return the values of all parts of a column, and which are of empty cells."""
    empty = [np.zeros(len(own.values), bool) if own.empty is None else own.empty for own in parts]
    values = np.concatenate([own.values for own in parts])
    return values, np.concatenate(empty) if any(own.empty is not None for own in parts) else None


def _together(silos: Mapping[str, Records]) -> tuple[FloatArray, FloatArray]:
    return (
        np.concatenate([own.features for own in silos.values()]),
        np.concatenate([own.targets for own in silos.values()]),
    )
