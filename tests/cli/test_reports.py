"""Reports and trackers from the command line: where they go, what they refuse, and that refusing costs nothing."""

import html
from pathlib import Path

import pytest

from tests.cli.conftest import Federation, refuses, ringfence, ringfence_json


def test_a_report_is_written_beside_the_model(federation: Federation) -> None:
    done = ringfence(*federation.train("--rounds", "5", "--out", federation.folder / "model.json"))
    page = federation.folder / "model.html"
    assert f"report {page}" in done.stdout
    assert page.read_text().startswith("<!doctype html>")


def test_without_a_model_file_a_report_is_written_with_the_ledgers_or_where_it_is_asked_for(
    federation: Federation,
) -> None:
    first = ringfence_json(*federation.train("--rounds", "5"))
    assert [str(path) for path in federation.folder.rglob("*.html")] == [first["report"]]
    assert list(Path(first["report"]).parent.glob("*.ledger"))
    page = federation.folder / "elsewhere.html"
    second = ringfence_json(*federation.train("--rounds", "5", "--report", page))
    assert second["report"] == str(page)
    assert second["plan"] in page.read_text()


def test_no_report_writes_none(federation: Federation) -> None:
    model = federation.folder / "model.json"
    assert "report" not in ringfence_json(*federation.train("--rounds", "5", "--out", model, "--no-report"))
    assert model.exists()
    assert list(federation.folder.glob("*.html")) == []


def test_figures_and_a_tracker_get_folders_of_their_own(federation: Federation) -> None:
    charts, board = federation.folder / "charts", federation.folder / "board"
    page = federation.folder / "page.html"
    ringfence_json(*federation.train("--rounds", "5", "--report", page, "--svg", charts, "--track", board))
    drawn = {path.stem for path in charts.glob("*.svg")}
    curves = {name for name in drawn if name.startswith("curve-")}
    assert curves
    others = {"budgets", "epsilon", "updates", "privacy-accuracy", "held-out-loss"}
    assert drawn - curves - {"roc", "calibration"} == others
    assert len(list(board.iterdir())) == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--report", "page.html", "--no-report"], "contradict each other"),
        (["--svg", "charts", "--no-report"], "name its file with --report"),
        (["--report", "missing/page.html"], "does not exist"),
        (["--report", "model.json", "--out", "model.json"], "cannot both be written"),
        (["--track", "north.csv/board"], "Name another folder"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is_spent(
    federation: Federation, monkeypatch: pytest.MonkeyPatch, options: list[str], says: str
) -> None:
    monkeypatch.chdir(federation.folder)
    refuses(says, *federation.train(*options))
    assert federation.ledgers() == {}
    assert not Path("model.json").exists()


def test_a_shuffled_runs_report_says_what_holds_if_the_shuffler_helps_the_server(federation: Federation) -> None:
    page = federation.folder / "page.html"
    content = ringfence_json(*federation.train("--trust", "shuffler", "--rounds", "5", "--report", page))
    shown = html.unescape(page.read_text())
    assert "Against the server, the shuffler and all other silos together: each silo's own noise alone" in shown
    assert "Privacy and accuracy at other epsilons" in shown
    for silo in content["silos"].values():
        for cost in (*silo["this_run"], *silo["all_runs"]):
            assert f"{cost['epsilon']:.4g}" in shown


def test_an_audits_report_is_written_where_it_is_asked_for_also_when_the_claim_is_refuted(tmp_path: Path) -> None:
    page = tmp_path / "audit.html"
    small = ("audit", "--epsilon", "10", "--records", "32", "--runs", "40", "--report", str(page))
    ringfence(*small)
    assert "The audit does not refute the claim" in page.read_text()
    ringfence(*small, "--sabotage", "half-noise", status=1)
    assert "REFUTED" in page.read_text()
