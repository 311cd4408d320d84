"""Files of several kinds give the same cells; what cannot be read is told in one sentence that shows none of them."""

import gzip
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence import sources
from ringfence.errors import RecordsError
from ringfence.protocol import Schema, parse_schema
from ringfence.silo.folder import SiloFolder
from ringfence.silo.records.records import load_records
from ringfence.sources import arrow_files, csv_files, read_table
from tests.silo.agents import make_silo_folder
from tests.sources.refusals import SECRET, refusal

NUMBER: dict[str, Any] = {"type": "numeric", "lower": 0, "upper": 10}
IMAGE: dict[str, Any] = {"type": "vector", "length": 2, "norm": 5.0, "extractor": "halves", "digest": "0" * 64}


def schema(**columns: dict[str, Any]) -> Schema:
    return parse_schema({"columns": {**columns, "y": {"type": "boolean"}}, "intercept": False}, target="y")


def texts(path: Path) -> dict[str, list[str]]:
    return {name: cells.texts() for name, cells in read_table(path).items()}


def without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_files, "has_pyarrow", lambda: False)


@pytest.fixture(params=["pyarrow", "standard library"])
def either_reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "pyarrow":
        monkeypatch.setattr(csv_files, "BLOCK", 1)  # shorter files are read without it
    else:
        without_pyarrow(monkeypatch)


@pytest.mark.usefixtures("either_reader")
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_first_line_tells_the_delimiter(tmp_path: Path, delimiter: str) -> None:
    file = tmp_path / "data.csv"
    file.write_text(f'x{delimiter}"a name; of, its own"\n1{delimiter}"two, words; and\nlines"\n')
    assert texts(file) == {"x": ["1"], "a name; of, its own": ["two, words; and\nlines"]}


@pytest.mark.usefixtures("either_reader")
def test_a_comma_is_a_decimal_mark_where_it_delimits_nothing(tmp_path: Path) -> None:
    file, described = tmp_path / "data.csv", tmp_path / "described.toml"
    file.write_text("x;y\n1,5;no\n2.5;yes\n3;no\n")
    np.testing.assert_allclose(load_records(file, schema(x=NUMBER)).features[:, 0], [-0.7, -0.5, -0.4], atol=1e-8)
    described.write_text('file = "data.csv"\ndecimal = "."\n')
    assert "not a finite number" in refusal(described, schema(x=NUMBER))
    file.write_text("x;y\n1.234,5;no\n")
    assert "not a finite number" in refusal(file, schema(x=NUMBER))


def test_a_description_says_how_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_bytes(gzip.compress("x:näme\n1,5:ü\n".encode("cp1250")))
    described = tmp_path / "clinic.toml"
    fields = {"file": "data.txt", "delimiter": ":", "decimal": ",", "encoding": "cp1250", "compression": "gzip"}
    described.write_text("".join(f'{name} = "{value}"\n' for name, value in fields.items()))
    assert texts(described) == {"x": ["1,5"], "näme": ["ü"]}
    assert read_table(described)["x"].numbers().tolist() == [1.5]
    assert sources.files(described) == [described, tmp_path / "data.txt"]
    for encoding in ("utf-16", "utf-16-le", "utf-32", "utf-8-sig", "latin-1"):
        (tmp_path / "data.csv").write_bytes('x;"näme"\n1,5;"ü\n"\n'.encode(encoding))
        described.write_text(f'file = "data.csv"\nencoding = "{encoding}"\n')
        assert texts(described) == {"x": ["1,5"], "näme": ["ü"]}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("file = 3", "must be a text"),
        ("colour = 1", "`colour` is unknown"),
        ('file = "a"\ndatabase = "b"', "not both"),
        ('file = "a"\nquery = "b"', "`query` goes with a database"),
        ('file = "a"\ndelimiter = ";;"', "one character"),
        ('file = "a"\ndecimal = "x"', '"." or ","'),
        ('file = "a"\nencoding = "martian"', "`encoding` is unknown"),
        ('file = "a"\nencoding = "base64"', "`encoding` is unknown"),
        ('file = "a"\ncompression = "zip"', "gzip"),
        ('file = "a"\narrays = 3', "`arrays`"),
        ('database = "sqlite:a"\norder_by = "x"', "needs a `query`"),
        ("file = ", "not valid TOML"),
        ('file = "absent.csv"', "could not be read"),
    ],
)
def test_a_description_that_makes_no_sense_says_what_is_wrong(tmp_path: Path, content: str, words: str) -> None:
    described = tmp_path / "clinic.toml"
    described.write_text(content)
    assert words in refusal(described, schema(x=NUMBER))


def test_compressed_files_and_blocks_make_no_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = "x,y\n" + "".join(f'{n % 10},"{"yes" if n % 3 else "no"}"\n' for n in range(500))
    (tmp_path / "a.csv").write_text(content)
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(content.encode()))
    whole = load_records(tmp_path / "a.csv", schema(x=NUMBER))
    monkeypatch.setattr(csv_files, "BLOCK", 50)
    for path in (tmp_path / "a.csv", tmp_path / "b.csv.gz"):
        cut = load_records(path, schema(x=NUMBER))
        np.testing.assert_array_equal(cut.features, whole.features)
        np.testing.assert_array_equal(cut.targets, whole.targets)
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(content.encode())[:-20])
    assert "damaged" in refusal(tmp_path / "b.csv.gz", schema(x=NUMBER))
    (tmp_path / "a.csv").write_text(content + f"{SECRET},no\n")
    assert "row 502, column 'x': this is not a finite number" in refusal(tmp_path / "a.csv", schema(x=NUMBER))


SPELLINGS = ["", " ", "1", " 2.5 ", "-0", "1e3", "nan", "inf", "NA", "1_0", "0x1", "+1", "1.", "a b", 'q"q', "é"]
cell = st.one_of(st.sampled_from(SPELLINGS), st.floats(allow_nan=False, allow_infinity=False).map(repr))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(cell, cell), max_size=8),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([0, 1, 2]),
    st.integers(1, 50),
)
def test_pyarrow_and_the_standard_library_read_the_same(
    rows: list[tuple[str, str]], end: str, blank: int, block: int
) -> None:
    quoted = [",".join('"' + text.replace('"', '""') + '"' if '"' in text else text for text in row) for row in rows]
    content = (end.join(["x,y", *quoted]) + end * (1 + blank)).encode()

    def read(path: Path) -> Any:
        try:
            parts = list(sources.chunks(path, {"x"}))
            cells = {name: [part[name] for part in parts if len(part[name])] for name in parts[0]}
            return {
                "y": [text for part in cells["y"] for text in part.texts()],
                "numbers": [repr(value) for part in cells["x"] for value in part.numbers().tolist()],
                "empty": [value for part in cells["x"] for value in part.empty().tolist()],
                "words": [word for name in "xy" for part in cells[name] for word in part.words().tolist()],
            }
        except RecordsError as refused:
            return str(refused)

    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder) / "same.csv"
        path.write_bytes(content)
        slow = read(path)
        patch.setattr(csv_files, "BLOCK", block)
        assert read(path) == slow


def test_only_a_long_csv_file_is_read_with_pyarrow_and_no_file_with_pandas(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom ringfence.sources import read_table\n"
        "read_table(Path(sys.argv[1]))\nprint(*({'pandas', 'pyarrow'} & set(sys.modules)))"
    )
    for rows, name in ((1000, "short.csv"), (csv_files.BLOCK // 6, "long.csv")):
        (tmp_path / name).write_text("x,y\n" + "1.5,no\n" * rows)
    times = [np.datetime64("2020-01-01T12:30:00"), None]
    pyarrow.parquet.write_table(
        pa.table({"x": [1.5, None], "y": [True, None], "time": times, "text": ["no", None], "image": [[3.0, 4.0]] * 2}),
        tmp_path / "a.parquet",
    )
    for name, loaded in {"short.csv": "", "long.csv": "pyarrow", "a.parquet": "pyarrow"}.items():
        printed = subprocess.check_output([sys.executable, "-c", code, str(tmp_path / name)], text=True)
        assert printed.strip() == loaded


def table() -> dict[str, Any]:
    return {"x": [1.0, None, 3.0], "y": [True, False, True], "image": [[3.0, 4.0], [30.0, 40.0], [0.0, 1.0]]}


def written(folder: Path, held: pa.Table) -> list[Path]:
    pyarrow.parquet.write_table(held, folder / "a.parquet", row_group_size=2)
    with pyarrow.ipc.new_file(folder / "b.arrow", held.schema) as file:
        file.write_table(held)
    with pyarrow.ipc.new_stream(folder / "c.arrows", held.schema) as file:
        file.write_table(held)
    return [folder / "a.parquet", folder / "b.arrow", folder / "c.arrows"]


def test_parquet_arrow_numpy_and_frames_give_the_same_records(tmp_path: Path) -> None:
    of = schema(x={**NUMBER, "missing": 5}, image=IMAGE)
    held = pa.table(table())
    expected = [[0.6, 0.8, -0.8], [0.6, 0.8, 0.0], [0.0, 0.2, -0.4]]
    np.savez(tmp_path / "d.npz", x=[1.0, np.nan, 3.0], y=[True, False, True], image=table()["image"])
    frames: list[Any] = [held, held.to_pandas(), pl.DataFrame(table()), pd.DataFrame(table())]
    for source in [*written(tmp_path, held), tmp_path / "d.npz", *frames]:
        records = load_records(source, of)
        np.testing.assert_allclose(records.features, expected, atol=1e-8)
        assert records.targets.tolist() == [1, -1, 1]


@pytest.mark.parametrize("at_once", [1, 10, 2**18])
def test_a_parquet_file_has_the_marks_of_its_csv_file_however_it_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    random = np.random.default_rng(1)
    held = pa.table(
        {
            "x": pa.array([*random.uniform(0, 10, 50).round(3).tolist()[:-1], None]),
            "x.y": random.integers(0, 9, 50),  # the name of a part of x, were x one of several parts
            "y": random.choice(["yes", "no"], 50),
            "note": pa.array(random.choice(["a b", "", "-0", "1e3"], 50)).dictionary_encode(),
        }
    )
    pyarrow.csv.write_csv(held.set_column(3, "note", held["note"].cast(pa.string())), tmp_path / "a.csv")
    pyarrow.parquet.write_table(held, tmp_path / "a.parquet", row_group_size=7)
    monkeypatch.setattr(arrow_files, "NUMBERS", at_once)
    of = schema(**{"x": {**NUMBER, "missing": 5}, "x.y": NUMBER})
    one, other = (load_records(tmp_path / name, of) for name in ("a.csv", "a.parquet"))
    assert one.marks is not None
    assert other.marks is not None
    assert one.marks.words.tolist() == other.marks.words.tolist()
    assert one.features.tolist() == other.features.tolist()
    assert texts(tmp_path / "a.csv")["x.y"] == texts(tmp_path / "a.parquet")["x.y"]


def test_truth_values_and_points_in_time_have_the_marks_of_their_csv_file(tmp_path: Path) -> None:
    """Else a table that is saved in another kind of file would forget its ledger."""
    times = pd.to_datetime(["2020-01-01 12:30:00.25", "2021-02-03", "2022-05-06 01:02:03"], format="ISO8601")
    held = pd.DataFrame(
        {
            "x": [1.0, float("inf"), -0.0],
            "whether": [True, False, True],
            "perhaps": pd.array([True, None, False], dtype="boolean"),
            "time": times,
            "zoned": times.tz_localize("UTC").tz_convert("Europe/Lisbon"),
            "day": times.date,
            "text": ["2020-01-01 at noon", "1234-", "TRUE story"],
        }
    )
    held.to_csv(tmp_path / "a.csv", index=False)
    held.to_parquet(tmp_path / "a.parquet")
    held.to_feather(tmp_path / "a.arrow")
    known = read_table(tmp_path / "a.csv")
    for source in (tmp_path / "a.parquet", tmp_path / "a.arrow", held):
        found = read_table(source)
        assert [name for name in held if found[name].words().tolist() != known[name].words().tolist()] == []
    assert len(set(known["time"].words().tolist())) == len(set(known["text"].words().tolist())) == 3


def test_arrays_stand_beside_the_columns_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("x,y\n1,yes\n,no\n3,yes\n")
    np.save(tmp_path / "image.npy", np.array(table()["image"], dtype=np.float32))
    described = tmp_path / "clinic.toml"
    described.write_text('file = "labels.csv"\n[arrays]\nimage = "image.npy"\n')
    of = schema(x={**NUMBER, "missing": 5}, image=IMAGE)
    np.testing.assert_allclose(load_records(described, of).features[1], [0.6, 0.8, 0.0], atol=1e-8)
    np.save(tmp_path / "image.npy", np.zeros((2, 2)))
    assert "not have as many rows" in refusal(described, of)


def test_columns_that_a_schema_cannot_describe_are_refused_only_where_it_reads_them(tmp_path: Path) -> None:
    held = pa.table({"x": [{"a": SECRET}], "y": [True], "z": pa.array([2.5]).cast(pa.decimal128(5, 2))})
    pyarrow.parquet.write_table(held, tmp_path / "a.parquet")
    sentence = refusal(tmp_path / "a.parquet", schema(x=NUMBER))
    assert "column 'x' holds nested fields" in sentence
    assert "ignore" in sentence
    assert load_records(tmp_path / "a.parquet", schema(z=NUMBER)).features.tolist() == [[-0.5]]


def test_vectors_of_another_length_or_with_nan_are_named_by_row(tmp_path: Path) -> None:
    for wrong in ([1.0], [1.0, None], [1.0, float("nan")], [1.0, 2.0, 3.0]):
        held = pa.table({"image": [[1.0, 2.0], wrong], "y": [True, False]})
        pyarrow.parquet.write_table(held, tmp_path / "a.parquet")
        sentence = refusal(tmp_path / "a.parquet", schema(image=IMAGE))
        assert "row 3, column 'image': this is not a vector of 2 finite numbers" in sentence


def test_a_damaged_row_group_is_told_and_nothing_of_the_file_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    held = pa.table({"x": np.arange(4000) / 400, "y": ["yes"] * 4000, "z": [SECRET] * 4000})
    pyarrow.parquet.write_table(held, file, row_group_size=1000, compression="zstd", use_dictionary=False)
    content = bytearray(file.read_bytes())
    place = pyarrow.parquet.read_metadata(file).row_group(2).column(0).data_page_offset
    content[place + 5 : place + 400] = bytes(395)
    file.write_bytes(content)
    assert "is damaged, or is not a Parquet file" in refusal(file, schema(x=NUMBER))


def test_of_a_damaged_file_no_agent_is_begun_and_nothing_is_charged(tmp_path: Path) -> None:
    silo = make_silo_folder(tmp_path)
    pyarrow.parquet.write_table(pyarrow.csv.read_csv(tmp_path / "records.csv"), tmp_path / "records.parquet")
    settings = silo.path / "silo.toml"
    settings.write_text(settings.read_text().replace("records.csv", "records.parquet"))
    folder, file = SiloFolder.open(silo.path), tmp_path / "records.parquet"
    with folder.ledger() as ledger:
        assert len(folder.current_records(ledger)) == len(silo.records())  # the same data set, in another file
        before = ledger.account().number
        content, place = bytearray(file.read_bytes()), pyarrow.parquet.read_metadata(file).row_group(0).column(0)
        content[place.data_page_offset : place.data_page_offset + 30] = bytes(30)
        file.write_bytes(content)
        with pytest.raises(RecordsError, match="is damaged, or is not a Parquet file"):
            folder.current_records(ledger)
        assert ledger.account().number == before


def test_a_million_columns_are_refused_with_what_to_do_instead(tmp_path: Path) -> None:
    file = tmp_path / "wide.csv"
    file.write_text(",".join(f"c{n}" for n in range(10**6)) + "\n" + ",".join(["1"] * 10**6) + "\n")
    assert "1000000 columns, and at most 100000 can be read" in refusal(file, schema(x=NUMBER))
    np.save(tmp_path / "wide.npy", np.zeros((1, 10**6), dtype=np.int8))
    assert "one column of vectors" in refusal(tmp_path / "wide.npy", schema(x=NUMBER))


def test_objects_in_numpy_files_are_not_run_and_numbers_that_are_no_characters_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([{"x": 1}]), allow_pickle=True)
    assert "holds objects" in refusal(tmp_path / "a.npy", schema(x=NUMBER))
    for number in (0x110000, 0xD800):
        np.savez(tmp_path / "a.npz", y=np.array([number, 65], dtype=np.uint32).view("U1"))
        assert "is damaged" in refusal(tmp_path / "a.npz", schema(x=NUMBER))


def test_without_the_extra_a_parquet_file_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyarrow.parquet.write_table(pa.table({"x": [1]}), tmp_path / "a.parquet")
    without_pyarrow(monkeypatch)
    assert 'pip install "ringfence[data]"' in refusal(tmp_path / "a.parquet", schema(x=NUMBER))
