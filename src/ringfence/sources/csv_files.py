"""CSV files: block by block, with the standard library; the cells are the same with pyarrow, which reads long files.

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
from dataclasses import dataclass, replace
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
    letters = (bytes([byte]).decode("cp1252", errors="ignore") or chr(byte) for byte in wrong)
    return "".join(letters), problem.end


codecs.register_error("ringfence-latin", _as_latin)


def read(table: Description, numbers: Collection[str] = ()) -> Iterator[dict[str, Cells]]:
    """Yield a CSV file's columns, a block of rows at a time; `numbers` names those that will be asked for numbers."""
    with _opened(table) as (file, described):
        first = _decoded(_line(file), described)
        delimiter = described.delimiter or _delimiter(first)
        names = _names(cast(Path, table.file), first, delimiter)
        yield {name: TextCells([]) for name in names}
        parser = _Parser(described, names, delimiter, frozenset(numbers))
        for block in _blocks(file):
            yield parser.read(block)


@dataclass
class _Parser:
    """Reads blocks of whole lines of a CSV file, one after the other, and counts the rows."""

    described: Description
    names: list[str]
    delimiter: str
    numbers: frozenset[str]
    rows: int = 0
    blank: int = 0

    def read(self, block: bytes) -> dict[str, Cells]:
        """Return the columns of a block of CSV lines, which may have no rows."""
        either = self.described.decimal is None and self.delimiter != ","
        comma = self.described.decimal == "," or either
        table = None
        is_plain = self.described.encoding in (None, "utf-8") and not self.blank and b"\0" not in block
        is_long = self.rows > 0 or len(block) >= BLOCK  # loading pyarrow takes longer than reading a block without it
        if is_plain and is_long and len(self.names) > 1 and has_pyarrow():
            from ringfence.sources import arrow_files

            table = arrow_files.read_csv_block(
                block, self.names, self.delimiter, self.numbers, comma=comma, either=either
            )
        if table is None:
            table = self._texts(_decoded(block, self.described), comma)
        self.rows += len(next(iter(table.values())))
        return table

    def _texts(self, text: str, comma: bool) -> dict[str, Cells]:
        """Parse a block of CSV text by the standard library, and check each row's length."""
        kept: list[list[str]] = []
        file, width = self.described.file, len(self.names)
        for row in _rows(file, text, self.delimiter):
            number = self.rows + len(kept) + 2
            if not row:
                self.blank = self.blank or number
            elif self.blank:
                raise RecordsError(f"{file}, line {self.blank} is blank in the middle of the file; remove it.")
            elif len(row) != width:
                raise RecordsError(
                    f"{file}, line {number} has {len(row)} cells where the first line names {width} columns."
                )
            else:
                kept.append(row)
        columns: Any = zip(*kept, strict=True) if kept else ([] for _ in self.names)
        return {name: TextCells(cells, comma=comma, raw=True) for name, cells in zip(self.names, columns, strict=True)}


def _rows(file: Path | None, text: str, delimiter: str) -> Iterator[list[str]]:
    """Split CSV text into rows; RecordsError if it is malformed."""
    try:
        yield from csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    except csv.Error:
        raise RecordsError(f"The data file {file} is not well-formed CSV (a quote that never closes?).") from None


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
    rows = list(_rows(path, line, delimiter))
    names = [name.strip() for name in (rows[0] if rows else [])]
    if not names or not all(names):
        raise RecordsError(f"{path} needs a first line that names every column.")
    require_few(path, len(names))
    if len(set(names)) != len(names):
        raise RecordsError(f"{path} has two columns of the same name in its first line.")
    return names


def require_few(path: Path, columns: int) -> None:
    """Refuse a table of more columns than a schema can have."""
    if columns > MOST_COLUMNS:
        raise RecordsError(
            f"{path} has {columns} columns, and at most {MOST_COLUMNS} can be read: keep those that the schema names, "
            "or store numbers that belong together as one column of vectors (Parquet, NumPy)."
        )
