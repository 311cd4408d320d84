"""`ringfence plan`: from sizes and budgets to a plan, what it was chosen from, and why."""

import json
from pathlib import Path

import pytest

import ringfence as package
from ringfence.planning.explain import PAPER_NAMES
from ringfence.protocol import Plan, load_plan
from tests.cli.conftest import Federation, ringfence, ringfence_json


def test_plan_prints_the_noise_of_every_silo(federation: Federation, tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    report = ringfence_json(
        "plan", "--schema", federation.schema, "--target", "ill", "--silo", "small=100", "--silo", "large=10000",
        "--epsilon", "1", "--delta", "1e-6", "--budget", "small=4,1e-6", "--out", out,
    )  # fmt: skip
    small, large = report["plan"]["silos"]
    assert (small["name"], large["name"]) == ("small", "large")
    assert small["guarantees"] == [{"epsilon": 4.0, "delta": 1e-6, "against": "anyone"}]
    assert large["guarantees"] == [{"epsilon": 1.0, "delta": 1e-6, "against": "anyone"}]
    for noisy, quiet in zip(small["stages"], large["stages"], strict=True):
        assert noisy["sigma"] > quiet["sigma"] > 0
    assert Plan.parse(out.read_bytes(), error=package.RingfenceError).digest() == report["digest"]
    assert json.loads(out.read_bytes()) == report["plan"]


def test_the_table_is_followed_by_what_was_compared_the_reasons_and_the_quote(federation: Federation) -> None:
    done = ringfence(*federation.plan("--no-survey"))
    silos, compared, why, quote, digest = done.stdout.split("\n\n")
    claim, header, north, south = silos.splitlines()
    assert claim == "For each record, against anyone who sees what the silo sends, by this plan alone"
    assert header.split() == ["silo", "records", "batch", "sigma", "epsilon", "delta", "weight"]
    assert north.split()[:3] == ["north", "1000", "800"]
    assert south.split()[:3] == ["south", "3000", "2400"]
    title, columns, *rows = compared.splitlines()
    assert title == "Alternatives, best first"
    assert columns.split()[:4] == ["algorithm", "batches", "steps", "bound"]
    assert [row.split()[0] for row in rows] == ["accelerated", "regularised", "minibatch-sgd"]
    what, bound, basis = why.strip().splitlines()
    figures, gain, _ = quote.splitlines()
    assert figures.startswith("For epsilon = 1 expect accuracy to about ±")
    assert gain.startswith("The model is expected to make about ")
    assert what.startswith(PAPER_NAMES["accelerated"])
    assert bound.startswith("bound: the clipped empirical loss is on average at most ")
    assert "next best: regularised with full batches" in bound
    assert basis.startswith("no record was used")
    assert digest.split()[0] == "plan"
    assert len(digest.split()[1]) == 64


def test_of_a_plan_in_phases_the_table_shows_the_first(federation: Federation, tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    done = ringfence(
        "plan", "--schema", federation.schema, "--target", "ill", "--silo", "north=400000", "--epsilon", "4",
        "--algorithm", "localized", "--max-rounds", "2000", "--out", out,
    )  # fmt: skip
    plan = load_plan(out)
    (terms,) = plan.silos
    assert len(terms.stages) > 1
    first = terms.stages[0]
    assert done.stdout.splitlines()[2].split()[1:4] == ["400000", f"{first.batch}", f"{first.sigma:.4g}"]


def upsilon(explanation: str) -> tuple[bool, float]:
    said = explanation.split("upsilon ")[1].removeprefix("at most ").split(",")[0]
    return "upsilon at most" in explanation, float(said)


def test_the_pace_is_the_one_that_the_server_steps_with(federation: Federation) -> None:
    from ringfence.server.algorithms import accelerated

    for options in (["--no-survey"], ["--survey"], ["--ridge", "0.01", "--no-survey"], ["--algorithm", "regularised"]):
        report = ringfence_json(*federation.plan(*options, "--rounds", "10"))
        plan = Plan.parse(json.dumps(report["plan"]).encode(), error=package.RingfenceError)
        at_most, said = upsilon(report["explanation"][0])
        assert at_most == (not plan.stages[0].query.trains)
        assert said == pytest.approx(float(accelerated.settings(plan).upsilon[0]), rel=1e-3)


def test_one_round_is_one_round(federation: Federation) -> None:
    report = ringfence_json(*federation.plan("--rounds", "1"))
    assert " 1 training" in report["explanation"][0]
    assert "1 rounds" not in " ".join(report["explanation"])
