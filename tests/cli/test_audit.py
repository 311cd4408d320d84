"""`ringfence audit`: a report for people and machines, and a status for scripts."""

import json

from tests.cli.conftest import refuses, ringfence, ringfence_json

SMALL = (*("--epsilon", "10", "--delta", "1e-5", "--records", "32", "--rounds", "2", "--runs", "40"), "--no-report")


def test_an_honest_silo_is_not_refuted() -> None:
    report = ringfence_json("audit", *SMALL)
    assert {"epsilon_claimed", "epsilon_lower", "confidence", "refuted"} <= set(report)
    assert report["refuted"] is False
    assert 0 < report["epsilon_lower"] < report["epsilon_claimed"] <= 10
    assert report["confidence"] == 1 - 1e-6
    assert report["mechanism"] == "full"
    assert report["findings"] == []


def test_a_sabotaged_silo_is_refuted_with_status_1_and_the_report_is_printed_all_the_same() -> None:
    done = ringfence("audit", *SMALL, "--sabotage", "half-noise", "--json", status=1)
    report = json.loads(done.stdout)
    assert done.stderr == ""
    assert report["refuted"] is True
    assert report["findings"]


def test_people_get_a_table_and_a_verdict() -> None:
    honest = ringfence("audit", *SMALL, "--mechanism", "poisson")
    assert "epsilon claimed" in honest.stdout
    assert "An audit can refute a claim, never prove it" in honest.stdout
    broken = ringfence("audit", *SMALL, "--sabotage", "skip-clip", status=1)
    assert "REFUTED: this silo does not keep its claim." in broken.stdout


def test_an_unknown_mechanism_or_sabotage_is_one_sentence() -> None:
    for option, value in (("--mechanism", "magic"), ("--sabotage", "arson"), ("--runs", "0"), ("--epsilon", "-1")):
        refuses("", "audit", option, value)
