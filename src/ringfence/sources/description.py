"""Descriptions of tables: where a silo's table is and how it is read. No plan knows of them.

A plain file needs no description: its first bytes tell which kind it is. Otherwise a small TOML file says more:

    file = "visits.csv"           or   database = "postgresql:///clinic"
    delimiter = ";"                    query = "SELECT …"   (or query_file = "visits.sql")
    decimal = ","                      order_by = ["visit"]
    encoding = "latin-1"
    compression = "gzip"
    [arrays]
    image = "scattering.npy"
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ringfence.errors import WHY, RecordsError, os_error_as
from ringfence.storage.toml_files import read_toml


@contextmanager
def refusing_damaged(path: Path, remedy: str, *kinds: type[Exception]) -> Iterator[None]:
    """Turn a library's errors about a file into one sentence: their own may quote a cell."""
    caught: tuple[type[Exception], ...] = (OSError, *kinds)
    try:
        yield
    except RecordsError:
        raise
    except caught as problem:
        if isinstance(problem, OSError) and problem.strerror:
            raise RecordsError(f"The data file {path} could not be read: {problem.strerror}.") from None
        raise RecordsError(f"The data file {path} is damaged, {remedy}.") from None


@dataclass(frozen=True)
class Description:
    """The source of a table; `named` is the path that an operator gave."""

    named: Path
    file: Path | None = None
    delimiter: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    compression: str | None = None
    arrays: Mapping[str, Path] = field(default_factory=dict)
    database: str | None = None
    query: str | None = field(default=None, repr=False)
    query_file: Path | None = None
    order_by: tuple[str, ...] = ()

    def files(self) -> list[Path]:
        """Return all files that the described table is read from."""
        named = [self.named, self.file, self.query_file, *self.arrays.values()]
        return list(dict.fromkeys(path for path in named if path is not None))

    def statement(self) -> str:
        """Return the text of the described database query."""
        if self.query_file is None:
            return self.query or ""
        try:
            with os_error_as(RecordsError, f"The query file {self.query_file} could not be read: {WHY}."):
                return self.query_file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise RecordsError(f"The query file {self.query_file} is not UTF-8 text: save it as such.") from None


def describe(path: Path) -> Description:
    """Return the description in a TOML file, or that of any other file itself."""
    if path.suffix.lower() != ".toml":
        return Description(path, file=path)
    try:
        with os_error_as(RecordsError, f"The description {path} could not be read: {WHY}."):
            content = read_toml(path)
    except ValueError as problem:
        raise RecordsError(f"The description {path} is not valid TOML: {problem}.") from None
    if found := _problem(content):
        raise RecordsError(f"The table description {path} is not usable: {found}.")
    beside = path.parent
    order = content.get("order_by", [])
    return Description(
        named=path,
        file=beside / content["file"] if "file" in content else None,
        **{name: content.get(name) for name in _TEXTS},
        arrays={name: beside / array for name, array in content.get("arrays", {}).items()},
        query_file=beside / content["query_file"] if "query_file" in content else None,
        order_by=(order,) if isinstance(order, str) else tuple(order),
    )


_TEXTS = ("delimiter", "decimal", "encoding", "compression", "database", "query")
_OF_FILES = {"delimiter", "decimal", "encoding", "compression", "arrays"}
_OF_DATABASES = {"query", "query_file", "order_by"}


def _problem(content: Mapping[str, Any]) -> str:
    """Return what is wrong with a description's fields; empty if they are fine."""
    known = {each.name for each in fields(Description)} - {"named"}
    if unknown := sorted(set(content) - known):
        return f"`{unknown[0][:100]}` is unknown there (known are {', '.join(sorted(known))})"
    texts = {name: value for name, value in content.items() if name not in ("arrays", "order_by")}
    if wrong := [name for name, value in texts.items() if not isinstance(value, str) or not value]:
        return f"`{wrong[0]}` must be a text"
    if ("file" in content) == ("database" in content):
        return "it must name a `file`, or a `database` with a `query`, and not both"
    if stray := sorted(set(content) & (_OF_DATABASES if "file" in content else _OF_FILES)):
        return f"`{stray[0]}` goes with a {'database' if 'file' in content else 'file'}"
    if "file" in content:
        return _problem_of_file(content)
    if ("query" in content) == ("query_file" in content):
        return "a `database` needs a `query`, or a `query_file`"
    order = content.get("order_by", [])
    names = [order] if isinstance(order, str) else order
    if not isinstance(names, list) or not names or not all(isinstance(name, str) and name for name in names):
        return (
            "a `database` returns rows in any order, but records are known by their position: `order_by` must name "
            "the column, or columns, that identify each row"
        )
    return ""


def _problem_of_file(content: Mapping[str, Any]) -> str:
    """Return what is wrong with the fields of a description that are about a file; empty if they are fine."""
    delimiter, arrays = content.get("delimiter", ","), content.get("arrays", {})
    if len(delimiter) != 1 or delimiter in ('"', "\n", "\r"):
        return "`delimiter` must be one character"
    if content.get("decimal", ".") not in (".", ","):
        return '`decimal` must be "." or ","'
    if content.get("compression", "none") not in ("none", "gzip"):
        return '`compression` must be "gzip" or "none"'
    if not isinstance(arrays, Mapping) or not all(isinstance(name, str) and name for name in arrays.values()):
        return "`arrays` must name a .npy file for each column"
    try:
        "a".encode(content.get("encoding", "utf-8"))  # some codecs are known, and not of texts
    except (LookupError, ValueError):
        return "`encoding` is unknown here; common ones are utf-8, latin-1, cp1252 and utf-16"
    return ""
