"""`ringfence bounds`: what the theory says, with a reason in words where it says nothing."""

from typing import Any

import pytest

from tests.cli.conftest import refuses, ringfence, ringfence_json

WORKED = [
    "bounds", "--silos", "25", "--records", "1238", "--dimension", "50", "--epsilon", "1", "--delta", repr(1 / 1238**2),
    "--diameter", "10",
]  # fmt: skip
SMOOTH = [*WORKED, "--smoothness", "0.25"]


def by_name(rows: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["name"], row["about"]): row for row in rows}


def test_bounds_answers_for_the_worked_example() -> None:
    report = ringfence_json(*SMOOTH)
    upper = by_name(report["upper"])
    assert upper["minibatch SGD (Theorem 2.1)", "population"]["value"] == pytest.approx(0.1, rel=0.01)
    loss_bounds = by_name(report["loss_bounds"])
    best = loss_bounds["accelerated", "empirical"]
    assert best["value"] == pytest.approx(0.0797, rel=0.01)
    assert best["rounds"] < 60
    assert best["sigma"] > 0
    assert loss_bounds["one-pass accelerated", "population"]["value"] == pytest.approx(0.283, rel=0.01)
    assert loss_bounds["localized accelerated", "population"]["value"] < 1
    assert loss_bounds["no training", "population"]["value"] == 5
    reference = by_name(report["reference"])
    assert (
        reference["every record for itself (LDP)", "population"]["value"]
        > upper["minibatch SGD (Theorem 2.1)", "population"]["value"]
        > reference["trusted server (CDP)", "population"]["value"]
    )
    assert report["position"] == pytest.approx(0.689, rel=0.01)
    assert report["privacy_is_free"] is True
    assert report["user_level"] == {"epsilon": 1238.0, "delta": 1.0}
    assert report["problem"]["records"] == 1238


def test_a_bound_that_does_not_apply_is_null_with_the_reason() -> None:
    report = ringfence_json(*WORKED)
    refused = by_name(report["lower"])["without a trusted server", "population"]
    assert refused["value"] is None
    assert "at least 54 silos" in refused["why"]
    rough = by_name(report["upper"])["one-pass accelerated (Theorem 3.1)", "population"]
    assert rough["value"] is None
    assert "smooth the loss first" in rough["why"]
    loss_bounds = by_name(report["loss_bounds"])
    assert "smooth the loss first" in loss_bounds["accelerated", "empirical"]["why"]
    assert "smooth the loss first" in loss_bounds["localized accelerated", "population"]["why"]
    assert loss_bounds["minibatch SGD", "empirical"]["value"] < 0.1  # which needs no smoothness


def test_the_rounds_asked_for_are_the_rounds_bounded() -> None:
    report = ringfence_json(*SMOOTH, "--rounds", "20")
    loss_bounds = by_name(report["loss_bounds"])
    assert loss_bounds["accelerated", "empirical"]["value"] == pytest.approx(0.0860, rel=0.01)
    assert {row["rounds"] for row in report["loss_bounds"]} <= {0, *range(21)}
    too_many = ringfence_json(*SMOOTH, "--rounds", "2000")
    assert "ask for fewer" in by_name(too_many["loss_bounds"])["one-pass accelerated", "population"]["why"]


def test_strongly_convex_problems_have_their_own_bounds() -> None:
    convex, strong = ringfence_json(*SMOOTH), ringfence_json(*SMOOTH, "--strong-convexity", "0.1")
    for kind, name, about in [
        ("upper", "minibatch SGD (Theorem 2.1)", "population"),
        ("loss_bounds", "accelerated", "empirical"),
        ("loss_bounds", "minibatch SGD", "population"),
        ("loss_bounds", "minibatch SGD", "empirical"),
    ]:
        assert by_name(strong[kind])[name, about]["value"] < by_name(convex[kind])[name, about]["value"]
    assert by_name(strong["loss_bounds"])["accelerated, in stages", "empirical"]["value"] < 0.1
    assert "convex losses only" in strong["reference"][0]["why"]
    short = ringfence_json(*SMOOTH, "--strong-convexity", "0.1", "--rounds", "3")
    assert "single-run" in by_name(short["loss_bounds"])["accelerated, in stages", "empirical"]["why"]


def test_the_table_speaks_in_words() -> None:
    done = ringfence(*SMOOTH)
    claims = "which is no protection at all", "Privacy is free", "54 silos"
    for words in ("Upper bounds", "Lower bounds", "Loss bounds", *claims):
        assert words in done.stdout
    private = ringfence(*WORKED[:7], "--epsilon", "0.0001", "--smoothness", "1")
    assert "Privacy is not free" in private.stdout
    assert "which is no protection at all" not in private.stdout


def test_what_cannot_be_is_refused_in_a_sentence() -> None:
    refuses("L ≥ μD/2", *SMOOTH, "--strong-convexity", "0.24")
    refuses("rounds must be a whole number", *SMOOTH, "--rounds", "0")
