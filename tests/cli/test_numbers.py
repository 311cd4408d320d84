"""Numbers that agree: what one run, or several, are said to have cost is the same wherever people and machines look."""

import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from ringfence.model.model import Model
from tests.cli.conftest import Federation, ringfence, ringfence_json

PARTS = "18 rounds: 4 survey, 12 training, 2 evaluation"


def page_words(path: Path) -> str:
    """What a reader sees of a page."""
    body = path.read_text().split("<body>")[1]
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", body)).split())


def test_every_output_of_one_run_counts_the_same_rounds(federation: Federation) -> None:
    """The terminal, JSON, the report, the statement, the card and the ledger: 18, and its parts in the same words."""
    out, page = federation.folder / "model.json", federation.folder / "page.html"
    shown = ringfence(*federation.train("--out", out, "--report", page, exact=False)).stdout
    assert shown.splitlines()[0].startswith(f"preconditioned descent, along axes that a survey finds: {PARTS}; ")
    assert re.search(r"^north +300 +18 ", shown, re.MULTILINE)
    assert "north: each of 300 records, over 18 rounds, by epsilon = 2" in shown
    report = page_words(page)
    assert "rounds: 4 survey, 12 training, 2 evaluation 18" in report  # the key number
    assert f"Rounds {PARTS}" in report  # the plan
    assert "north 300 18 2 " in report  # the table of costs
    assert "preconditioned 18 " in report  # the table of other epsilons
    card, summary = ringfence("model", "card", out).stdout, ringfence_json("ledger", federation.folder / "north.ledger")
    assert f"| rounds | {PARTS} |" in card
    assert (summary["plans"][0]["rounds"], summary["plans"][0]["charged"]) == (18, 18)
    assert " 18/18 " in ringfence("ledger", federation.folder / "north.ledger").stdout
    assert Model.load(out).plan.rounds == 18
    for text in (shown, report.replace("rounds: 4 survey, 12 training, 2 evaluation 18", ""), card):
        assert {int(count) for count in re.findall(r"\b(\d+) rounds", text)} == {18}
    again = ringfence_json(*federation.train("--no-report", exact=False))
    assert (again["rounds"], again["steps"]) == (18, 12)
    assert {silo["rounds"] for silo in again["silos"].values()} == {18}


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


def costs(federation: Federation) -> dict[str, Any]:
    """What stands in the ledger of silo 'north' against its one observer; the parts of its budget add up."""
    summary = ringfence_json("ledger", federation.folder / "north.ledger")
    (found,) = summary["costs"]
    assert found["used"] + found["reserved"] + found["kept"] + found["left"] == pytest.approx(found["budget"])
    assert found["used"] <= found["budget"]
    return {"delta": summary["delta"], **found}


def trained(federation: Federation, *options: object) -> tuple[str, str, str]:
    """Train, and return what the terminal, the report and the card say."""
    out, page = federation.folder / "model.json", federation.folder / "page.html"
    options = ("--max-rounds", "4", "--out", out, "--overwrite", "--report", page, *options)
    shown = ringfence(*federation.train(*options, epsilon="1", exact=False)).stdout
    return shown, page_words(page), ringfence("model", "card", out).stdout


def test_runs_without_a_cap_state_one_guarantee_everywhere_and_no_budget_that_it_exceeds(
    federation: Federation,
) -> None:
    for run in (1, 2, 3):
        shown, report, card = trained(federation)
        found = costs(federation)
        held = found["guarantee"]
        assert found["basis"] == ("budget" if run == 1 else "odometer")
        assert (held["epsilon"] == 1.0, held["delta"] == found["delta"]) == (run == 1, run == 1)
        ledger = ringfence("ledger", federation.folder / "north.ledger").stdout
        assert f"whenever you stop: epsilon {held['epsilon']:.4g} at delta {held['delta']:.2g}." in ledger
        assert re.search(rf"^north .* {held['epsilon']:.4g} +{held['delta']:.4g}$", shown, re.MULTILINE)
        assert f"{held['epsilon']:.4g} | {held['delta']:.2g} |" in card
        assert f"largest epsilon of all runs {held['epsilon']:.4g} " in report
        if run > 1:
            words = f"(all runs on this data, whenever you stop: epsilon = {held['epsilon']:.4g}, delta = "
            assert words in shown
            assert words in report
            assert f"{found['budget']:.4g}" not in ledger  # it was nobody's decision, and promises nothing
            assert "It is not the budget: that was raised after the first answer" in ledger
            assert "Nothing of the budget is left." in ledger


def test_under_a_cap_every_output_guarantees_the_cap_and_says_what_is_left_of_it(federation: Federation) -> None:
    lefts = []
    for _ in (1, 2):
        shown, report, card = trained(federation, "--cap", "3,1e-6")
        found = costs(federation)
        assert (found["budget"], found["guarantee"], found["basis"]) == (3.0, {"epsilon": 3.0, "delta": 1e-6}, "budget")
        ledger = ringfence("ledger", federation.folder / "north.ledger").stdout
        assert (
            "whenever you stop: epsilon 3 at delta 1e-06.\nThis is the budget. Of the budget of epsilon 3.000 at delta "
            in ledger
        )
        parts = re.search(
            r"([\d.]+) is used, ([\d.]+) is reserved .*, ([\d.]+) is kept .*, and ([\d.]+) is left", ledger
        )
        assert parts is not None
        assert sum(round(1000 * float(part)) for part in parts.groups()) == 3000
        assert "(all runs on this data, whenever you stop: epsilon = 3, delta = 1e-06)" in shown
        assert "largest epsilon of all runs 3 " in report
        assert "| 1 | 1e-06 | 3 | 1e-06 |" in card
        lefts.append(found["left"])
    assert lefts[0] > lefts[1] > 0


def test_a_cap_that_came_after_the_first_answer_is_not_drawn_below_the_guarantee(federation: Federation) -> None:
    trained(federation)
    _, report, _ = trained(federation, "--cap", "1.46,1e-6")
    found = costs(federation)
    assert found["basis"] == "odometer"
    assert found["used"] <= 1.46 < found["guarantee"]["epsilon"]
    assert "The cap of 1.46 was set after the first answer of north, south, west. There it limits what plans" in report
    assert "cap on all runs" not in report


def test_an_operator_reads_the_same_parts_of_the_budget_in_review_approval_and_status(federation: Federation) -> None:
    folder, plan = federation.folder / "silo", federation.folder / "plan.json"
    ringfence(*federation.silo_init(folder))
    sizes = ("--silo", "north=300", "--silo", "south=300", "--epsilon", "1", "--delta", "1e-7", "--out", plan)
    made = ringfence_json("plan", "--schema", federation.schema, "--target", "ill", "--curves", "none", *sizes)
    review = ringfence("silo", "review", folder, plan).stdout
    approval = ringfence("silo", "approve", folder, plan, "--digest", made["digest"]).stdout
    status = ringfence("silo", "status", folder).stdout
    (words,) = {
        words for text in (review, approval, status) for words in re.findall(r"f the budget of .*? left\.", text)
    }
    assert words.startswith("f the budget of epsilon 3.000 at delta 1e-06, 0.000 is used, 0.")
    assert "The plan has 16 rounds: 2 survey, 12 training, 2 evaluation." in review
    assert ": epsilon 1 at delta 1e-07 for each record. Of the budget of epsilon 3" in approval
    assert " 0/16 " in status
