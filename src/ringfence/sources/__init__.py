"""Sources of tables: files of several kinds, databases, and tables in memory. They know nothing of a schema.

All yield columns of `Cells` by name, a chunk of rows at a time. pyarrow and databases' drivers are an extra (`data`);
CSV and NumPy's files need nothing else.

Internal, except `features`: may change without notice. `ringfence` lists what is public.
"""

from collections import ChainMap
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias, cast

from ringfence.errors import RecordsError
from ringfence.sources import csv_files, databases, frames, numpy_files
from ringfence.sources.cells import Cells, joined
from ringfence.sources.description import Description, describe, refusing_damaged

Source: TypeAlias = Any
"""A path, of a table's file or of its description; or a table of pandas, polars, pyarrow or cells."""

_OLD_SPREADSHEET = bytes.fromhex("d0cf11e0a1b11ae1")
"""How an .xls file begins."""

Chunk: TypeAlias = Mapping[str, Cells]
"""Columns by name. Some sources read a column when it is asked for: ask for each once, in their order,
and before the next part."""


def chunks(source: Source, numbers: Collection[str] = ()) -> Iterator[Chunk]:
    """Yield the columns of any source's table, some rows at a time; parts may have none, all have the same columns.

    `numbers` names columns that will be asked for numbers and nothing else, which is faster.
    """
    if not isinstance(source, Path):
        yield frames.columns_of(source)
        return
    described = describe(source)
    parts = _read(described, numbers)
    yield from _beside(parts, described) if described.arrays else parts


def header(source: Source) -> list[str]:
    """Return the names of a table's columns, from any kind of source."""
    return list(next(chunks(source)))


def read_table(source: Source) -> Chunk:
    """Return all of a table at once, from any kind of source."""
    parts = [dict(part) for part in chunks(source)]  # read before the file is closed
    filled = [part for part in parts if len(next(iter(part.values()), ()))] or parts[:1]
    return {name: joined([part[name] for part in filled]) for name in filled[0]}


def files(path: Path) -> list[Path]:
    """Return all files that the source at this path is read from."""
    return describe(path).files()


def count(source: Source) -> int | None:
    """Return how many rows a source's table has, if that is known before they are read."""
    if not isinstance(source, Path):
        return len(source)
    described = describe(source)
    if described.file is None or _start(described.file)[:4] != b"PAR1" or not csv_files.has_pyarrow():
        return None
    return int(_arrow_files().parquet_rows(described.file))


def order(source: Source) -> tuple[str, ...]:
    """Return the columns that give the rows of a source's query their order."""
    return describe(source).order_by if isinstance(source, Path) else ()


def _read(described: Description, numbers: Collection[str]) -> Iterator[Chunk]:
    """Yield the columns of a file or a query, some rows at a time; a file's first bytes tell its kind."""
    file = described.file
    if file is None:
        _arrow_files()
        yield from databases.read(described)
        return
    start = _start(file)
    if start[:4] == b"PAR1":
        yield from _arrow_files().read_parquet(file)
    elif start[:6] == b"ARROW1" or (start[:4] == b"\xff\xff\xff\xff" and file.suffix in (".arrow", ".arrows")):
        yield from _arrow_files().read_ipc(file)
    elif start[:6] == b"\x93NUMPY" or (start[:4] == b"PK\x03\x04" and file.suffix == ".npz"):
        yield numpy_files.read(file)
    elif start[:4] == b"PK\x03\x04" or start == _OLD_SPREADSHEET:
        raise RecordsError(
            f"{file.name} is a spreadsheet or an archive, which Ringfence cannot read: export the table as CSV or "
            "Parquet."
        )
    else:
        yield from csv_files.read(described, numbers)


def _start(path: Path) -> bytes:
    """Return the first bytes of a source's file, which tell its kind."""
    with refusing_damaged(path, "or cannot be read: make it again"), path.open("rb") as file:
        return file.read(8)


def _arrow_files() -> Any:
    """Load the reader of Parquet, Arrow and databases; RecordsError if pyarrow is not installed."""
    if not csv_files.has_pyarrow():
        raise RecordsError('Reading Parquet, Arrow and databases needs pyarrow: pip install "ringfence[data]".')
    from ringfence.sources import arrow_files

    return arrow_files


def _beside(parts: Iterable[Chunk], described: Description) -> Iterator[Chunk]:
    """Put arrays of as many rows beside the columns of a source's table."""
    arrays: Mapping[str, Cells] = {name: numpy_files.read_array(path) for name, path in described.arrays.items()}
    begin = 0
    for part in parts:
        count = len(next(iter(part.values()), ()))
        if taken := set(arrays) & set(part):
            raise RecordsError(
                f"{described.file} has a column '{min(taken)}', and so has `arrays`: rename one of them."
            )
        rows, begin = slice(begin, begin + count), begin + count
        if all(len(array) >= begin for array in arrays.values()):
            own: dict[str, Cells] = {name: array.take(rows) for name, array in arrays.items()}
            yield ChainMap(own, cast(dict[str, Cells], part))  # reads nothing of the part
    if any(len(array) != begin for array in arrays.values()):
        raise RecordsError(
            f"{described.file} does not have as many rows as the arrays beside it: make the arrays again, with one "
            "row for each of its rows."
        )
