"""An evaluation across agents: a plan from a model, approved by every silo, asked by a server that may die half way."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ringfence.estimates.metrics import EvaluationReport
from ringfence.model.model import Model
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import Plan, load_plan
from ringfence.server.queries.evaluation import evaluation_of_run
from tests.deployment.agents import DELTA, RECORDS, Federation, Seen, Wire, failed, finish, server
from tests.processes import ringfence

NAMES = ("north", "south", "west")
MOMENTS = [  # of one silo in each round, whose answer is not written down before the last: others may have been heard
    Seen("north", 0, "asked"),
    Seen("north", 0, "answered"),
    Seen("north", 0, "delivered"),  # the second round's query depends on all answers to the first
    Seen("south", 1, "asked"),
    Seen("south", 1, "answered"),
]


@pytest.fixture
def federation(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Federation]:
    made = Federation(tmp_path, NAMES, rows=request.param)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def planned(federation: Federation) -> Plan:
    """Write the plan that evaluates a good model, by the command, and let every operator approve it, by the command."""
    members = [Member(name, 48, 1.0, DELTA, held_out=12) for name in NAMES]
    trained = make_plan(federation.schema, members, PlanRequest(rounds=1, survey=False))
    assert all(terms.records == RECORDS for terms in trained.silos)
    model, draft = federation.folder / "model.json", federation.folder / "evaluation.json"
    names = trained.data.feature_names
    weights = 5.0 * (np.array([name == "age" for name in names]) - 1.0 * np.array([name == "dose" for name in names]))
    Model.of(trained, weights, {}).save(model)
    text = ringfence(
        "evaluate", model, "--epsilon", 15, "--delta", DELTA, "--out", draft, "--anyway", check=True
    ).stdout
    assert "Once every silo's operator has approved it" in text
    plan = load_plan(draft)
    federation.write(plan)
    return plan


def approve(federation: Federation, plan: Plan) -> None:
    draft = federation.folder / "evaluation.json"
    for silo in federation.silos.values():
        review = ringfence("silo", "review", silo.silo_folder.path, draft, check=True).stdout
        assert "how well a model that the server names predicts 'ill'" in " ".join(review.split())
        assert f"All 12 held-out {plan.unit}s take part in every round" in " ".join(review.split())
        ringfence("silo", "approve", silo.silo_folder.path, draft, "--digest", plan.digest(), check=True)


@pytest.mark.parametrize("federation", [1, 3], ids=["records", "persons"], indirect=True)
def test_a_server_killed_half_way_tells_the_figures_of_the_answers_that_it_has_and_costs_no_silo_more(
    federation: Federation, tmp_path: Path
) -> None:
    plan, run = planned(federation), tmp_path / "run"
    approve(federation, plan)
    with Wire(federation, tmp_path / "wire") as wire:
        for moment in [*MOMENTS, None]:
            process = server(federation, plan, run, wire.doors(), "--json", "--quorum", "all")
            wire.acts = {moment: process.kill} if moment else {}
            output, errors = process.communicate(timeout=240)
            assert process.returncode == (0 if moment is None else -signal.SIGKILL), errors
        sent = wire.sent
    content = json.loads(output)
    text = EvaluationReport.model_validate_json(json.dumps(content["evaluation"]))
    assert text == evaluation_of_run(plan, federation.from_ledgers(plan).findings)
    assert text.together.records == 3 * 12
    assert set(text.silos) == set(NAMES)
    for name, silo in federation.silos.items():
        silo.check_that_ledger_covers(plan, sent[name])
        assert set(silo.released(plan)) == {0, 1}
    assert content["model"] is None
    assert not (run / "model.json").exists(), "nothing was trained"
    page = (run / "report.html").read_text()
    assert "How well a model predicts “ill”, measured by 3 silos" in page
    assert "NOT PRIVATE" not in page


@pytest.mark.parametrize("federation", [1], ids=["records"], indirect=True)
def test_nothing_is_reported_before_every_silo_has_approved_and_no_model_is_written(
    federation: Federation, tmp_path: Path
) -> None:
    plan, run = planned(federation), tmp_path / "run"
    for options, says in (
        (["--out", str(tmp_path / "out.json")], b"This plan trains no model"),
        (["--seconds", "2", "--patience", "0"], b"not-approved"),
    ):
        assert says in failed(server(federation, plan, run, federation.doors(), "--quorum", "all", *options))
    approve(federation, plan)
    shown = finish(server(federation, plan, run, federation.doors(), "--quorum", "all")).decode()
    assert "Measured privately on 36 records, with 95% intervals; positive class: 'yes'\n  accuracy " in shown
    assert "\nmodel " not in shown
