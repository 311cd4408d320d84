"""`ringfence schema`, `account`, `ledger` and the frame around them."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import ringfence as package
from tests.cli.conftest import Federation, Json, Ringfence


def test_the_installed_command_and_the_module_print_the_package_s_version() -> None:
    for command in ([str(Path(sys.executable).with_name("ringfence"))], [sys.executable, "-m", "ringfence"]):
        printed = subprocess.check_output([*command, "--version"], text=True)
        assert printed.strip() == package.__version__


def test_a_schema_draft_holds_names_and_types_and_no_value(federation: Federation, ringfence: Ringfence) -> None:
    done = ringfence("schema", "draft", str(federation.files[0]))
    columns = tomllib.loads(done.stdout)["columns"]
    assert {name: column["type"] for name, column in columns.items()} == {
        "age": "numeric", "dose": "numeric", "ward": "categorical", "ill": "boolean", "cost": "numeric",
    }  # fmt: skip
    assert all(value in ("?", ["?"]) for c in columns.values() for key, value in c.items() if key != "type")


def test_a_draft_s_reader_is_warned_of_identifiers_that_repeat_and_the_draft_is_the_same_without(
    tmp_path: Path, ringfence: Ringfence
) -> None:
    file, drafts = tmp_path / "visits.csv", []
    for patients in (["Quilliam", "Osterhaus", "Quilliam"], ["Quilliam", "Osterhaus", "Zwolle"]):
        file.write_text("patient,age\n" + "".join(f"{name},40\n" for name in patients))
        drafts.append(ringfence("schema", "draft", str(file)))
    assert 'only person = "patient" in the schema protects all rows of a person together' in drafts[0].stderr
    assert drafts[1].stderr == ""
    assert drafts[0].stdout == drafts[1].stdout
    assert "Quilliam" not in drafts[0].stdout + drafts[0].stderr


def test_a_draft_that_was_not_filled_in_is_refused_by_name(federation: Federation, ringfence: Ringfence) -> None:
    federation.schema.unlink()
    assert ringfence("schema", "draft", str(federation.files[0]), "--out", str(federation.schema)).returncode == 0
    done = ringfence(*federation.train())
    assert done.returncode == 1
    assert "'lower' of column 'age' is not filled in" in done.stderr


def test_a_draft_is_not_written_over_a_schema_that_may_be_filled_in(
    federation: Federation, ringfence: Ringfence
) -> None:
    filled_in = federation.schema.read_text()
    done = ringfence("schema", "draft", str(federation.files[0]), "--out", str(federation.schema))
    assert done.returncode == 1
    assert "may have been filled in" in done.stderr
    assert federation.schema.read_text() == filled_in


def test_the_example_trains_and_predicts_and_writes_over_nothing(
    tmp_path: Path, ringfence: Ringfence, ringfence_json: Json
) -> None:
    files = ringfence_json("example", str(tmp_path / "new"), "--json")["files"]
    assert [Path(file).name for file in files] == ["north.csv", "south.csv", "west.csv", "schema.toml", "new.csv"]
    model = tmp_path / "model.json"
    trained = ringfence(
        "train", *files[:3], "--schema", files[3], "--target", "ill", "--epsilon", "8", "--out", str(model)
    )
    assert trained.returncode == 0, trained.stderr
    assert ringfence("predict", str(model), files[4]).stdout.split() == ["ill", "yes", "no"]
    again = ringfence("example", str(tmp_path / "new"))
    assert again.returncode == 1
    assert "is not overwritten" in again.stderr


def test_an_example_that_cannot_be_written_says_why(tmp_path: Path, ringfence: Ringfence) -> None:
    (tmp_path / "file").write_text("")
    done = ringfence("example", str(tmp_path / "file" / "below"))
    assert done.returncode == 1
    assert "cannot be written to" in done.stderr
    assert "Name another folder" in done.stderr


def test_reproduce_refuses_a_data_folder_that_is_not_there_before_any_work(
    tmp_path: Path, ringfence: Ringfence
) -> None:
    done = ringfence("reproduce", "mnist", "--out", str(tmp_path / "out"), "--data", str(tmp_path / "nowhere"))
    assert done.returncode == 1
    assert done.stderr.startswith("ringfence: There is no folder")
    assert not (tmp_path / "out").exists()


def test_reproduce_refuses_an_effort_where_a_page_has_one_size(tmp_path: Path, ringfence: Ringfence) -> None:
    done = ringfence("reproduce", "attacks", "--out", str(tmp_path / "out"), "--effort", "2")
    assert done.returncode == 1
    assert "--effort applies to privacy-truth only" in done.stderr
    assert not (tmp_path / "out").exists()


QUESTION = ["account", "--records", "1238", "--rounds", "35", "--clip", "1", "--delta", repr(1 / 1238**2)]


def test_account_answers_both_ways(ringfence_json: Json) -> None:
    noise = ringfence_json(*QUESTION, "--sampling", "full", "--epsilon", "3")
    assert noise["sigma"] == pytest.approx(0.0150, rel=0.005)
    back = ringfence_json(*QUESTION, "--sampling", "full", "--sigma", repr(noise["sigma"]))
    assert back["epsilon"] == pytest.approx(3.0, rel=1e-5)
    assert back["epsilon"] <= 3.0


@pytest.mark.parametrize(("sampling", "sigma"), [("full", 8.11), ("fixed", 11.2), ("poisson", 8.08)])
def test_account_agrees_with_the_reference_noise_at_epsilon_6(
    ringfence_json: Json, sampling: str, sigma: float
) -> None:
    batch = [] if sampling == "full" else ["--batch", "256"]
    answer = ringfence_json(*QUESTION, "--sampling", sampling, *batch, "--epsilon", "6")
    assert 1000 * answer["sigma"] == pytest.approx(sigma, rel=0.006)


def test_account_shows_the_true_epsilon_of_the_paper_s_formula(ringfence_json: Json) -> None:
    answer = ringfence_json(
        *QUESTION, "--sampling", "fixed", "--batch", "256", "--epsilon", "6", "--noise", "practical"
    )
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
def test_account_refuses_bad_numbers_in_one_sentence(ringfence: Ringfence, changes: list[str], says: str) -> None:
    done = ringfence(*QUESTION, *changes)
    assert done.returncode == 1
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_an_unreadable_ledger_is_one_clear_sentence(ringfence: Ringfence, tmp_path: Path) -> None:
    done = ringfence("ledger", str(tmp_path / "nowhere.ledger"))
    assert done.returncode == 1
    assert "no ledger" in done.stderr
