"""Many runs of one plan on public data: compiled where training asks for plain gradients, else round by round."""

from collections.abc import Sequence

import numpy as np

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.plan import Plan
from ringfence.silo.records import Records
from ringfence.simulation import engine
from ringfence.simulation.gradient import is_compiled
from ringfence.simulation.preliminary import Silos, learned, learned_after


def weights(plan: Plan, silos: Silos, seeds: Sequence[int]) -> FloatArray:
    """Run the plan once for each seed, on the records that train, and return the learned weights, a row each."""
    if not all(is_compiled(stage) for stage in plan.training_stages):
        return np.stack([own.model() for own in learned_after(plan, silos, seeds, 1 + plan.training_numbers[-1])])
    known = [learned(plan, silos, seed) for seed in seeds]
    records = [own if isinstance(own, Records) else Records(plan.data, *own) for own in silos]
    streams, runs = engine.from_plans([plan] * len(seeds), seeds, learned=known)
    found = engine.simulate(engine.Rules.of(plan), engine.federation_of(plan, records), streams, runs)
    return np.asarray(found, dtype=np.float64)
