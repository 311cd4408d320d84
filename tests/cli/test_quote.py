"""Commands that charge say first what to expect, refuse what is worth nothing, and charge nothing in a dry run."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from ringfence.estimates import statistics as estimates
from tests.cli.conftest import Federation, refuses, ringfence, ringfence_json

CHARGED = ("train", "try", "evaluate", "statistics", "summary")
NOT_YET = "Nothing has been charged yet."


@pytest.fixture
def model(federation: Federation, tmp_path: Path) -> Path:
    """A model whose ledgers are elsewhere, so that the folder's ledgers show what a command charged."""
    out = tmp_path / "model.json"
    ringfence(*federation.train("--out", out, "--curves", "none", "--ledgers", _folder(tmp_path / "elsewhere")))
    return out


def _folder(path: Path) -> Path:
    path.mkdir(exist_ok=True)
    return path


def command(name: str, federation: Federation, model: Path, epsilon: str) -> Sequence[object]:
    files, ledgers = federation.files, ["--ledgers", _folder(federation.folder / "ledgers")]
    again = [*ledgers, "--new-beginning", "a test of quotes", "--epsilon", epsilon]
    return {
        "train": ["train", *files, "--schema", federation.schema, "--target", "ill", *again, "--no-report"],
        "try": ["train", *files, "--schema", federation.schema, "--target", "ill", *again, "--no-report", "--try",
                "ridge=0,0.1"],
        "evaluate": ["evaluate", model, *files, *again],
        "statistics": ["statistics", *files, "--schema", federation.schema, *again],
        "summary": ["model", "summary", model, *files, *again],
    }[name]  # fmt: skip


def charged(federation: Federation) -> list[Path]:
    return list((federation.folder / "ledgers").glob("*.ledger"))


@pytest.mark.parametrize("name", CHARGED)
def test_a_dry_run_prints_the_quote_alone_and_charges_nothing(name: str, federation: Federation, model: Path) -> None:
    epsilon = "19" if name == "summary" else "5"
    done = ringfence(*command(name, federation, model, epsilon), "--dry-run")
    lines = done.stdout.splitlines()
    assert 2 <= len(lines) <= 3
    assert lines[0].startswith(f"For epsilon = {epsilon} expect ")
    assert lines[-1].endswith(NOT_YET)
    assert charged(federation) == []
    content = ringfence_json(*command(name, federation, model, epsilon), "--dry-run")
    assert set(content) == {"expected"}
    assert content["expected"]["worth_it"]
    assert (content["expected"]["gain_over_guessing"] is not None) == (name in ("train", "try"))


@pytest.mark.parametrize("name", CHARGED)
def test_what_is_worth_nothing_is_refused_for_no_charge_unless_it_is_wanted_anyway(
    name: str, federation: Federation, model: Path
) -> None:
    poor = command(name, federation, model, "3" if name == "summary" else "0.001")
    reason = "not expected to beat guessing" if name in ("train", "try") else "no figure would be precise enough"
    refuses(reason, *poor)
    assert charged(federation) == []
    done = ringfence(*poor, "--anyway")
    assert NOT_YET in done.stderr
    assert len(charged(federation)) == 3


def test_the_quote_stands_before_the_result_and_in_its_data(federation: Federation) -> None:
    done = ringfence(*federation.train())
    assert done.stderr.splitlines()[-1].endswith(NOT_YET)
    expected = ringfence_json(*federation.train("--new-beginning", "another"))["expected"]
    assert expected["worth_it"]
    assert expected["rehearsals"] == 16


@pytest.mark.parametrize("name", ["evaluate", "statistics"])
def test_a_plan_for_deployed_silos_is_refused_alike(
    name: str, federation: Federation, model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "plan.json"
    asked = {
        "evaluate": ["evaluate", model, "--epsilon", "0.001", "--out", out],
        "statistics": [
            "statistics",
            "--schema",
            federation.schema,
            "--silo",
            "a=50",
            "--epsilon",
            "0.01",
            "--out",
            out,
        ],
    }[name]
    refuses("no figure would be precise enough", *asked)
    assert not out.exists()
    ringfence(*asked, "--anyway")
    assert out.exists()


def test_a_plan_is_written_only_if_its_model_is_expected_to_beat_guessing(
    federation: Federation, tmp_path: Path
) -> None:
    out = tmp_path / "plan.json"
    asked = ["plan", "--schema", federation.schema, "--target", "ill", "--silo", "a=100", "--epsilon", "0.01"]
    assert "not expected to beat guessing" in ringfence(*asked).stdout
    refuses("not expected to beat guessing", *asked, "--out", out)
    assert not out.exists()
    ringfence(*asked, "--out", out, "--anyway")
    assert out.exists()


def test_results_that_cannot_be_computed_are_found_before_anything_is_charged(
    federation: Federation, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As statistics of columns with synonyms once were: they crashed after they had charged epsilon 1."""

    def broken(*arguments: object) -> None:
        raise TypeError("unhashable type: 'dict'")

    monkeypatch.setattr(estimates, "_summary", broken)
    refuses("cannot be computed (TypeError in a rehearsal)", *command("statistics", federation, model, "1"))
    assert charged(federation) == []


def test_statistics_of_columns_with_synonyms_are_printed(federation: Federation, tmp_path: Path) -> None:
    text = federation.schema.read_text().replace(
        'categories = ["a", "b", "c"]', 'categories = ["a", "b", "c"], synonyms = {a = ["A"]}'
    )
    schema = tmp_path / "synonyms.toml"
    schema.write_text(text)
    done = ringfence("statistics", *federation.files, "--schema", schema, "--epsilon", "5")
    assert "ward" in done.stdout


def test_a_column_of_text_that_drowns_the_others_is_refused_and_named(federation: Federation, tmp_path: Path) -> None:
    for file in federation.files:
        lines = file.read_text().splitlines()
        noted = [f"{lines[0]},note", *(f"{line},seen again after lunch" for line in lines[1:])]
        file.write_text("\n".join(noted) + "\n")
    schema = tmp_path / "text.toml"
    schema.write_text(federation.schema.read_text() + 'columns.note = {type = "text", words = 1000}\n')
    said = "most of them for 1000 features of column 'note'"
    refuses(said, "train", *federation.files, "--schema", schema, "--target", "ill", "--epsilon", "0.05")
    assert not list(federation.folder.glob("*.ledger"))
