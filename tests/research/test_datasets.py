"""Public data sets: where files are looked for, what is refused, and what the real ones contain."""

import gzip
import hashlib
import json
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from ringfence.errors import DatasetError, RingfenceError, TrainingError
from ringfence.protocol import parse_schema
from ringfence.research import datasets
from ringfence.research.datasets import (
    MNIST,
    PublicFile,
    load_mnist,
    load_table,
    project,
    provide,
    public_projection,
    read_idx,
)
from ringfence.research.experiments import insurance, obesity
from tests.research.rehearsals import DATA, needs_data

CSV = b"age,town\n21,Bern\n33.5,Chur\n"
CONTENT = json.dumps({"age": ["21.0", "33.5"], "town": ["Bern", "Chur"]}).encode()
NOWHERE = "http://127.0.0.1:9/unreachable"
SMALL = PublicFile("small.csv", NOWHERE, hashlib.sha256(CONTENT).hexdigest())


def idx(values: NDArray[np.uint8]) -> bytes:
    return bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


def packed(name: str, content: bytes) -> PublicFile:
    return PublicFile(name, NOWHERE, hashlib.sha256(content).hexdigest(), folder="mnist")


def refusal(file: PublicFile, data_dir: Path | None = None) -> str:
    """Return the one sentence that says why a file cannot be had."""
    with pytest.raises(DatasetError) as caught:
        provide(file, data_dir)
    sentence = str(caught.value)
    assert isinstance(caught.value, RingfenceError)
    assert sentence.endswith(".")
    assert "\n" not in sentence
    return sentence


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An own empty cache, no folder named, and no proxy between the tests and their server."""
    monkeypatch.delenv("RINGFENCE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    return tmp_path / "cache" / "ringfence"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        del format, args


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and the address of a real server that serves it."""
    (tmp_path / "site").mkdir()
    handler = partial(Quiet, directory=str(tmp_path / "site"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield tmp_path / "site", f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


# Where a file is looked for


def test_the_callers_folder_comes_before_the_variable_and_the_variable_before_the_cache(
    folder: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = tmp_path / "named"
    versions = {place: b"age\n%d\n" % age for age, place in enumerate([folder, named, cache])}
    for place, content in versions.items():
        place.mkdir(parents=True, exist_ok=True)
        (place / "ages.csv").write_bytes(content)
    monkeypatch.setenv("RINGFENCE_DATA", str(named))

    def pinned(age: str) -> PublicFile:
        return PublicFile("ages.csv", NOWHERE, hashlib.sha256(json.dumps({"age": [age]}).encode()).hexdigest())

    assert provide(pinned("0.0"), folder)
    assert provide(pinned("1.0"))
    (folder / "ages.csv").unlink()
    assert provide(pinned("1.0"), folder)
    monkeypatch.setenv("RINGFENCE_DATA", "")
    assert provide(pinned("2.0"), folder)


def test_a_misspelt_folder_is_an_error_and_no_reason_to_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "no data folder" in refusal(SMALL, tmp_path / "dtaa")
    monkeypatch.setenv("RINGFENCE_DATA", str(tmp_path / "misspelt"))
    assert "misspelt. Correct --data or RINGFENCE_DATA" in refusal(SMALL)


def test_without_network_the_error_names_the_file_what_was_tried_and_what_to_do(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RINGFENCE_DATA", str(folder.parent))
    sentence = refusal(SMALL, folder)
    assert sentence.startswith("small.csv is missing")
    for part in (f"{folder}, {folder.parent}, {cache}", NOWHERE, "refused", "--data or RINGFENCE_DATA"):
        assert part in sentence
    assert not cache.exists()


# What is refused


@pytest.mark.parametrize(
    "spelled",
    [CSV, CSV.replace(b"\n", b"\r\n"), CSV.rstrip(), b"town,age\nBern,21.0\nChur,33.50\n", b"\xef\xbb\xbf" + CSV],
    ids=["as pinned", "CRLF", "no last line end", "other order and spelling", "byte order mark"],
)
def test_a_table_is_the_same_however_it_is_spelled(folder: Path, spelled: bytes) -> None:
    (folder / "small.csv").write_bytes(spelled)
    assert provide(SMALL, folder) == CONTENT


@pytest.mark.parametrize(
    "changed",
    [CSV.replace(b"33.5", b"33.6"), CSV + b"1,Bern\n", b"age,town\n33.5,Chur\n21,Bern\n", b"", b"\xff\xfe"],
    ids=["a value", "a row more", "order of rows", "empty", "not text"],
)
def test_a_provided_table_with_other_content_is_refused(folder: Path, changed: bytes) -> None:
    (folder / "small.csv").write_bytes(changed)
    sentence = refusal(SMALL, folder)
    assert sentence.startswith(str(folder / "small.csv"))
    assert f"Replace it with the file from {NOWHERE}" in sentence
    assert "33" not in sentence.replace(str(folder), "")  # no value of a record
    assert (folder / "small.csv").exists()  # the user's file is the user's


@pytest.mark.parametrize("inside", ["mnist", ""])
def test_a_compressed_file_in_its_own_folder_or_beside_the_others_is_judged_by_its_content(
    folder: Path, inside: str
) -> None:
    file, home = packed("x.gz", b"content"), folder / inside
    home.mkdir(exist_ok=True)
    for level in (1, 9):
        (home / "x.gz").write_bytes(gzip.compress(b"content", level))
        assert provide(file, folder) == b"content"
    (home / "x.gz").write_bytes(gzip.compress(b"Content"))
    assert "checksum" in refusal(file, folder)


COMPRESSED = gzip.compress(bytes(range(256)))


@pytest.mark.parametrize(
    "damaged", [COMPRESSED[:-9], b"no gzip", COMPRESSED[:12] + b"~~~~"], ids=["cut", "other", "bad"]
)
def test_a_damaged_gzip_file_is_refused(folder: Path, damaged: bytes) -> None:
    (folder / "x.gz").write_bytes(damaged)
    assert "cannot be read" in refusal(packed("x.gz", bytes(range(256))), folder)


IMAGES = idx(np.zeros((2, 3, 3), np.uint8))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        pytest.param(idx(np.zeros((2, 3), np.uint8)), "does not begin", id="one dimension too few"),
        pytest.param(b"\0\0\x0d\3" + IMAGES[4:], "does not begin", id="floating-point numbers"),
        pytest.param(IMAGES[:6], "does not begin", id="header cut"),
        pytest.param(IMAGES[:-1], "is not as long", id="values cut"),
        pytest.param(IMAGES + b"\0", "is not as long", id="more follows"),
        pytest.param(IMAGES[:4] + b"\xff" * 12, "is not as long", id="huge sizes"),
    ],
)
def test_a_wrong_or_truncated_idx_file_is_refused(content: bytes, problem: str) -> None:
    with pytest.raises(DatasetError, match=f"images {problem}"):
        read_idx(content, 3, source="images")


def test_mnist_is_loaded_from_four_files(folder: Path) -> None:
    contents = [np.arange(n * 4, dtype=np.uint8).reshape(n, 2, 2) for n in (3, 2)]
    parts = [contents[0], np.array([7, 1, 9], np.uint8), contents[1], np.array([0, 4], np.uint8)]
    files = []
    for place, part in enumerate(parts):
        files.append(packed(f"{place}.gz", idx(part)))
        (folder / f"{place}.gz").write_bytes(gzip.compress(idx(part)))
    loaded = load_mnist(folder, files=files)
    np.testing.assert_array_equal(loaded.training.images, contents[0])
    assert not loaded.training.images.flags.writeable
    np.testing.assert_array_equal(loaded.training.labels, [7, 1, 9])
    np.testing.assert_array_equal(loaded.test.images, contents[1])
    assert loaded.test.labels.dtype == np.int64


# The download


def test_a_download_is_verified_kept_and_not_repeated(site: tuple[Path, str], cache: Path) -> None:
    pages, address = site
    (pages / "x.gz").write_bytes(gzip.compress(b"content"))
    file = replace(packed("x.gz", b"content"), url=f"{address}/x.gz")
    assert provide(file) == b"content"
    (pages / "x.gz").unlink()
    assert provide(file) == b"content"
    assert [path.relative_to(cache).as_posix() for path in cache.rglob("*") if path.is_file()] == ["mnist/x.gz"]


@pytest.mark.parametrize(
    ("sent", "problem"), [(CSV + b"9,Bern\n", "checksum"), (b"<p>\n,,", "cannot be read")], ids=["table", "page"]
)
def test_a_download_that_differs_is_an_error_and_not_kept(
    site: tuple[Path, str], cache: Path, sent: bytes, problem: str
) -> None:
    pages, address = site
    (pages / "small.csv").write_bytes(sent)
    sentence = refusal(replace(SMALL, url=f"{address}/small.csv"))
    assert f"The download from {address}/small.csv" in sentence
    assert problem in sentence
    assert "discarded" in sentence
    assert list(cache.rglob("*")) == []


def test_a_server_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "_TIMEOUT_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/small.csv"
        assert "could not be downloaded (timed out)" in refusal(replace(SMALL, url=url))


def test_a_cache_that_cannot_be_written_is_named(site: tuple[Path, str], cache: Path) -> None:
    pages, address = site
    (pages / "small.csv").write_bytes(CSV)
    cache.parent.write_text("a file where the folder should be")
    assert f"could not be stored in {cache}" in refusal(replace(SMALL, url=f"{address}/small.csv"))


# Schemas


def test_a_table_is_encoded_by_the_schema_that_is_given(folder: Path) -> None:
    (folder / "small.csv").write_bytes(CSV)
    columns = {
        "age": {"type": "numeric", "lower": 0, "upper": 42},
        "town": {"type": "categorical", "categories": ["Bern", "Chur"]},
    }
    schema = parse_schema({"columns": columns}, target="town")
    loaded = load_table(SMALL, schema, folder)
    np.testing.assert_allclose(loaded.features, [[0.0, 1.0], [12.5 / 21, 1.0]])
    np.testing.assert_array_equal(loaded.targets, [-1, 1])
    assert loaded.schema is schema


# Principal components


def test_the_projection_finds_the_directions_in_which_public_images_vary_most() -> None:
    random = np.random.default_rng(3)
    images = np.full((500, 2, 2), 100, np.uint8)
    images[:, 0, 1] = random.integers(0, 200, 500)
    images[:, 1, 0] = random.integers(0, 100, 500)
    projection = public_projection(images, 2)
    np.testing.assert_allclose(projection.components, [[0, 1, 0, 0], [0, 0, 1, 0]], atol=0.1)
    np.testing.assert_allclose(projection.components @ projection.components.T, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(project(images, projection).mean(axis=0), 0, atol=1e-12)


def test_the_projection_is_frozen_and_looks_at_one_image_at_a_time() -> None:
    random = np.random.default_rng(4)
    images = random.integers(0, 256, (30, 3, 3)).astype(np.uint8)
    projection = public_projection(images[:20], 4)
    np.testing.assert_allclose(project(images, projection)[25:26], project(images[25:26], projection), atol=1e-12)
    assert project(images[:0], projection).shape == (0, 4)
    lengths = np.linalg.norm(images.reshape(30, 9) / 255 - projection.mean, axis=1)
    assert np.all(np.linalg.norm(project(images, projection), axis=1) <= lengths + 1e-12)
    with pytest.raises(ValueError, match="read-only"):
        projection.components[0, 0] = 1.0


@pytest.mark.parametrize("components", [0, 10])
def test_more_components_than_pixels_are_refused(components: int) -> None:
    with pytest.raises(TrainingError, match="Ask for 1 to 9"):
        public_projection(np.zeros((20, 3, 3), np.uint8), components)


# The real files


@needs_data
def test_the_real_digits() -> None:
    digits = load_mnist(DATA)
    assert digits.training.images.shape == (60_000, 28, 28)
    assert digits.test.images.shape == (10_000, 28, 28)
    # As published with the data set.
    published = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    np.testing.assert_array_equal(np.bincount(digits.training.labels), published)
    projection = public_projection(digits.test.images, 50)
    kept = np.var(project(digits.test.images, projection), axis=0)
    assert np.all(np.diff(kept) < 0)
    assert 0.8 < kept.sum() / np.var(digits.test.images.reshape(10_000, -1) / 255, axis=0).sum() < 0.85


@needs_data
def test_the_real_insurance_table_lies_inside_its_public_bounds() -> None:
    table = load_table(datasets.INSURANCE, insurance.public_schema(), DATA)
    assert len(table.features) == 1338
    np.testing.assert_allclose(table.targets[0], (16884.924 - 13_000) / 12_000)  # not clamped
    assert table.targets.max() < table.schema.target_bound
    assert np.linalg.norm(table.features, axis=1).max() <= table.schema.feature_norm


@needs_data
def test_the_real_obesity_table_has_seven_levels() -> None:
    table = load_table(datasets.OBESITY, obesity.public_schema(), DATA)
    assert len(table.features) == 2111
    np.testing.assert_array_equal(np.bincount(table.targets.astype(np.int64)), [272, 287, 290, 290, 351, 297, 324])


@pytest.mark.parametrize("file", [*MNIST, datasets.INSURANCE, datasets.OBESITY], ids=lambda file: file.name)
def test_every_published_file_has_a_secure_source_and_a_pinned_checksum(file: PublicFile) -> None:
    assert file.url.startswith("https://")
    assert len(bytes.fromhex(file.sha256)) == 32
