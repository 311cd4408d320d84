"""`ringfence schema`, `account`, `ledger` and the frame around them."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import ringfence as package
from tests.cli.conftest import Federation, refuses, ringfence, ringfence_json


def test_the_installed_command_and_the_module_print_the_package_s_version() -> None:
    for command in ([str(Path(sys.executable).with_name("ringfence"))], [sys.executable, "-m", "ringfence"]):
        printed = subprocess.check_output([*command, "--version"], text=True)
        assert printed.strip() == package.__version__


PRODUCTS = """
import os, sys
from ringfence.cli.main import run
sys.argv = ["ringfence", "--version"]
try:
    run()
except SystemExit:
    import numpy
    from threadpoolctl import threadpool_info
    print(os.environ["OPENBLAS_NUM_THREADS"], *(library["num_threads"] for library in threadpool_info()))
"""


def test_a_command_multiplies_matrices_on_one_thread_unless_its_environment_says_otherwise() -> None:
    bare = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    for environment, expected in ((bare, ["1", "1"]), ({**bare, "OPENBLAS_NUM_THREADS": "2"}, ["2"])):
        printed = subprocess.check_output([sys.executable, "-c", PRODUCTS], env=environment, text=True)
        assert printed.split()[1 : 1 + len(expected)] == expected


def test_a_schema_draft_holds_names_and_types_and_no_value(federation: Federation) -> None:
    done = ringfence("schema", "draft", federation.files[0])
    columns = tomllib.loads(done.stdout)["columns"]
    assert {name: column["type"] for name, column in columns.items()} == {
        "age": "numeric", "dose": "numeric", "ward": "categorical", "ill": "boolean", "cost": "numeric",
    }  # fmt: skip
    assert all(value in ("?", ["?"]) for c in columns.values() for key, value in c.items() if key != "type")


def test_a_draft_s_reader_is_warned_of_identifiers_that_repeat_and_the_draft_is_the_same_without(
    tmp_path: Path,
) -> None:
    file, drafts = tmp_path / "visits.csv", []
    for patients in (["Quilliam", "Osterhaus", "Quilliam"], ["Quilliam", "Osterhaus", "Zwolle"]):
        file.write_text("patient,age\n" + "".join(f"{name},40\n" for name in patients))
        drafts.append(ringfence("schema", "draft", file))
    assert 'only person = "patient" in the schema protects all rows of a person together' in drafts[0].stderr
    assert drafts[1].stderr == ""
    assert drafts[0].stdout == drafts[1].stdout
    assert "Quilliam" not in drafts[0].stdout + drafts[0].stderr


def test_a_draft_that_was_not_filled_in_is_refused_by_name(federation: Federation) -> None:
    federation.schema.unlink()
    ringfence("schema", "draft", federation.files[0], "--out", federation.schema)
    refuses("'lower' of column 'age' is not filled in", *federation.train())


def test_a_draft_is_not_written_over_a_schema_that_may_be_filled_in(federation: Federation) -> None:
    filled_in = federation.schema.read_text()
    refuses("may have been filled in", "schema", "draft", federation.files[0], "--out", federation.schema)
    assert federation.schema.read_text() == filled_in


def test_the_example_trains_and_predicts_and_writes_over_nothing(tmp_path: Path) -> None:
    files = ringfence_json("example", tmp_path / "new", "--json")["files"]
    assert [Path(file).name for file in files] == ["north.csv", "south.csv", "west.csv", "schema.toml", "new.csv"]
    model = tmp_path / "model.json"
    ringfence("train", *files[:3], "--schema", files[3], "--target", "ill", "--epsilon", "8", "--out", model)
    assert ringfence("predict", model, files[4]).stdout.split() == ["ill", "yes", "no"]
    refuses("is not overwritten", "example", tmp_path / "new")


QUERY = ["account", "--records", "1238", "--rounds", "35", "--clip", "1", "--delta", repr(1 / 1238**2)]


def test_account_answers_both_ways() -> None:
    noise = ringfence_json(*QUERY, "--sampling", "full", "--epsilon", "3")
    assert noise["sigma"] == pytest.approx(0.0150, rel=0.005)
    back = ringfence_json(*QUERY, "--sampling", "full", "--sigma", repr(noise["sigma"]))
    assert back["epsilon"] == pytest.approx(3.0, rel=1e-5)
    assert back["epsilon"] <= 3.0


def test_account_shows_the_true_epsilon_of_the_paper_s_formula() -> None:
    answer = ringfence_json(*QUERY, "--sampling", "fixed", "--batch", "256", "--epsilon", "6", "--noise", "practical")
    assert answer["nominal_epsilon"] == 6
    assert 8.8 < answer["epsilon"] < 9.4


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ([], "either --sigma"),
        (["--sigma", "1", "--epsilon", "1"], "either --sigma"),
        (["--epsilon", "-1"], "epsilon must be"),
        (["--sigma", "0"], "sigma must be"),
        (["--epsilon", "1", "--sampling", "fixed"], "needs --batch"),
        (["--epsilon", "1", "--sampling", "fixed", "--batch", "2000"], "larger than the 1238 records"),
        (["--epsilon", "1", "--sampling", "one-pass", "--batch", "100"], "disjoint batches"),
        (["--epsilon", "1", "--sampling", "now and then", "--batch", "9"], "Unknown sampling"),
    ],
)
def test_account_refuses_bad_numbers_in_one_sentence(changes: list[str], says: str) -> None:
    refuses(says, *QUERY, *changes)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("ledger nowhere.ledger", "no ledger"),
        ("example file/below", "cannot be written to"),
        ("reproduce mnist --out out --data nowhere", "There is no folder"),
        ("reproduce attacks --out out --effort 2", "--effort applies to privacy-truth only"),
    ],
)
def test_what_cannot_be_read_or_made_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    refuses(says, *command.split())
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("command", "package", "extra"),
    [
        ("demo", "mlxtend", "demo"),
        ("tour", "psutil", "deployment"),
        ("silo serve x", "starlette", "serving"),
        ("silo page x", "uvicorn", "serving"),
        ("silo request kit --name north", "nvflare", "deployment"),
        ("silo join x kit", "nvflare", "deployment"),
        ("silo courier x kit", "nvflare", "deployment"),
        ("server request kits --host localhost", "nvflare", "deployment"),
        ("server join kits x.response", "nvflare", "deployment"),
        ("server start kit", "nvflare", "deployment"),
        ("shuffler serve x", "starlette", "serving"),
        ("shuffler restore x", "starlette", "serving"),
        ("federation init x --server localhost --silo north", "nvflare", "deployment"),
        ("federation sign x north.request", "nvflare", "deployment"),
    ],
)
def test_a_command_without_its_extra_names_it_and_makes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, package: str, extra: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, package, None)
    refuses(f"needs '{package}', which is not installed: pip install \"ringfence[{extra}]\".", *command.split())
    assert not list(tmp_path.iterdir())
