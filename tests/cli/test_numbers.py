"""Numbers that agree: what one run, or several, are said to have cost is the same wherever people and machines look."""

import re
from html import unescape
from pathlib import Path

from ringfence.model.model import Model
from tests.cli.conftest import Federation, ringfence, ringfence_json

PARTS = "16 rounds: 2 survey, 12 training, 2 evaluation"


def page_words(path: Path) -> str:
    """What a reader sees of a page."""
    body = path.read_text().split("<body>")[1]
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", body)).split())


def test_every_output_of_one_run_counts_the_same_rounds(federation: Federation) -> None:
    """The terminal, JSON, the report, the statement, the card and the ledger: 16, and its parts in the same words."""
    out, page = federation.folder / "model.json", federation.folder / "page.html"
    shown = ringfence(*federation.train("--out", out, "--report", page, exact=False)).stdout
    assert shown.splitlines()[0].startswith(f"preconditioned descent, along axes that a survey finds: {PARTS}; ")
    assert re.search(r"^north +300 +16 ", shown, re.MULTILINE)
    assert "north: each of 300 records, over 16 rounds, by epsilon = 2" in shown
    report = page_words(page)
    assert "rounds: 2 survey, 12 training, 2 evaluation 16" in report  # the key number
    assert f"Rounds {PARTS}" in report  # the plan
    assert "north 300 16 2 " in report  # the table of costs
    assert "preconditioned 16 " in report  # the table of other epsilons
    card, summary = ringfence("model", "card", out).stdout, ringfence_json("ledger", federation.folder / "north.ledger")
    assert f"| rounds | {PARTS} |" in card
    assert (summary["plans"][0]["rounds"], summary["plans"][0]["charged"]) == (16, 16)
    assert " 16/16 " in ringfence("ledger", federation.folder / "north.ledger").stdout
    assert Model.load(out).plan.rounds == 16
    for text in (shown, report.replace("rounds: 2 survey, 12 training, 2 evaluation 16", ""), card):
        assert {int(count) for count in re.findall(r"\b(\d+) rounds", text)} == {16}
    again = ringfence_json(*federation.train("--no-report", exact=False))
    assert (again["rounds"], again["steps"]) == (16, 12)
    assert {silo["rounds"] for silo in again["silos"].values()} == {16}


def test_a_choice_among_candidates_counts_the_rounds_of_all_of_them(federation: Federation) -> None:
    page = federation.folder / "page.html"
    done = ringfence_json(*federation.train("--try", "ridge=0,0.1", "--max-rounds", "4", "--report", page, exact=False))
    (rounds,) = {silo["rounds"] for silo in done["silos"].values()}
    summary = ringfence_json("ledger", federation.folder / "north.ledger")
    assert done["rounds"] == rounds == sum(plan["rounds"] for plan in summary["plans"])
    words = f"{rounds} rounds: 4 survey, 8 training, 2 comparison, 2 evaluation"
    assert any(words in line for line in done["explanation"])
    report = page_words(page)
    assert f"over {rounds} rounds, by epsilon" in report
    assert f"{words.partition(' ')[2]} {rounds}" in report
