"""Public data sets for experiments: MNIST, medical insurance charges, obesity levels, exam scores of schools.

A file is looked for in the caller's folder, in the folder that RINGFENCE_DATA names, and in the user's
cache; failing all three it is downloaded into the cache. Inside a folder, MNIST's files may lie in `mnist/`
or beside the others.

Guarantee. Nothing is used whose content differs from the published one. What is pinned is the content, not
its packaging: of MNIST the decompressed bytes, since every compressor writes others; of a table its cells,
with numbers spelled one way, since copies differ in line ends and in 21 against 21.0.

Edge cases: a file that is found but differs is an error, never passed over for the next place; a download
that differs is not kept; a named folder that does not exist is an error, not a reason to download.
"""

import gzip
import hashlib
import json
import math
import os
import tempfile
import urllib.request
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError

import numpy as np
from numpy.typing import NDArray

from ringfence.errors import DatasetError, RecordsError, TrainingError
from ringfence.protocol import FloatArray, Schema
from ringfence.protocol.schema.encoding import encode_features, read_cells, require_within, target_of
from ringfence.sources import read_table
from ringfence.sources.cells import Table
from ringfence.storage.cache import cache_folder

DATA_VARIABLE = "RINGFENCE_DATA"
_TIMEOUT_SECONDS = 30.0
_LARGEST = 100 * 2**20  # bytes; longer files are truncated, and then fail their checksum


class _UnusableError(Exception):
    """Says in a few words after the file's name what is wrong with it."""


@dataclass(frozen=True)
class PublicFile:
    """A published file, where it is published, and the sha256 of its content."""

    name: str
    url: str
    sha256: str
    folder: str = ""

    def content(self, path: Path) -> bytes:
        """Return the file's content, decompressed or in canonical spelling, once its checksum is right."""
        try:
            content = _decompressed(path) if self.name.endswith(".gz") else _canonical(path)
        except (OSError, EOFError, zlib.error, RecordsError):
            raise _UnusableError("cannot be read (incomplete, in another format, or not permitted)") from None
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise _UnusableError("is not the published file (its checksum differs)")
        return content


def _mnist(name: str, sha256: str) -> PublicFile:
    return PublicFile(name, f"https://ossci-datasets.s3.amazonaws.com/mnist/{name}", sha256, folder="mnist")


MNIST = (
    _mnist("train-images-idx3-ubyte.gz", "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
    _mnist("train-labels-idx1-ubyte.gz", "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
    _mnist("t10k-images-idx3-ubyte.gz", "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
    _mnist("t10k-labels-idx1-ubyte.gz", "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
)
INSURANCE = PublicFile(
    "insurance.csv",
    "https://raw.githubusercontent.com/stedy/Machine-Learning-with-R-datasets/master/insurance.csv",
    "30ea96cdab610894315882fcf88e0362b5bd13bfe3f13d9bb19bdf1b23cede89",
)
OBESITY = PublicFile(
    "obesity.csv",
    "https://archive.ics.uci.edu/static/public/544/data.csv",
    "b90ae61f4b173956d495b56fab52955e79e137e1a304a1852f4e9e5f0485f4e7",
)
SCHOOL = PublicFile(
    "school.csv",
    "https://github.com/jiayuzhou/MALSAR",  # as a matrix; the usual benchmark of multi-task learning
    "18eacced60d87c9b91bfe83aeeffc0a370042297563ca17ef15a7f79ff34f80d",
    folder="league",
)
ROTTERDAM = PublicFile(
    "rotterdam.csv",
    "https://vincentarelbundock.github.io/Rdatasets/csv/survival/rotterdam.csv",
    "e8fad9b1c3c0df8f58802a7f9c43706366ce776d1beba6e7cd32707d198070b6",
    folder="league",
)


@dataclass(frozen=True, eq=False, repr=False)
class Digits:
    """Images of 28 by 28 grey values (0 is background) and the digit that each shows."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Mnist:
    """The official 60,000 training and 10,000 test images."""

    training: Digits
    test: Digits


@dataclass(frozen=True, eq=False, repr=False)
class Encoded:
    """A table's records, encoded by the public schema."""

    schema: Schema
    features: FloatArray
    targets: FloatArray


@dataclass(frozen=True, eq=False, repr=False)
class Projection:
    """A frozen map from images to their leading principal components: orthonormal rows, after centring."""

    mean: FloatArray
    components: FloatArray


def load_mnist(data_dir: Path | None = None, *, files: Sequence[PublicFile] = MNIST) -> Mnist:
    """Load all four files: training images and labels, test images and labels."""
    parts = [
        read_idx(provide(file, data_dir), dimensions, source=file.name)
        for file, dimensions in zip(files, (3, 1, 3, 1), strict=True)
    ]
    return Mnist(Digits(parts[0], parts[1].astype(np.int64)), Digits(parts[2], parts[3].astype(np.int64)))


def encode_target(schema: Schema, table: Table, *, source: str) -> FloatArray:
    """Return the scaled target, ±1 for two categories (the second is +1), or the category's index."""
    columns = {name: column for name, column in schema.used.items() if name not in schema.features}
    readings = read_cells(columns, table, source=source)
    require_within(schema, readings)
    return target_of(schema, readings)


def load_table(file: PublicFile, schema: Schema, data_dir: Path | None = None) -> Encoded:
    """Load a table (1,338 people's medical charges, or 2,111 people's obesity levels), encoded by a public schema."""
    table: Table = json.loads(provide(file, data_dir))
    features = encode_features(schema, table, source=file.name)
    return Encoded(schema, features, encode_target(schema, table, source=file.name))


def load_schools(schema: Schema, data_dir: Path | None = None) -> tuple[Encoded, NDArray[np.int64]]:
    """Load 15,362 pupils of 139 London schools, encoded by a public schema, and the number of each one's school."""
    table: Table = json.loads(provide(SCHOOL, data_dir))
    school = np.array(table["school"], dtype=np.float64).astype(np.int64)
    return load_table(SCHOOL, schema, data_dir), school


def public_projection(images: NDArray[np.uint8], components: int) -> Projection:
    """Fit principal components to PUBLIC images, such as MNIST's official test images; grey values count as 0 to 1.

    The map depends on these images only, so applying it to a silo's image costs no privacy. Fitted to
    silos' images instead it would leak them. A component's sign is chosen so that its largest entry is positive.
    """
    pixels = images.reshape(len(images), -1) / 255.0
    if not 1 <= components <= min(pixels.shape):
        raise TrainingError(f"{components} components cannot be fitted. Ask for 1 to {min(pixels.shape)}.")
    mean: FloatArray = pixels.mean(axis=0)
    _, axes = np.linalg.eigh(np.cov(pixels.T, bias=True).reshape(pixels.shape[1], -1))
    leading = axes[:, ::-1][:, :components].T
    largest = np.take_along_axis(leading, np.abs(leading).argmax(axis=1)[:, None], axis=1)
    fitted = Projection(mean, leading * np.sign(largest))
    for part in (fitted.mean, fitted.components):
        part.setflags(write=False)
    return fitted


def project(images: NDArray[np.uint8], projection: Projection) -> FloatArray:
    """Return each image's components. The map never lengthens: ‖result‖ ≤ ‖image/255 − mean‖."""
    flat = images.reshape(len(images), len(projection.mean))
    pieces = np.array_split(flat, 1 + len(flat) // 10_000)  # as floating-point numbers all at once would fill memory
    return np.concatenate([(piece / 255.0 - projection.mean) @ projection.components.T for piece in pieces])


def read_idx(content: bytes, dimensions: int, *, source: str) -> NDArray[np.uint8]:
    """Read an IDX file of unsigned bytes: a magic number, the sizes, the values; the array is read-only."""
    start = 4 + 4 * dimensions
    if len(content) < start or content[:4] != bytes([0, 0, 8, dimensions]):
        raise DatasetError(
            f"{source} does not begin like an IDX file of bytes in {dimensions} dimensions. Provide the right file."
        )
    shape = [int(size) for size in np.frombuffer(content, ">u4", dimensions, offset=4)]
    if len(content) - start != math.prod(shape):
        raise DatasetError(f"{source} is not as long as its header says. Provide the complete file.")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def provide(file: PublicFile, data_dir: Path | None = None) -> bytes:
    """Return the verified content of a published file, from the first place that has it."""
    named = [folder for folder in (data_dir, os.environ.get(DATA_VARIABLE)) if folder]
    folders = [*map(Path, named), cache_folder()]
    for folder in folders[:-1]:
        if not folder.is_dir():
            raise DatasetError(f"There is no data folder {folder}. Correct --data or {DATA_VARIABLE}.")
    places = [path for folder in folders for path in (folder / file.folder / file.name, folder / file.name)]
    path = next(filter(Path.is_file, places), None)
    if path is None:
        return _download(file, folders)
    try:
        return file.content(path)
    except _UnusableError as problem:
        raise DatasetError(f"{path} {problem}. Replace it with the file from {file.url}, or remove it.") from None


def _download(file: PublicFile, folders: Sequence[Path]) -> bytes:
    try:
        # Whoever answers, the checksum decides what is used.
        with urllib.request.urlopen(file.url, timeout=_TIMEOUT_SECONDS) as response:  # noqa: S310
            payload: bytes = response.read(_LARGEST)
    except (OSError, HTTPException) as problem:
        if isinstance(problem, HTTPError):
            problem.close()
        tried, reason = ", ".join(map(str, folders)), getattr(problem, "reason", problem)
        raise DatasetError(
            f"{file.name} is missing: it is not in {tried}, and {file.url} could not be downloaded ({reason}). Put "
            f"the file into a folder and pass that folder with --data or {DATA_VARIABLE}."
        ) from None
    home = cache_folder() / file.folder
    try:
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home) as folder:
            part = Path(folder) / file.name
            part.write_bytes(payload)
            content = file.content(part)
            part.replace(home / file.name)
    except _UnusableError as problem:
        raise DatasetError(
            f"The download from {file.url} {problem}, so it was discarded. Get {file.name} elsewhere and pass its "
            f"folder with --data or {DATA_VARIABLE}."
        ) from None
    except OSError as problem:
        raise DatasetError(
            f"{file.name} could not be stored in {home} ({problem.strerror}). Free some space there, or set "
            "XDG_CACHE_HOME to another folder."
        ) from None
    return content


def _decompressed(path: Path) -> bytes:
    with gzip.open(path) as file:
        return file.read(_LARGEST)


def _canonical(path: Path) -> bytes:
    table = {name: [_spelling(cell) for cell in cells.texts()] for name, cells in read_table(path).items()}
    return json.dumps(table, sort_keys=True).encode()


def _spelling(cell: str) -> str:
    try:
        return repr(float(cell))
    except ValueError:
        return cell
