"""`ringfence statistics`: who has how many, how much is missing, how silos differ, on the ledger's account."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringfence.protocol import load_plan
from ringfence.server.conduct import conduct
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.ledger import Ledger
from ringfence.silo.records.records import load_records
from tests.cli.conftest import Federation, epsilon, refuses, ringfence, ringfence_json
from tests.server.local import Local

Z = 1.96


def charged(report: dict[str, Any]) -> dict[str, Any]:
    """What the report says of its cost, as other commands print it."""
    return {"plan": report["plan"], "silos": report["cost"]}


def test_they_find_counts_means_and_quantiles_up_to_their_noise(federation: Federation) -> None:
    report = ringfence_json(*federation.statistics("--cross", "ward,ill", epsilon="1000"))
    wards, ill = np.array(federation.column("ward")), np.array(federation.column("ill"))
    ages = np.array(federation.column("age"), dtype=float)
    together = report["together"]
    # Each number has Gaussian noise of the deviation that its interval tells; beyond 7 in any of 30: chance < 1e-10.
    for ward, found in together["columns"]["ward"]["categories"].items():
        assert near(found, "count", float(np.sum(wards == ward)))
    (table,) = together["cross"]
    for ward, row in table["cells"].items():
        for label, found in row.items():
            assert near(found, "count", float(np.sum((wards == ward) & (ill == label))))
    age = together["columns"]["age"]
    assert near(age["mean"], "value", float(np.mean(ages)))
    low, high = age["quantiles"]["0.5"]["these_records"]
    assert low - 100 / 64 <= np.median(ages) <= high + 100 / 64  # at this noise no edge is in doubt by a whole bin
    assert high - low < 10
    assert [silo["records"] for silo in report["silos"].values()] == [300, 300, 300]


def near(found: dict[str, Any], what: str, true: float) -> bool:
    low, high = found["these_records"]
    return bool(abs(found[what] - true) <= 7 / Z * max(high - found[what], found[what] - low) + 1e-9)


def test_a_column_with_synonyms_is_counted_by_category(federation: Federation) -> None:
    schema = federation.schema.read_text()
    federation.schema.write_text(schema.replace('["a", "b", "c"]', '["a", "other"], synonyms = {other = ["b", "c"]}'))
    report = ringfence_json(*federation.statistics("--cross", "ward,ill", epsilon="1000"))
    wards = federation.column("ward")
    found = report["together"]["columns"]["ward"]["categories"]
    assert set(found) == {"a", "other"}
    assert near(found["a"], "count", wards.count("a"))
    assert near(found["other"], "count", wards.count("b") + wards.count("c"))


def test_the_ledger_is_charged_what_they_may_cost_and_training_composes_with_them(
    federation: Federation, check_ledgers: Callable[[dict[str, Any]], None]
) -> None:
    report = ringfence_json(*federation.statistics(epsilon="1"))
    for silo in report["cost"].values():
        assert (silo["records"], silo["rounds"]) == (300, 1)  # all records answer; there is nothing to test on
        assert 0.999 <= epsilon(silo["this_run"]) <= 1.0
    check_ledgers(charged(report))
    trained = ringfence_json(*federation.train("--max-rounds", "4", epsilon="1"))
    for silo in trained["silos"].values():
        # Two Gaussian mechanisms of equal cost compose to √2 times the shift: more than one, less than both.
        assert 1.3 < epsilon(silo["all_runs"]) < 1.7
    check_ledgers(trained)


def test_what_needs_more_than_is_left_is_refused_before_anything_is_spent(federation: Federation) -> None:
    ringfence_json(*federation.statistics("--cap", "1.2,1e-6", epsilon="1"))
    refuses("more than its budget of 1.2", *federation.statistics("--cap", "1.2,1e-6", "--bins", "16", epsilon="1"))
    for name in ("north", "south", "west"):
        (only,) = ringfence_json("ledger", federation.folder / f"{name}.ledger")["plans"]
        assert only["charged"] == 1


def test_a_silo_of_three_records_and_a_constant_column_get_a_defined_private_answer(federation: Federation) -> None:
    """Noise hides where three records lie, as it must: their median may be anywhere between the bounds.

    Its deviation, of shares, is 6 at the outermost edges, so that an interval of 95 % leaves one of them out with
    probability 2Φ(0.5/6 − 1.96) = 0.06; all of six silos' intervals do with less than 1e-7.
    """
    files = [federation.folder / f"small-{number}.csv" for number in range(6)]
    for number, file in enumerate(files):
        file.write_text("age,dose,ward,ill,cost\n" + f"{50 + number},5,a,no,10\n" * 3)
    asked = ["statistics", *map(str, files), "--schema", str(federation.schema), "--epsilon", "1", "--anyway"]
    columns = [silo["columns"]["dose"] for silo in ringfence_json(*asked)["silos"].values()]
    for column in columns:
        for found in (column["mean"], column["variance"], column["deviation"], *column["quantiles"].values()):
            low, high = found["these_records"]
            assert found["value"] is None or low <= found["value"] <= high
    assert [0.0, 10.0] in [column["quantiles"]["0.5"]["these_records"] for column in columns]
    assert "[0, 10]" in ringfence(*asked).stdout


def test_missing_cells_are_counted_and_no_value_stands_in_for_them(federation: Federation) -> None:
    text = federation.schema.read_text().replace("columns.dose = {", "columns.dose = {missing = 0, ")
    federation.schema.write_text(text.replace("columns.ward = {", 'columns.ward = {missing = "a", '))
    for path in federation.files:
        header, *rows = path.read_text().splitlines()
        rows = [re.sub(r"^([^,]*),[^,]*,[^,]*", r"\1,,", row) if n % 2 else row for n, row in enumerate(rows)]
        path.write_text("\n".join([header, *rows]) + "\n")
    report = ringfence_json(*federation.statistics(epsilon="1000"))["together"]["columns"]
    doses = [float(cell) for cell in federation.column("dose") if cell]
    assert near(report["dose"]["missing"], "count", 450.0)
    assert near(report["dose"]["mean"], "value", float(np.mean(doses)))
    wards = federation.column("ward")
    assert near(report["ward"]["categories"]["(missing)"], "count", 450.0)
    assert near(report["ward"]["categories"]["a"], "count", float(wards.count("a")))


def test_bounds_are_found_where_a_draft_has_none(federation: Federation) -> None:
    text = federation.schema.read_text().replace('["a", "b", "c"]', '["?"]')
    federation.schema.write_text(re.sub(r"(lower|upper) = \d+", r'\1 = "?"', text))
    report = ringfence_json(*federation.statistics("--for-schema", epsilon="1000"))
    assert "ward" not in report["together"]["columns"]
    for name in ("age", "dose"):
        found, values = report["schema"][name], np.array(federation.column(name), dtype=float)
        # Noise of a share is below 0.01 % here; all but a few values are between the bounds, which lie near them.
        assert np.mean((values >= found["lower"]) & (values <= found["upper"])) > 0.9
        assert -1 < found["lower"] < found["upper"] < 10 * values.max()


def test_tables_and_page_say_what_intervals_hold_and_what_the_budget_is_for(federation: Federation) -> None:
    page = federation.folder / "page.html"
    done = ringfence(*federation.statistics("--cross", "ward,ill", "--page", page))
    html = page.read_text()
    for text in (done.stdout, html):
        assert "the privacy budget limits that" in " ".join(text.split())
        assert "on average, one in twenty misses" in " ".join(text.split())
        assert "ward by ill" in text
    assert html.count("<svg") == 3 * 2 + 2
    assert "<script" not in html


def test_silos_that_run_by_themselves_are_asked_by_a_plan_and_their_run_is_shown(
    federation: Federation, tmp_path: Path
) -> None:
    plan_file, run = tmp_path / "plan.json", tmp_path / "run"
    sizes = [option for file in federation.files for option in ("--silo", f"{file.stem}=300")]
    options = ["--schema", str(federation.schema), "--epsilon", "1", "--cross", "ward,ill"]
    made = ringfence_json("statistics", *sizes, *options, "--out", plan_file)
    plan = load_plan(plan_file)
    assert plan.digest() == made["digest"]
    gates = {}
    for file in federation.files:
        budget = Budget.of(plan.silos[0].guarantees)
        ledger = Ledger.create(tmp_path / f"{file.stem}-own.ledger", silo=file.stem, budget=budget)
        gates[file.stem] = Gate(load_records(file, plan.data), ledger)
        gates[file.stem].approve(plan)

    conduct(plan, Local(lambda request: {name: gate.answer(request).to_bytes() for name, gate in gates.items()}), run)
    report = ringfence_json("statistics", "--run", run)
    assert set(report["silos"]) == {"north", "south", "west"}
    assert report["together"]["records"] == 900


def test_a_table_of_one_column_can_be_asked_about_and_its_plan_names_no_target(tmp_path: Path) -> None:
    schema, data, out = tmp_path / "schema.toml", tmp_path / "lone.csv", tmp_path / "plan.json"
    schema.write_text('[columns.ward]\ntype = "categorical"\ncategories = ["a", "b"]\n')
    data.write_text("ward\n" + "a\n" * 300 + "b\n" * 100)
    options = ["--schema", str(schema), "--epsilon", "15"]
    report = ringfence_json("statistics", data, *options)
    assert report["together"]["records"] == 400
    share = report["together"]["columns"]["ward"]["categories"]["a"]["share"]
    assert abs(share - 0.75) < 0.05, "more than thirty standard deviations of the noise"
    made = ringfence_json("statistics", "--silo", "lone=400", *options, "--out", out)["plan"]
    assert {"target"}.isdisjoint(made["data"])
    assert {"training", "model_loss"}.isdisjoint(made)


def test_people_read_dates_as_dates_and_counts_as_whole_numbers(tmp_path: Path) -> None:
    schema, page = tmp_path / "schema.toml", tmp_path / "page.html"
    schema.write_text(
        '[columns.seen]\ntype = "date"\nlower = 2020-01-01\nupper = 2023-12-31\n'
        '[columns.ward]\ntype = "categorical"\ncategories = ["a", "b"]\n'
    )
    files = [tmp_path / f"{name}.csv" for name in ("north", "south")]
    for file, day in zip(files, ("05", "07"), strict=True):
        file.write_text("seen,ward\n" + f"2021-03-{day},a\n2022-06-{day},b\n" * 6000)
    done = ringfence("statistics", *files, "--schema", schema, "--epsilon", "1", "--page", page)
    date = r"202\d-\d\d-\d\d"
    assert "seen: dates from 2020-01-01 to 2023-12-31" in done.stdout
    assert re.search(rf"^all silos  {date} \[{date}, {date}\] ", done.stdout, re.MULTILINE)
    assert "deviation in days" in done.stdout
    assert re.search(r"^seen .* days ", done.stdout, re.MULTILINE)
    assert re.search(r"^a +\d\d,\d{3} \[\d\d,\d{3}, \d\d,\d{3}\] ", done.stdout, re.MULTILINE)
    assert "e+0" not in done.stdout
    assert "seen, in days since 1970-01-01" in page.read_text()


@pytest.mark.parametrize(
    "beside", [["--page", "page.html"], ["--columns", "age"], ["--cross", "ward,ill"], ["--for-schema"]]
)
def test_what_a_survival_curve_would_leave_out_is_refused_before_anything_is_spent(
    federation: Federation, beside: list[str]
) -> None:
    refuses("a curve alone", *federation.statistics("--survival", "age,ill", "--cuts", "10,20", *beside))
    assert federation.ledgers() == {}
