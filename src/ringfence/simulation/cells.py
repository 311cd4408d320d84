"""A sweep's cells: combinations of parameter values and a trial number, known by their values."""

import hashlib
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from ringfence.errors import SweepError

Value: TypeAlias = bool | int | float | str
Row: TypeAlias = dict[str, Value]

TRIAL = "trial"


class Cell(Mapping[str, Value]):
    """One run of a sweep: a frozen mapping of its parameters, and of "trial" to its number.

    Cells are equal if their `id`s are. The id depends on the names and values only, never on their order,
    and numbers that are equal give equal ids: 1, 1.0 and NumPy's 1 are one value; True is another.
    """

    __slots__ = ("_columns", "_id")

    def __init__(self, parameters: Mapping[str, object], trial: int) -> None:
        """Make a sweep's cell of parameters and a trial's number, with an id."""
        if TRIAL in parameters:
            raise SweepError(f"A parameter cannot be named '{TRIAL}', which is the trial's number: rename it.")
        self._columns: Row = {name: parameter(name, value) for name, value in parameters.items()}
        self._columns[TRIAL] = int(trial)
        canonical = json.dumps({name: _canonical(value) for name, value in self._columns.items()}, sort_keys=True)
        self._id = hashlib.sha256(canonical.encode()).hexdigest()[:32]

    @property
    def id(self) -> str:
        """The cell's 32 hexadecimal digits, the same in every process and version: also good for a seed."""
        return self._id

    @property
    def trial(self) -> int:
        """The cell's trial number, from 0."""
        return int(self._columns[TRIAL])

    def __getitem__(self, name: str) -> Value:
        """Return the cell's value of a parameter."""
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the cell's parameters, and the trial."""
        return iter(self._columns)

    def __len__(self) -> int:
        """Return how many parameters the cell has, with the trial."""
        return len(self._columns)

    def __eq__(self, other: object) -> bool:
        """Return whether another cell has the same id."""
        return isinstance(other, Cell) and self._id == other._id

    def __hash__(self) -> int:
        """Return the hash of the cell's id."""
        return hash(self._id)

    def __repr__(self) -> str:
        """Show the cell by its values."""
        return f"Cell({describe([self])})"


class CellGrid:
    """The cells of a grid, made one at a time while iterating, any number of times; `len` makes none."""

    def __init__(self, grid: Mapping[str, Sequence[Value]], trials: int) -> None:
        """Hold the grid of a sweep's cells; refuse fewer than 1 trial."""
        if trials < 1:
            raise SweepError(f"A sweep of {trials} trials has nothing to run: ask for at least 1.")
        self._axes = {name: _axis(name, values) for name, values in grid.items()}
        self._trials = trials

    def __len__(self) -> int:
        """Return the number of cells of the grid, with all trials."""
        return self._trials * math.prod(map(len, self._axes.values()))

    def __iter__(self) -> Iterator[Cell]:
        """Yield the grid's cells, trial after trial."""
        # The trial is the outermost loop: a sweep that is stopped early has seen the whole grid.
        for trial in range(self._trials):
            for values in itertools.product(*self._axes.values()):
                yield Cell(dict(zip(self._axes, values, strict=True)), trial)


def cells(grid: Mapping[str, Sequence[Value]], trials: int) -> CellGrid:
    """Return every combination of the grid's values, each `trials` times; an empty grid has only its trials.

    Raises SweepError for a parameter without values, with one value twice, or with a value that is NaN or
    neither number, string nor bool.
    """
    return CellGrid(grid, trials)


def _axis(name: str, values: Sequence[object]) -> tuple[Value, ...]:
    """Return the values of one parameter of a sweep's grid; refuse none, and one value twice."""
    if isinstance(values, str) or not len(values):
        raise SweepError(f"The parameter '{name}' needs a list of at least one value.")
    axis = tuple(parameter(name, value) for value in values)
    if len({json.dumps(_canonical(value)) for value in axis}) < len(axis):
        raise SweepError(f"The parameter '{name}' has the same value twice: list each once, and repeat by trials.")
    return axis


def parameter(name: str, value: object) -> Value:
    """Return the value of a cell's parameter as it is kept, or refuse it."""
    try:
        plain = plain_value(value)
    except (TypeError, ValueError):
        plain = math.nan
    if isinstance(plain, float) and math.isnan(plain):
        raise SweepError(f"The parameter '{name}' cannot be {value!r}: give a number, string or bool.")
    return plain


def plain_value(value: object) -> Value:
    """Return a cell's value as Python's own type, from NumPy's or JAX's scalar where it is one."""
    plain = value.item() if hasattr(value, "item") else value
    if isinstance(plain, bool | int | float | str):
        return plain
    raise TypeError(f"{value!r} is not a number, string or bool")


def _canonical(value: Value) -> Value:
    """Return a cell's value so that equal numbers give equal ids: a whole float as an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def describe(cells: Sequence[Cell]) -> str:
    """Name the cells by their values: what they share, and up to five values of what they do not."""
    parts = []
    for name in cells[0]:
        values = [repr(value) for value in dict.fromkeys(cell[name] for cell in cells)]
        more = ", …" if len(values) > 5 else ""
        parts.append(f"{name}={values[0]}" if len(values) == 1 else f"{name} in [{', '.join(values[:5])}{more}]")
    return ", ".join(parts)


def quoted(names: Iterable[str]) -> str:
    """Write names of a cell's parameters for a message."""
    return ", ".join(f"'{name}'" for name in sorted(names)) or "none"
