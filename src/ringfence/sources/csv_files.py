"""CSV files: block by block, with the standard library, or with pyarrow where it is installed; the cells are the same.

How a cell is read depends on the file's first line and on the cell, never on other records. The delimiter is the one
that occurs in the first line; where it is no comma, a comma in a number is its decimal mark. What is not UTF-8 in a
cell is read as Windows' Latin letters, unless an encoding is given.
"""

import codecs
import csv
import gzip
import io
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, cast

from ringfence.errors import RecordsError
from ringfence.sources.cells import Cells, TextCells
from ringfence.sources.description import Description, refusing_damaged

BLOCK = 4 * 2**20
"""About how many bytes are read at a time."""

MOST_COLUMNS = 100_000


def has_pyarrow() -> bool:
    """Tell whether pyarrow is installed, which reads CSV files faster."""
    return find_spec("pyarrow") is not None


def _as_latin(problem: UnicodeError) -> tuple[str, int]:
    """Decode the bytes of a CSV file that are not UTF-8 as Windows-1252: an error handler of codecs."""
    if not isinstance(problem, UnicodeDecodeError):
        raise problem
    wrong = problem.object[problem.start : problem.end]
    return "".join(_letter(byte) for byte in wrong), problem.end


def _letter(byte: int) -> str:
    """Return the Windows-1252 letter of a byte in a CSV file."""
    try:
        return bytes([byte]).decode("cp1252")
    except UnicodeDecodeError:
        return chr(byte)


codecs.register_error("ringfence-latin", _as_latin)


def read(table: Description, numbers: Collection[str] = ()) -> Iterator[dict[str, Cells]]:
    """Yield a CSV file's columns, a block of rows at a time; `numbers` names those that will be asked for numbers."""
    path = cast(Path, table.file)
    with _opened(table) as (file, described):
        first = _decoded(_line(file), described)
        delimiter = described.delimiter or _delimiter(first)
        names = _names(path, first, delimiter)
        yield {name: TextCells([]) for name in names}
        comma = described.decimal == "," or (described.decimal is None and delimiter != ",")
        parser = _Parser(path, names, delimiter, described, comma, frozenset(numbers))
        for block in _blocks(file):
            yield from parser.read(block)


class _Parser:
    """Reads blocks of whole lines, one after the other."""

    def __init__(
        self,
        path: Path,
        names: list[str],
        delimiter: str,
        described: Description,
        comma: bool,
        numbers: frozenset[str],
    ) -> None:
        """Prepare to parse blocks of a CSV file with these names of columns."""
        self._path, self._names, self._delimiter = path, names, delimiter
        self._described, self._comma, self._numbers = described, comma, numbers
        self._rows = 0
        self._blank = 0
        self._is_fast = len(names) > 1 and described.encoding in (None, "utf-8") and has_pyarrow()

    def read(self, block: bytes) -> Iterator[dict[str, Cells]]:
        """Yield the columns of a block of CSV lines, if it has rows."""
        table = None
        if self._is_fast and not self._blank and b"\0" not in block:
            from ringfence.sources import arrow_files

            strict = self._comma and self._described.decimal is None
            table = arrow_files.read_csv_block(
                block, self._names, self._delimiter, self._numbers, comma=self._comma, either=strict
            )
        if table is None:
            table = self._texts(_decoded(block, self._described))
        count = len(next(iter(table.values())))
        self._rows += count
        if count:
            yield table

    def _texts(self, text: str) -> dict[str, Cells]:
        """Parse a block of CSV text by the standard library, and check each row's length."""
        kept: list[list[str]] = []
        width = len(self._names)
        for row in self._lines(text):
            number = self._rows + len(kept) + 2
            if not row:
                self._blank = self._blank or number
            elif self._blank:
                raise RecordsError(f"{self._path}, line {self._blank} is blank in the middle of the file; remove it.")
            elif len(row) != width:
                raise RecordsError(
                    f"{self._path}, line {number} has {len(row)} cells where the first line names {width} columns."
                )
            else:
                kept.append(row)
        columns: Any = zip(*kept, strict=True) if kept else ([] for _ in self._names)
        return {
            name: TextCells(cells, comma=self._comma, raw=True)
            for name, cells in zip(self._names, columns, strict=True)
        }

    def _lines(self, text: str) -> Iterator[list[str]]:
        """Split CSV text into rows; RecordsError if it is malformed."""
        try:
            yield from csv.reader(io.StringIO(text, newline=""), delimiter=self._delimiter, strict=True)
        except csv.Error:
            raise _malformed(self._path) from None


@contextmanager
def _opened(described: Description) -> Iterator[tuple[IO[bytes], Description]]:
    """Open a CSV file and decompress it; recode it as UTF-8 if its encoding is not a superset of ASCII."""
    path = cast(Path, described.file)
    damaged = refusing_damaged(path, "or is not a gzip file: make it again", EOFError, zlib.error)
    try:
        with damaged, path.open("rb") as plain:
            start = plain.read(4)
            plain.seek(0)
            is_gzip = start[:2] == b"\x1f\x8b" if described.compression is None else described.compression == "gzip"
            file: Any = gzip.GzipFile(fileobj=plain) if is_gzip else plain
            if is_gzip:
                start = file.read(4)
                file.seek(0)
            encoding = described.encoding
            if encoding is None and start[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
                encoding = "utf-16"
            if encoding is not None and b'\n"'.decode(encoding, errors="replace") != '\n"':
                file = io.BytesIO(file.read().decode(encoding).removeprefix("\ufeff").encode())
                described = replace(described, encoding="utf-8")
            elif start[:3] == codecs.BOM_UTF8:
                file.seek(3)
            yield file, described
    except UnicodeError:
        raise RecordsError(
            f"The data file {path} is not text in the expected encoding: name the right `encoding` in a description "
            "(TOML), or save it as UTF-8."
        ) from None


def _decoded(block: bytes, described: Description) -> str:
    """Decode a block of a CSV file; RecordsError if it is no text."""
    if described.encoding is not None:
        return block.decode(described.encoding)
    if b"\0" in block:
        raise RecordsError(f"{described.file} is not a text file: a table must be CSV, Parquet, Arrow or NumPy.")
    return block.decode("utf-8", errors="ringfence-latin")


def _line(file: IO[bytes]) -> bytes:
    """Return the first line of a CSV file, however many lines a quoted name takes."""
    line = file.readline()
    while line.count(b'"') % 2 and (more := file.readline()):
        line += more
    return line


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    """Yield blocks of whole lines of a CSV file, none of which ends inside quotes."""
    while block := file.read(BLOCK):
        lines = [block, file.readline()]
        quotes = sum(part.count(b'"') for part in lines if b'"' in part)  # looking is faster than counting
        while quotes % 2 and (more := file.readline()):
            lines.append(more)
            quotes += more.count(b'"')
        yield b"".join(lines)


def _delimiter(line: str) -> str:
    """Return the delimiter that occurs in a CSV file's first line outside quotes; by default a comma."""
    outside = "".join(line.split('"')[::2])
    counts = {each: outside.count(each) for each in ";\t|,"}
    if counts[","] and not counts[";"] and not counts["\t"]:
        return ","
    return max(counts, key=lambda each: counts[each]) if any(counts.values()) else ","


def _names(path: Path, line: str, delimiter: str) -> list[str]:
    """Return the names of columns in a CSV file's first line; RecordsError if they are unusable."""
    try:
        rows = list(csv.reader(io.StringIO(line, newline=""), delimiter=delimiter, strict=True))
    except csv.Error:
        raise _malformed(path) from None
    names = [name.strip() for name in (rows[0] if rows else [])]
    if not names or any(not name for name in names):
        raise RecordsError(f"{path} needs a first line that names every column.")
    require_few(path, len(names))
    if len(set(names)) != len(names):
        raise RecordsError(f"{path} has two columns of the same name in its first line.")
    return names


def _malformed(path: Path) -> RecordsError:
    """Return the error for a CSV file that is not well-formed."""
    return RecordsError(f"The data file {path} is not well-formed CSV (a quote that never closes?).")


def require_few(path: Path, columns: int) -> None:
    """Refuse a table of more columns than a schema can have."""
    if columns > MOST_COLUMNS:
        raise RecordsError(
            f"{path} has {columns} columns, and at most {MOST_COLUMNS} can be read: keep those that the schema names, "
            "or store numbers that belong together as one column of vectors (Parquet, NumPy)."
        )
