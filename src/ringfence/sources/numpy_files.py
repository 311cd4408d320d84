"""NumPy's files: one array (.npy), or several by name (.npz); nothing in them is run."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringfence.errors import RecordsError
from ringfence.sources.cells import ArrayCells, Cells, TextCells
from ringfence.sources.csv_files import require_few
from ringfence.sources.description import refusing_damaged


def read(path: Path) -> dict[str, Cells]:
    """Return the columns of a NumPy file (.npy or .npz).

    Of several arrays each is a column, of numbers, texts or, with two dimensions, vectors. Of one array with named
    fields each field is a column; of one without, its columns are called x0, x1 and so on.
    """
    with _refusing_numpy(path), path.open("rb") as file:
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
    return columns


def read_array(path: Path) -> Cells:
    """Return a .npy file as one column."""
    with _refusing_numpy(path):
        loaded = np.load(path, allow_pickle=False, mmap_mode="r")
        if isinstance(loaded, np.ndarray):
            return _cells(path, loaded)
    raise RecordsError(f"{path} is not a .npy file of one array: name one file for each column.")


def _refusing_numpy(path: Path) -> AbstractContextManager[None]:
    """Turn errors about a NumPy file into one sentence."""
    remedy = "is not a NumPy file, or holds objects, which are not read: save plain arrays"
    return refusing_damaged(path, remedy, Exception)


def _fields(path: Path, array: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Return the columns of a NumPy array: its named fields, or x0, x1 and so on."""
    if array.dtype.names:
        return {name: array[name] for name in array.dtype.names}
    if array.ndim != 2:
        raise RecordsError(f"{path} has {array.ndim} dimensions: a table has two, rows and columns.")
    require_few(path, array.shape[1])
    return {f"x{place}": array[:, place] for place in range(array.shape[1])}


def _cells(path: Path, array: NDArray[Any]) -> Cells:
    """Return a NumPy array of numbers, times or texts as cells of a column."""
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
    """Raise ValueError if a NumPy array of texts holds numbers that are no characters: NumPy does not check them."""
    numbers = np.frombuffer(array.tobytes(), dtype=np.dtype("u4").newbyteorder(array.dtype.byteorder))
    if np.any((numbers > 0x10FFFF) | ((numbers >= 0xD800) & (numbers < 0xE000))):
        raise ValueError
