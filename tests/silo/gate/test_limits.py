"""What a round takes of a silo's machine is known before it is approved, and limited by its operator."""

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringfence.errors import ApprovalError
from ringfence.federation.local_shuffler import LocalShuffler, local_shuffler
from ringfence.planning.propose import make_plan
from ringfence.planning.query_plans import make_query_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import Effort, Plan, Refusal, Schema, Statistics, parse_schema
from ringfence.protocol.schema.columns.base import Reading
from ringfence.silo.folder import SiloFolder
from ringfence.silo.gate.gate import Gate
from ringfence.silo.gate.limits import Limits, largest_round
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.ledger import Ledger
from ringfence.silo.operator import decisions
from ringfence.silo.operator.review import review
from ringfence.silo.records.records import Records
from tests.shuffler.shuffled_federation import make_shuffled_plan, records_of, schema_of, shuffle_of
from tests.silo.agents import make_silo_folder
from tests.support import MakePlan, ask, restaged

RECORDS = 40


@pytest.fixture
def local() -> Iterator[LocalShuffler]:
    with local_shuffler(["clinic", "north"]) as opened:
        yield opened


@pytest.fixture
def shuffled(local: LocalShuffler) -> Plan:
    return make_shuffled_plan(schema_of(3), local.keys, {"clinic": RECORDS, "north": RECORDS}, colluders=0)


def with_channel(plan: Plan, **changes: Any) -> Plan:
    """Return the plan, which nobody's planner would make, with other parameters of its channel."""
    channel = shuffle_of(plan).model_copy(update=changes)
    query = plan.stages[-1].query
    norm = query.record_norm(plan)
    assert norm is not None
    silos = tuple(
        terms.model_copy(
            update={"stages": tuple(own.model_copy(update={"sigma": channel.sigma(norm, own.batch)})
                                    for own in terms.stages)}
        )
        for terms in plan.silos
    )  # fmt: skip
    return restaged(plan.model_copy(update={"silos": silos}), channel=channel)


def effort(plan: Plan) -> Effort:
    terms = plan.terms("clinic")
    assert terms is not None
    return largest_round(plan, terms)


def refused(local: LocalShuffler, plan: Plan, folder: Path, limits: Limits) -> str:
    records = records_of(schema_of(3), RECORDS, 1)
    with Ledger.create(folder / "clinic.ledger", silo="clinic", budget=Budget(9.0, 1e-6, anyone=1e6)) as ledger:
        gate = Gate(records, ledger, local.silos["clinic"], limits=limits)
        with pytest.raises(ApprovalError) as problem:
            gate.approve(plan)
        assert [entry.kind for entry in ledger.entries()] == ["opened", "budget"]
    return str(problem.value)


@pytest.mark.parametrize(
    ("channel", "seconds", "memory", "limits", "says"),
    [
        ({"coins": 2**30, "levels": 2**10, "width": 7}, 5, 200e6, Limits(seconds=3), "seconds and"),
        ({"block": 2**20, "shares": 100}, 0, 3e9, Limits(), "messages would take"),  # nobody would carry them, either
        (
            {"block": 2**20, "shares": 8, "width": 5},
            0,
            100e6,
            Limits(megabytes=100),
            "`round_memory` (in MB) in silo.toml",
        ),
    ],
    ids=["a table for tens of billions of coins", "shares of 3 GB", "too much for this machine alone"],
)
def test_a_plan_whose_rounds_take_too_much_of_this_machine_is_refused(
    local: LocalShuffler, shuffled: Plan, tmp_path: Path, channel: dict[str, Any], seconds: float, memory: float,
    limits: Limits, says: str,
) -> None:  # fmt: skip
    plan = with_channel(shuffled, **channel)
    assert effort(plan).seconds > seconds
    assert effort(plan).memory > memory
    assert says in refused(local, plan, tmp_path, limits)


def test_correlated_noise_that_remembers_too_many_rounds_is_counted(plan_of: MakePlan) -> None:
    plan = plan_of(sampling="one-pass", rounds=20, correlation=0.5)
    assert effort(plan).memory > effort(restaged(plan, rounds=2)).memory


def test_the_operator_s_own_limits_stand_in_silo_toml(tmp_path: Path, plan_of: MakePlan) -> None:
    folder, plan = make_silo_folder(tmp_path), plan_of()
    assert not decisions.review_plan(folder, plan).objection
    path = folder.path / "silo.toml"
    path.write_text(path.read_text() + "\nround_seconds = 1e-9\nround_memory = 5\n")
    tight = SiloFolder.open(folder.path)
    review = decisions.review_plan(tight, plan)
    assert "more than the 1e-09 seconds or 5 MB that its operator allows" in review.objection
    assert "less than a second and" in review.text()
    with pytest.raises(ApprovalError, match="round_seconds"):
        decisions.approve_plan(tight, plan)


def test_the_review_shows_what_a_round_takes_and_the_keys_to_compare(
    local: LocalShuffler, shuffled: Plan, tmp_path: Path
) -> None:
    with Ledger.create(tmp_path / "clinic.ledger", silo="clinic", budget=Budget(9.0, 1e-6, anyone=1e6)) as ledger:
        text = review(shuffled, ledger.account(), "").text()
    for key in (local.keys.server, local.keys.shuffler, local.keys.silos["clinic"]):
        assert key in text
    assert local.keys.silos["north"] not in text
    assert "A round takes less than a second and" in text


def wide(features: int) -> Schema:
    columns: dict[str, Any] = {f"x{i:04}": {"type": "numeric", "lower": -1.0, "upper": 1.0} for i in range(features)}
    columns["kind"] = {"type": "categorical", "categories": ["a", "b", "c"]}
    return parse_schema({"columns": columns}, target="kind")


@pytest.mark.parametrize("kind", ["gradient", "curvature", "statistics", "one-pass", "correlated", "shuffler"])
def test_a_round_takes_no_more_memory_than_was_estimated(kind: str, tmp_path: Path, local: LocalShuffler) -> None:
    """The whole way through the gate: draws, computing, encoding, message."""
    schema, count, random = wide(150), 20_000, np.random.default_rng(1)
    features = np.concatenate([random.uniform(-1, 1, (count, 150)), np.ones((count, 1))], axis=1)
    labels = random.integers(0, 3, count)
    columns = {name: Reading(features[:, place], None) for place, name in enumerate(schema.features)}
    records = Records(schema, features, labels.astype(float), cells={**columns, "kind": Reading(labels, None)})
    members = [Member(name, count, 1.0, 1e-6) for name in ("clinic", "north")]
    requests: dict[str, dict[str, Any]] = {
        "gradient": {"survey": False},
        "curvature": {"survey": True, "algorithm": "accelerated"},
        "one-pass": {"sampling": "one-pass", "survey": False},
        "correlated": {"sampling": "one-pass", "correlation": 0.5, "survey": False},
        "shuffler": {"trust": "shuffler", "colluders": 0, "keys": local.keys, "algorithm": "bounded"},
    }
    plan = (
        make_query_plan(schema, members, Statistics(columns=tuple(schema.used)))
        if kind == "statistics"
        else make_plan(schema, members, PlanRequest(rounds=4, **requests[kind]))
    )
    with Ledger.create(tmp_path / "clinic.ledger", silo="clinic", budget=Budget(9.0, 1e-6, anyone=1e6)) as ledger:
        gate = Gate(records, ledger, local.silos["clinic"], limits=Limits())
        gate.approve(plan)
        tracemalloc.start()
        try:
            assert not isinstance(ask(gate, plan, 0), Refusal)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    estimated = effort(plan).memory
    assert peak < estimated + 1e6  # beside the round: imports on first use, the ledger, the message's own objects
    assert estimated < 50 * peak + 50e6  # it is cautious, and still tells megabytes from gigabytes


def test_a_round_may_take_all_that_is_allowed_and_no_more() -> None:
    limits = Limits(seconds=3.0, megabytes=2.0)
    assert limits.objection(Effort(3.0, 2_000_000.0)) == ""
    assert "would take 3 seconds and 2 MB" in limits.objection(Effort(3.001, 2e6))
    assert "the 3 seconds or 2 MB that its operator allows" in limits.objection(Effort(0.0, 2e6 + 1))
    assert "less than a second and 5 MB" in limits.objection(Effort(0.99, 5e6))
    assert "1 seconds and 5 MB" in limits.objection(Effort(1.0, 5e6))
    assert (Limits().seconds, Limits().megabytes) == (120.0, 2000.0)
