"""NumPy's files: one array (.npy), or several by name (.npz); nothing in them is run."""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ringfence.errors import RecordsError
from ringfence.sources.cells import ArrayCells, Cells, TextCells
from ringfence.sources.csv_files import require_few
from ringfence.sources.description import Description


def read(described: Description, numbers: Collection[str] = ()) -> Iterator[dict[str, Cells]]:
    """Yield a file's columns.

    Of several arrays each is a column, of numbers, texts or, with two dimensions, vectors. Of one array with named
    fields each field is a column; of one without, its columns are called x0, x1 and so on.
    """
    del numbers
    path = cast(Path, described.file)
    with _refusing(path), path.open("rb") as file:
        loaded = np.load(file, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            arrays = _fields(path, loaded)
        else:
            with loaded:
                arrays = {name: loaded[name] for name in loaded.files}
        require_few(path, len(arrays))
        columns = {name: _cells(path, array) for name, array in arrays.items()}
    if not columns or len({len(cells) for cells in columns.values()}) != 1:
        raise RecordsError(
            f"{path} has no arrays, or arrays with different numbers of rows: give all of them the same length."
        )
    yield columns


def read_array(path: Path) -> Cells:
    """Return a .npy file as one column."""
    with _refusing(path):
        loaded = np.load(path, allow_pickle=False, mmap_mode="r")
        if isinstance(loaded, np.ndarray):
            return _cells(path, loaded)
    raise RecordsError(f"{path} is not a .npy file of one array: name one file for each column.")


class _refusing:  # noqa: N801 - a context, as contextlib's own are
    """Says in one sentence what NumPy says in many."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, problem: Any, traceback: Any) -> None:
        if isinstance(problem, OSError) and problem.strerror:
            raise RecordsError(f"The data file {self._path} could not be read: {problem.strerror}.") from None
        if isinstance(problem, RecordsError) or not isinstance(problem, Exception):
            return
        raise RecordsError(
            f"The data file {self._path} is damaged, is not a NumPy file, or holds objects, which are not read: save "
            "plain arrays."
        ) from None


def _fields(path: Path, array: NDArray[Any]) -> dict[str, NDArray[Any]]:
    if array.dtype.names:
        return {name: array[name] for name in array.dtype.names}
    if array.ndim != 2:
        raise RecordsError(f"{path} has {array.ndim} dimensions: a table has two, rows and columns.")
    require_few(path, array.shape[1])
    return {f"x{place}": array[:, place] for place in range(array.shape[1])}


def _cells(path: Path, array: NDArray[Any]) -> Cells:
    if array.dtype.kind in "biufM" and array.ndim in (1, 2) and not (array.dtype.kind == "M" and array.ndim == 2):
        return ArrayCells(array)
    if array.dtype.kind == "U" and array.ndim == 1:
        _require_characters(array)
        return TextCells([text.strip() for text in array.tolist()])
    raise RecordsError(
        f"{path} has an array that cannot be a column: it must have one dimension, of numbers, truth values, times or "
        "texts, or two, of numbers, for vectors."
    )


def _require_characters(array: NDArray[Any]) -> None:
    """Raise ValueError if numbers in place of characters are none: NumPy looks at none of them."""
    numbers = np.frombuffer(array.tobytes(), dtype=np.dtype("u4").newbyteorder(array.dtype.byteorder))
    if np.any((numbers > 0x10FFFF) | ((numbers >= 0xD800) & (numbers < 0xE000))):
        raise ValueError
