"""Plans whose silos make their own noise: the least that each one's budget allows, calibrated once where alike."""

from typing import Any

import pytest

from ringfence.accounting import calibrate
from ringfence.accounting.charges import cost, plan_events
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import OwnNoise, Schema
from tests.support import renoised

MEMBERS = [Member("north", 400, 2.0, 1e-6), Member("south", 90, 0.5, 1e-7)]


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
