"""Plans whose silos make their own noise: the least that each one's budget allows, calibrated once where alike."""

from typing import Any

import pytest

from ringfence.accounting import calibrate
from ringfence.accounting.charges import cost, plan_events
from ringfence.errors import PlanError
from ringfence.planning.channels import own_noise, planner_of
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol.channels import OwnNoise
from ringfence.protocol.keys import PublicKeys
from ringfence.protocol.schema import Schema
from tests.support import renoised

MEMBERS = [Member("north", 400, 2.0, 1e-6), Member("south", 90, 0.5, 1e-7)]
KEYS = PublicKeys(server="5e" * 32, shuffler="5f" * 32, silos={})


@pytest.mark.parametrize("sampling", ["full", "fixed", "poisson", "one-pass"])
@pytest.mark.parametrize("survey", [False, True])
def test_less_noise_in_the_training_would_break_a_promise(schema: Schema, sampling: str, survey: bool) -> None:
    request = PlanRequest(algorithm="accelerated", sampling=sampling, rounds=10, survey=survey)  # type: ignore[arg-type]
    plan = make_plan(schema, MEMBERS, request)
    for terms in plan.silos:
        assert cost(plan_events(plan, terms), terms.guarantee) <= terms.guarantee.epsilon
        less = renoised(plan, terms.name, sigma=terms.stages[-1].sigma * 0.999)
        own = less.terms(terms.name)
        assert own is not None
        assert cost(plan_events(less, own), terms.guarantee) > terms.guarantee.epsilon


def test_every_silo_is_promised_its_own_budget_against_anyone(schema: Schema) -> None:
    for terms, member in zip(make_plan(schema, MEMBERS).silos, MEMBERS, strict=True):
        (promised,) = terms.guarantees
        assert (promised.epsilon, promised.delta, promised.against) == (member.epsilon, member.delta, "anyone")


def test_silos_that_differ_in_name_and_weight_only_share_one_calibration(
    schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[float] = []
    real = calibrate.least_noise

    def counted(*arguments: Any, **said: Any) -> float:
        calls.append(real(*arguments, **said))
        return calls[-1]

    monkeypatch.setattr(calibrate, "least_noise", counted)
    alike = [Member(f"silo {i}", 400, 2.0, 1e-6, weight=1.0 + i) for i in range(20)]
    plan = make_plan(schema, [*alike, Member("other", 90, 2.0, 1e-6, weight=1.0)], PlanRequest(rounds=5))
    assert len(calls) == 2
    assert len({terms.stages[-1].sigma for terms in plan.silos}) == 2


def test_the_channel_carries_the_correlation_that_was_asked_for_in_training_only(schema: Schema) -> None:
    asked = PlanRequest(algorithm="accelerated", sampling="one-pass", rounds=10, correlation=0.4, survey=True)
    plan = make_plan(schema, MEMBERS, asked)
    assert [stage.channel for stage in plan.stages] == [OwnNoise(), OwnNoise(correlation=0.4)]


@pytest.mark.parametrize(
    "said",
    [PlanRequest(keys=KEYS), PlanRequest(quorum=2), PlanRequest(colluders=1), PlanRequest(bits=100)],
    ids=["keys", "quorum", "colluders", "bits"],
)
def test_what_is_for_a_shuffler_is_refused(said: PlanRequest) -> None:
    with pytest.raises(PlanError, match="for plans that trust a shuffler"):
        own_noise.restricted(said, MEMBERS)


def test_it_serves_whoever_trusts_nobody_and_leaves_the_request_as_it_is() -> None:
    request = PlanRequest(sampling="fixed", correlation=0.1)
    assert planner_of(request) is own_noise
    assert own_noise.restricted(request, MEMBERS) is request
