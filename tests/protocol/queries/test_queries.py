"""Every query and every channel has its place in every package, and none is left untested."""

from pathlib import Path
from typing import get_args

from ringfence.accounting.channels import COSTS
from ringfence.planning.channels import PLANNERS
from ringfence.protocol import Channel, Query
from ringfence.server.channels import RECEIVERS
from ringfence.server.queries import HANDLERS
from ringfence.silo.channels import SENDERS
from ringfence.silo.queries import COMPUTATIONS
from ringfence.simulation.channels import NOISES
from tests.protocol.plan_document import KINDS, plan_of

QUERIES = get_args(get_args(Query)[0])
CHANNELS = get_args(get_args(Channel)[0])


def test_every_query_has_tests_of_its_sensitivity() -> None:
    names = {kind.model_fields["name"].default.replace("-", "_") for kind in QUERIES}
    tested = {path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py")}
    assert names == tested - {"contract", "queries"}


def test_every_query_is_computed_at_a_silo_and_asked_by_a_plan_of_these_tests() -> None:
    assert set(COMPUTATIONS) == set(QUERIES) >= set(HANDLERS)
    assert {type(stage.query) for edits in KINDS.values() for stage in plan_of(edits).stages} == set(QUERIES)


def test_every_channel_is_charged_planned_sent_received_and_simulated() -> None:
    assert set(COSTS) == set(SENDERS) == set(RECEIVERS) == set(NOISES) == set(CHANNELS)
    assert set(PLANNERS) == {kind.trust for kind in CHANNELS}
