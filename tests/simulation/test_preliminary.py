"""What is asked before training is simulated as silos and server do it, whichever query it is."""

from collections.abc import Iterator

import jax
import numpy as np
import pytest

from ringfence.errors import TrainingError
from ringfence.protocol import Curvature, Full, Logistic, Participation, Plan, SiloTerms, Squared, Stage, StageTerms
from ringfence.simulation.gradient import clip_of
from ringfence.simulation.trials import simulated_state
from tests.simulation.replay import Replay, arrays_of, plan_for, silos_for


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    """Compare in float64."""
    with jax.enable_x64(True):
        yield


CURVATURE = Stage(query=Curvature(), rounds=2, sampling=Full())


def beginning_with(stage: Stage, plan: Plan) -> Plan:
    """Return the plan with a stage before all others."""

    def terms(own: SiloTerms) -> SiloTerms:
        return own.model_copy(update={"stages": (StageTerms(batch=own.records, sigma=0.5), *own.stages)})

    changes = {"stages": (stage, *plan.stages), "silos": tuple(terms(own) for own in plan.silos)}
    return Plan.model_validate(plan.model_copy(update=changes).model_dump())


def test_what_is_found_is_what_a_server_finds_from_silos_with_the_same_noise() -> None:
    plan = beginning_with(CURVATURE, plan_for(Squared(), rounds=3))
    silos = silos_for(plan.loss, plan.data)
    theirs = Replay(plan, silos, 7).run().findings["curvature"]
    found = simulated_state(plan, arrays_of(silos), 7).findings["curvature"]
    np.testing.assert_allclose(found.statistic, theirs.statistic, rtol=1e-6, atol=1e-8)
    assert (found.noise, found.weight) == (theirs.noise, theirs.weight)
    other = simulated_state(plan, arrays_of(silos), 9).findings["curvature"]
    assert not np.allclose(found.statistic, other.statistic, atol=1e-2)


def test_a_stage_before_training_that_asks_some_silos_only_is_refused() -> None:
    some = CURVATURE.model_copy(update={"participation": Participation(silos=2)})
    plan = beginning_with(some, plan_for(Logistic(), rounds=3))
    with pytest.raises(TrainingError, match="asks every silo for the curvature of all its records"):
        simulated_state(plan, arrays_of(silos_for(plan.loss, plan.data)), 1)


def test_a_stage_that_asks_for_something_else_than_gradients_has_no_clip() -> None:
    with pytest.raises(TrainingError, match="cannot ask for the curvature"):
        clip_of(CURVATURE)
