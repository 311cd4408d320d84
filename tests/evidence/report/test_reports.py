"""What stands in reports: public values, the ledgers' numbers, and nothing measured on records without a warning."""

import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringfence.errors import OutputError
from ringfence.evidence.report.audit_report import audit_report
from ringfence.evidence.report.page import ReportPage
from ringfence.evidence.report.run_report import run_report_page
from ringfence.evidence.report.sections import glossary, plan_section
from ringfence.evidence.report.training_report import extra_error, train_report
from ringfence.federation.training import CHOOSING
from ringfence.model.curves import column_curves
from ringfence.planning.propose import make_plan, propose_other_budgets
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import Logistic, PublicKeys, SamplingName, Schema, parse_schema
from ringfence.protocol.plan.sampling import SAMPLING_NAMES
from ringfence.silo.records.records import load_records
from tests.evidence.report.conftest import AUDIT, HOSTILE, SCHEMA, Trained
from tests.support import MakePlan


def words(report: ReportPage) -> str:
    """The page's text without its tags, in one line."""
    body = report.html().split("<body>")[1]
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", body)).split())


@pytest.fixture(scope="module")
def run(trained: Callable[..., Trained]) -> Trained:
    return trained()


def test_the_page_has_the_statements_words_and_the_ledgers_numbers(run: Trained) -> None:
    report, outcomes, _ = run
    text = words(report)
    statement = outcomes.result.statement
    assert "In words: anyone who sees everything that a silo sends" in text
    assert "What is not protected" in text
    for silo in statement.silos.values():
        assert f"{silo.records} {silo.rounds} {silo.run.epsilon:.4g}" in text
    assert outcomes.proposal.plan.digest() in text


def test_what_was_measured_on_held_out_records_is_marked_as_not_private(run: Trained) -> None:
    text = words(run[0])
    assert text.count("NOT PRIVATE") == 2
    assert CHOOSING in text
    assert text.index("NOT PRIVATE") < text.index("Who is protected")
    assert "not private" in run[0].figures["held-out-loss"].lower()  # type: ignore[union-attr]


def test_unless_exact_numbers_are_asked_for_nothing_in_the_page_lacks_noise(trained: Callable[..., Trained]) -> None:
    report, outcomes, _ = trained(exact=False, ledgers=None)
    assert outcomes.test is None
    assert outcomes.losses == {}
    assert report.figures["held-out-loss"] is None
    text = words(report)
    assert "NOT PRIVATE" not in text


def test_the_held_out_loss_is_that_of_the_weights_which_the_round_asked_at(
    trained: Callable[..., Trained], files: list[Path]
) -> None:
    tests = {path.stem: path for path in files}
    asked = PlanRequest(epsilon=2.0, rounds=12, survey=False)
    _, outcomes, _ = trained(tests=tests, plan=asked)
    assert sorted(outcomes.losses) == list(range(12))
    assert outcomes.losses[0] == pytest.approx(np.log(2))  # a run begins at weights of 0
    schema = outcomes.proposal.plan.data
    records = [load_records(path, schema) for path in files]
    features = np.concatenate([part.features for part in records])
    targets = np.concatenate([part.targets for part in records])
    last = Logistic().values(outcomes.result.model.scores(features), targets).mean()
    assert outcomes.losses[11] == pytest.approx(last, abs=0.15)  # the model is an average of these weights
    assert last < np.log(2)


def test_every_columns_curve_is_drawn_with_its_missing_cells_and_pairs_of_an_interaction(
    files: list[Path], trained: Callable[..., Trained]
) -> None:
    maps = """maps = [{type = "spline", columns = ["age"]}, {type = "interaction", columns = ["age", "dose"]}]\n"""
    schema = files[0].parent / "curved.toml"
    schema.write_text(maps + SCHEMA.replace("upper = 100", "upper = 100, indicator = true"))
    report, outcomes, _ = trained(schema=schema)
    text = words(report)
    for curve in column_curves(outcomes.proposal.plan, outcomes.result.model.coefficients):
        assert f"{curve.points.column} spans {curve.span:.4g}." in text
    assert "Missing: " in text
    assert "dose by age spans" in text or "age by dose spans" in text
    assert "log odds of 'yes'" in text
    assert "ringfence model summary --report asks the silos again" in text


def test_costs_end_at_what_the_silos_ledgers_say(run: Trained) -> None:
    _, outcomes, recorder = run
    last = recorder.rounds[-1].epsilon
    assert last == {name: silo.used[0].epsilon for name, silo in outcomes.result.statement.silos.items()}
    assert HOSTILE in last


def test_every_figure_is_written_as_a_file_of_its_own(run: Trained, tmp_path: Path) -> None:
    run[0].write(tmp_path / "page.html", svg=tmp_path / "charts")
    drawn = {path.name for path in (tmp_path / "charts").iterdir()} - {"roc.svg", "calibration.svg"}  # noise may hide
    expected = ("budgets", "epsilon", "updates", "privacy-accuracy", "held-out-loss", "curve-1", "curve-2")
    assert drawn == {f"{name}.svg" for name in expected}


def test_a_report_that_cannot_be_written_says_so_in_one_sentence(run: Trained, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"Cannot write the report .*The model is safe"):
        run[0].write(tmp_path / "missing" / "page.html")


def test_the_planner_expects_a_smaller_error_for_every_larger_epsilon_and_says_that_nothing_was_measured(
    run: Trained,
) -> None:
    report, outcomes, recorder = run
    text = words(report)
    assert "Expected by the planner's model, not measured." in text
    assert "2 (this run)" in text
    assert all(f" {epsilon} " in text for epsilon in ("0.5", "1", "4", "8"))
    proposals = propose_other_budgets(PlanRequest(epsilon=2.0, rounds=12), outcomes.proposal.plan)
    errors = [extra_error(proposals[factor]) for factor in sorted(proposals)]
    assert errors == sorted(errors, reverse=True)
    assert 0 < errors[-1] < errors[0] / 16  # noise is a variance: about 1/epsilon², over a factor of 16 in epsilon
    assert f"{100 * errors[2]:.2g}%" in text
    without = train_report(outcomes, recorder.rounds, what_if={})
    assert without.figures["privacy-accuracy"] is None
    assert "planner's model" not in words(without)


def test_what_the_planner_expects_depends_on_public_numbers_alone(
    trained: Callable[..., Trained], run: Trained, files: list[Path], tmp_path: Path
) -> None:
    others = [tmp_path / path.name for path in files]
    for path, other in zip(files, others, strict=True):
        header, *rows = path.read_text().splitlines()
        made = np.random.default_rng(len(path.name)).uniform(0, 1, len(rows))
        other.write_text("\n".join([header, *(f"{age:.6f},1.0,no" for age in made)]) + "\n")
    report, _, _ = trained(files=others)
    assert report.figures["privacy-accuracy"] == run[0].figures["privacy-accuracy"]


def test_a_loss_bound_is_drawn_where_one_covers_the_run(trained: Callable[..., Trained]) -> None:
    report, _, _ = trained(plan=PlanRequest(epsilon=2.0, rounds=12, algorithm="accelerated"), exact=False)
    assert report.figures["loss-bound"] is not None
    assert "worst case, not a forecast" in words(report)


def test_the_servers_page_claims_no_more_than_the_server_knows(conducted: ReportPage) -> None:
    text = words(conducted)
    assert "The guarantees are those that the plan claims for each record, for this run alone." in text
    assert "Rounds with a missing answer" in text
    assert "2 2 west" in text  # in round 2, two answered and west did not
    assert "NOT PRIVATE" not in text
    assert (
        "a coin toss is right with 50%. Epsilon and delta guarantee this for this run alone. Computed exactly" in text
    )
    assert "What is not protected How many records a silo has" in text


def test_the_servers_page_shows_what_holds_without_trust_in_a_shuffler(plan_of: MakePlan) -> None:
    keys = PublicKeys(server="5e" * 32, shuffler="5f" * 32, silos={"clinic": "a0" * 32, "ward": "a1" * 32})
    members = [Member("clinic", 40, 1.0, 1e-6), Member("ward", 50, 1.0, 1e-6)]
    plan = plan_of(members=members, trust="shuffler", colluders=0, keys=keys)
    silos = {terms.name: {"records": terms.records, "answered": 5, "claimed": []} for terms in plan.silos}
    content = {"silos": silos, "guarantees": "As claimed.", "rounds": [], "begun": "2026-01-01T00:00:00"}
    text = words(run_report_page(plan, content, [], None))
    with_trust, without = plan.silos[0].guarantees
    assert with_trust.epsilon < without.epsilon
    assert (
        "claimed epsilon against the server as long as neither the shuffler nor any other silo colludes with it "
        "claimed epsilon against the server, the shuffler and all other silos together delta "
        f"clinic 40 5 {with_trust.epsilon:.4g} {without.epsilon:.4g} 1 × 10⁻⁶"
    ) in text


def test_the_page_of_a_plan_about_persons_speaks_of_no_record() -> None:
    number = {"type": "numeric", "lower": -1.0, "upper": 1.0}
    data = parse_schema({"columns": {"a": number, "y": number}, "person": "patient"}, target="y")
    plan = make_plan(data, [Member("clinic", 40, 1.0, 1e-6)], PlanRequest(rounds=3))
    silos = {"clinic": {"records": 40, "answered": 3, "claimed": []}}
    content = {"silos": silos, "guarantees": "", "rounds": [], "begun": "2026-01-01"}
    text = words(run_report_page(plan, content, [], None))
    assert "largest epsilon claimed, per person" in text
    assert "Person. Anyone with rows in one silo's table." in text
    assert "data sets that differ in one replaced person" in text
    assert not re.search(r"\brecord\b", text, re.IGNORECASE)


@pytest.mark.parametrize(("refuted", "title"), [(False, "does not refute"), (True, "refutes the claim")])
def test_an_audits_page_says_its_verdict_first(refuted: bool, title: str) -> None:
    found: dict[str, Any] = {**AUDIT, "refuted": refuted, "extra": "seen"}
    report = audit_report(found, ["The verdict."])
    assert title in report.title
    assert ("note warning" in report.html().split("<body>")[1]) == refuted
    assert "99.9999%" in words(report)
    assert "extra seen" in words(report)


@pytest.mark.parametrize("sampling", SAMPLING_NAMES[:-1])
def test_a_plan_of_persons_is_described_without_calling_them_records(sampling: SamplingName, schema: Schema) -> None:
    request = PlanRequest(rounds=2, sampling=sampling, batch=None if sampling == "full" else 10)
    members = [Member("north", 40, 1.0, 1e-6)]
    shown = {}
    for unit, column in (("record", None), ("person", "patient")):
        plan = make_plan(schema.model_copy(update={"person": column}), members, request)
        parts = [plan_section(plan, ["north"]), glossary(plan.unit)]
        shown[unit] = " ".join(re.sub(r"<[^>]*>", " ", str(part)) for part in parts)
        shown[unit] = shown[unit].replace("keeps its own records", "").replace("own record of everything", "")
    assert "Persons per round" in shown["person"]
    assert "one replaced person" in shown["person"]
    assert "record" not in shown["person"].lower()
    assert "Records per round" in shown["record"]
    assert "person" not in shown["record"].lower()
