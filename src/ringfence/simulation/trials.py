"""Many runs of one plan on public data: what it asks before training round by round, and training by the engine.

Before training, few rounds ask for much: the silos' averaged answers are computed for all runs at once
(`rehearsal.answers`), and every run adds the noise of its own seed. Nothing here is private.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ringfence.errors import TrainingError
from ringfence.protocol import FloatArray, Participation, Plan, Schema, Stage
from ringfence.protocol.plan.plan import EVERYBODY
from ringfence.rehearsal import rounds
from ringfence.rehearsal.answers import Silos
from ringfence.server.state import ServerState
from ringfence.silo.records.records import Records
from ringfence.simulation import engine
from ringfence.simulation.channels import coins_of, simulated_noise
from ringfence.simulation.channels.own_noise import GaussianNoise


class SimulatedModel(NamedTuple):
    """The weights that a simulated run learned, and the schema that encodes records for them."""

    weights: FloatArray
    data: Schema


def simulated_models(plan: Plan, silos: Silos, seeds: Sequence[int], dtype: Any = np.float32) -> list[SimulatedModel]:
    """Run the plan once for each seed, on the records that train, and return the models.

    Where a survey places knots, every run has features of its own, and runs alone.
    """
    if not plan.data.open_curves:
        return [SimulatedModel(weights, plan.data) for weights in simulated_weights(plan, silos, seeds, dtype)]
    found = []
    for seed in seeds:
        known = simulated_state(plan, silos, seed, dtype)
        data = plan.data.placed(known.knots)
        streams, runs = engine.from_plans([plan], [seed], dtype, learned=[known])
        records = [own.encoded(data) for own in silos if isinstance(own, Records)]
        (weights,) = engine.simulate(engine.Rules.of(plan), engine.federation_of(plan, records, dtype), streams, runs)
        found.append(SimulatedModel(np.asarray(weights, dtype=np.float64), data))
    return found


def simulated_weights(plan: Plan, silos: Silos, seeds: Sequence[int], dtype: Any = np.float32) -> FloatArray:
    """Run the plan once for each seed, on the records that train, and return the learned weights, a row each."""
    if plan.data.open_curves:
        raise TrainingError("Every run of this plan has curves of its own: ask for `simulated_models`.")
    first, known = ServerState.initial(plan), simulated_state(plan, silos, seeds, dtype)
    streams, runs = engine.from_plans([plan] * len(seeds), seeds, dtype, learned=[first] * len(seeds))

    def of_runs(learned: Any, one: Any) -> Any:
        """Return what the server learned in every run, in the engine's numbers."""
        return jnp.broadcast_to(jnp.asarray(learned, one.dtype), one.shape)

    runs = runs._replace(
        settings=jax.tree.map(of_runs, known.settings, runs.settings), start=of_runs(known.model(), runs.start)
    )
    records = [own if isinstance(own, Records) else Records(plan.data, *own) for own in silos]
    found = engine.simulate(engine.Rules.of(plan), engine.federation_of(plan, records, dtype), streams, runs)
    return np.asarray(found, dtype=np.float64)


def _own_features(plan: Plan, silos: Silos, seed: int, dtype: Any) -> FloatArray:
    """Return the weights of one simulated run, with the knots that its survey finds."""
    known = simulated_state(plan, silos, seed, dtype)
    streams, runs = engine.from_plans([plan], [seed], dtype, learned=[known])
    data = plan.data.placed(known.knots)
    records = [own.encoded(data) for own in silos if isinstance(own, Records)]
    found = engine.simulate(engine.Rules.of(plan), engine.federation_of(plan, records, dtype), streams, runs)
    return np.asarray(found, dtype=np.float64)


def simulated_state(plan: Plan, silos: Silos, seeds: int | Sequence[int], dtype: Any = np.float32) -> ServerState:
    """Simulate what comes before training, and return the server's state: of a run, or of a run for each seed.

    Every silo answers, from all its records, with Gaussian noise of the plan's sigma, or with coins through a shuffler.
    """
    stages = plan.training_numbers[0]
    for stage in plan.stages[:stages]:
        _require_everything(stage, len(plan.silos))
    return rounds.simulated_state(plan, silos, seeds, stages, collected=collected_noise, dtype=dtype)


def collected_noise(plan: Plan, number: int, random: np.random.Generator, length: int) -> FloatArray:
    """Draw the noise of all silos' coins in a simulated stage's average."""
    own = [terms.stages[number] for terms in plan.silos]
    deviation = math.hypot(*(terms.weight * of.sigma for terms, of in zip(plan.silos, own, strict=True)))
    batches = np.array([of.batch for of in own])
    key = jax.random.key(int(random.integers(2**32)))
    channel, there = plan.stages[number].channel, np.ones(len(own), int)
    drawn = simulated_noise(channel).draw(key, length, there, batches, coins_of(channel), np.float32)
    return deviation * np.asarray(drawn, dtype=np.float64)


def _require_everything(stage: Stage, silos: int) -> None:
    """Refuse to simulate sampling, partial participation and correlated noise before training."""
    everybody = stage.participation in (EVERYBODY, Participation(silos=silos))
    fresh = stage.channel.is_collected or simulated_noise(stage.channel) == GaussianNoise()
    if not (stage.sampling.takes_all and everybody and fresh):
        raise TrainingError(
            f"The simulator asks every silo for the {stage.query.name} of all its records, with fresh noise in each "
            "round: leave sampling, participation and correlation of that stage out."
        )
