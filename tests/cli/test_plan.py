"""`ringfence plan`: from sizes and budgets to a plan, what it was chosen from, and why."""

import json
from pathlib import Path

import pytest

import ringfence as package
from ringfence.planning.explain import PAPER_NAMES
from ringfence.planning.planner import BOUNDED, METHODS
from ringfence.protocol.plan import Plan, load_plan
from tests.cli.conftest import Federation, Json, Ringfence


def test_plan_prints_the_noise_of_every_silo(federation: Federation, ringfence_json: Json, tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    report = ringfence_json(
        "plan", "--schema", str(federation.schema), "--target", "ill", "--silo", "small=100", "--silo", "large=10000",
        "--epsilon", "1", "--delta", "1e-6", "--budget", "small=4,1e-6", "--out", str(out),
    )  # fmt: skip
    small, large = report["plan"]["silos"]
    assert (small["name"], large["name"]) == ("small", "large")
    assert small["guarantees"] == [{"epsilon": 4.0, "delta": 1e-6, "against": "anyone"}]
    assert large["guarantees"] == [{"epsilon": 1.0, "delta": 1e-6, "against": "anyone"}]
    for noisy, quiet in zip(small["stages"], large["stages"], strict=True):
        assert noisy["sigma"] > quiet["sigma"] > 0
    assert Plan.parse(out.read_bytes(), error=package.RingfenceError).digest() == report["digest"]
    assert json.loads(out.read_bytes()) == report["plan"]


def test_the_table_is_followed_by_what_was_compared_and_three_lines(
    federation: Federation, ringfence: Ringfence
) -> None:
    done = ringfence(*federation.plan("--no-survey"))
    assert done.returncode == 0
    silos, compared, why = done.stdout.split("\n\n")
    claim, header, north, south = silos.splitlines()
    assert claim == "For each record, against anyone who sees what the silo sends, by this plan alone"
    assert header.split() == ["silo", "records", "batch", "sigma", "epsilon", "delta", "weight"]
    assert north.split()[:3] == ["north", "1000", "800"]
    assert south.split()[:3] == ["south", "3000", "2400"]
    title, columns, *rows = compared.splitlines()
    assert title == "Alternatives, best first"
    assert columns.split()[:4] == ["algorithm", "batches", "rounds", "bound"]
    assert [row.split()[0] for row in rows] == ["accelerated", "regularised", "minibatch-sgd"]
    what, bound, basis, digest = why.strip().splitlines()
    assert what.startswith(PAPER_NAMES["accelerated"])
    assert bound.startswith("bound: the clipped empirical loss is on average at most ")
    assert "next best: regularised with full batches" in bound
    assert basis.startswith("no record was used")
    assert digest.split()[0] == "plan"
    assert len(digest.split()[1]) == 64


def test_by_default_a_plan_is_preconditioned_and_says_why(federation: Federation, ringfence_json: Json) -> None:
    report = ringfence_json(*federation.plan())
    first, *others = report["alternatives"]
    assert (first["algorithm"], first["chosen"], first["bound"]) == ("preconditioned", True, None)
    assert [other["expected"] for other in others] == sorted(other["expected"] for other in others)
    what, why, basis = report["explanation"]
    assert what.startswith(PAPER_NAMES["preconditioned"])
    assert why.startswith("chosen because it gave smaller errors on public tables than the choice by loss bounds")
    assert f"by loss bounds: {others[0]['algorithm']}" in why
    assert "survey" in basis


def test_of_a_plan_in_phases_the_table_shows_the_first(
    federation: Federation, ringfence: Ringfence, tmp_path: Path
) -> None:
    out = tmp_path / "plan.json"
    done = ringfence(
        "plan", "--schema", str(federation.schema), "--target", "ill", "--silo", "north=400000", "--epsilon", "4",
        "--algorithm", "localized", "--max-rounds", "2000", "--out", str(out),
    )  # fmt: skip
    plan = load_plan(out)
    (terms,) = plan.silos
    assert len(terms.stages) > 1
    first = terms.stages[0]
    assert done.stdout.splitlines()[2].split()[1:4] == ["400000", f"{first.batch}", f"{first.sigma:.4g}"]


def test_the_json_says_what_the_table_says(federation: Federation, ringfence_json: Json) -> None:
    report = ringfence_json(*federation.plan("--no-survey"))
    assert set(report) == {"digest", "explanation", "warnings", "alternatives", "plan"}
    best, *others = report["alternatives"]
    training = report["plan"]["stages"][-2]
    assert best["chosen"]
    assert not any(other["chosen"] for other in others)
    assert (best["algorithm"], best["sampling"], best["rounds"]) == (
        report["plan"]["training"]["algorithm"]["name"], training["sampling"]["name"], training["rounds"],
    )  # fmt: skip
    assert [choice["expected"] for choice in report["alternatives"]] == sorted(
        choice["expected"] for choice in report["alternatives"]
    )
    assert all(0 < choice["expected"] <= choice["bound"] for choice in report["alternatives"])
    what, bound, _ = report["explanation"]
    assert f"{best['rounds']} rounds of {best['sampling']} batches" in what
    assert f"at most {best['bound']:.3g}" in bound


def test_with_a_ridge_stages_are_compared_too(federation: Federation, ringfence_json: Json) -> None:
    report = ringfence_json(*federation.plan("--ridge", "0.05", "--no-survey"))
    assert {choice["algorithm"] for choice in report["alternatives"]} == set(BOUNDED) - {"localized"}


@pytest.mark.parametrize("name", METHODS)
def test_every_algorithm_is_called_by_its_name_in_the_paper(
    federation: Federation, ringfence_json: Json, name: str
) -> None:
    report = ringfence_json(
        *federation.plan("--algorithm", name, *(["--ridge", "0.05"] if name == "multi-stage" else []))
    )
    assert report["explanation"][0].startswith(PAPER_NAMES[name])
    assert [choice["algorithm"] for choice in report["alternatives"]] == [name]


def test_what_the_user_chose_is_not_called_the_best(federation: Federation, ringfence: Ringfence) -> None:
    done = ringfence(*federation.plan("--step", "0.5", "--rounds", "30"))
    assert "Alternatives" not in done.stdout
    assert "as requested; no alternatives were compared" in done.stdout
    assert "step 0.5" in done.stdout


def pace(explanation: str) -> tuple[bool, float]:
    said = explanation.split("pace ")[1].removeprefix("at most ").split(",")[0]
    return "pace at most" in explanation, float(said)


def test_the_pace_is_the_one_that_the_server_steps_with(federation: Federation, ringfence_json: Json) -> None:
    from ringfence.server.algorithms import accelerated

    for options in (["--no-survey"], ["--survey"], ["--ridge", "0.01", "--no-survey"], ["--algorithm", "regularised"]):
        report = ringfence_json(*federation.plan(*options, "--rounds", "10"))
        plan = Plan.parse(json.dumps(report["plan"]).encode(), error=package.RingfenceError)
        at_most, said = pace(report["explanation"][0])
        assert at_most == (not plan.stages[0].question.trains)
        assert said == pytest.approx(float(accelerated.settings(plan).pace[0]), rel=1e-3)


@pytest.mark.parametrize(
    ("options", "target", "says"),
    [
        (["--average", "last"], "ill", "an average other than the weighted one; without that,"),
        (["--average", "tail", "--algorithm", "minibatch-sgd"], "ill", "an average other than the weighted one"),
        (["--sampling", "one-pass", "--rounds", "10", "--batch", "5"], "ill", "batches that leave some out"),
        (["--sampling", "one-pass", "--correlation", "0.5"], "ill", "correlated noise; without that,"),
        (
            ["--sampling", "one-pass", "--correlation", "0.5", "--average", "last"],
            "ill",
            "an average other than the weighted one or correlated noise; without that,",
        ),
        (["--no-survey"], "ward", "clipped gradients of several outputs"),
    ],
)
def test_what_no_theorem_covers_is_not_called_bounded(
    federation: Federation, ringfence_json: Json, options: list[str], target: str, says: str
) -> None:
    bound = ringfence_json(*federation.plan(*options, target=target))["explanation"][1]
    assert bound.startswith("no bound covers ")
    assert says in bound


def test_a_softmax_that_is_not_clipped_is_bounded(federation: Federation, ringfence_json: Json) -> None:
    report = ringfence_json(*federation.plan("--clip", "10", target="ward"))
    assert report["explanation"][1].startswith("bound: ")


def test_one_round_is_one_round(federation: Federation, ringfence_json: Json) -> None:
    report = ringfence_json(*federation.plan("--rounds", "1"))
    assert ": 1 round of full batches" in report["explanation"][0]
    assert "1 rounds" not in " ".join(report["explanation"])
