"""Local SGD in the simulator: no gate stands behind it, so its accounting is what is audited.

Every local step counts as visible (`simulation.local`), one record of n each time. The server in fact sees only where a
silo ends: the sum of all its steps. So the attack cannot reach the claim, and a large gap is no fault of either.
"""

import math
import secrets
from collections.abc import Iterator
from typing import Any

import numpy as np

from ringfence.accounting.sampling import run_events
from ringfence.errors import PlanError, require_extra
from ringfence.evidence.audit.adversary import STEADY, Observation
from ringfence.evidence.audit.game import GameRun
from ringfence.evidence.audit.lower_bound import Claim
from ringfence.evidence.audit.plans import CLIP, AuditQuery
from ringfence.evidence.audit.sabotage import NONE
from ringfence.protocol import Squared

LOCAL_STEPS = 8
_BLOCK = 250
"""Runs that are simulated side by side."""

NOISE = {NONE: 1.0, "half-noise": 0.5, "wrong-sensitivity": 0.5, "root-half-noise": math.sqrt(0.5), "skip-clip": 1.0}
"""How much of the noise is left under each sabotage that a simulated silo can suffer."""


def local_sgd_claim(query: AuditQuery) -> tuple[Claim, float]:
    """Return what the accountant claims for a run and the noise of a local step."""
    require_extra("simulation", "Auditing local-sgd", "jax", error=PlanError)
    from ringfence.simulation.local import local_sgd_sigma

    size: Any = {"records": query.records, "dimension": query.canaries}
    sigma = local_sgd_sigma(
        rounds=query.rounds, local_steps=LOCAL_STEPS, clip=CLIP, epsilon=query.epsilon, delta=query.delta, **size
    )
    events = run_events("fixed", query.rounds * LOCAL_STEPS, batch=1, clip=CLIP, sigma=sigma, **size)
    return Claim(tuple(events), query.delta), sigma


def play_local_sgd(query: AuditQuery, runs: int, sabotage: str) -> Iterator[GameRun]:
    """Simulate runs of one silo of canaries, each with coins, draws and noise of its own."""
    if sabotage not in NOISE:
        raise PlanError(f"Sabotage '{sabotage}' breaks a gate, and local-sgd has none; choose {', '.join(NOISE)}.")
    claim, sigma = local_sgd_claim(query)
    import jax

    from ringfence.simulation.engine import federation
    from ringfence.simulation.local import LocalRuns, local_sgd

    steps, canaries = query.rounds * LOCAL_STEPS, query.canaries
    features = np.zeros((query.records, canaries))
    features[np.arange(canaries), np.arange(canaries)] = 1.0
    silo = federation([(features, np.zeros(query.records))])
    # So small that all steps together stay where every canary's gradient is at the clip.
    step = STEADY / (steps * CLIP + 10 * sigma * math.sqrt(steps))
    clip = math.inf if sabotage == "skip-clip" else CLIP
    noise = np.array([[sigma * NOISE[sabotage]]], dtype=np.float32)

    def simulate(targets: object, seed: object) -> object:
        """Simulate one run of audited local SGD with these targets and seed."""
        setting = LocalRuns(np.full(1, step, np.float32), np.full(1, clip, np.float32), noise, np.zeros(1, np.int32))
        data = silo._replace(targets=targets)
        return local_sgd(Squared(), data, seed, setting, rounds=query.rounds, local_steps=LOCAL_STEPS, asked=1)[0]

    block = jax.jit(jax.vmap(simulate))
    for first in range(0, runs, _BLOCK):
        count = min(_BLOCK, runs - first)
        coins = np.where(np.frombuffer(secrets.token_bytes(count * canaries), np.uint8) < 128, -1.0, 1.0)
        coins = coins.reshape(count, canaries)
        targets = np.zeros((count, query.records), np.float32)
        targets[:, :canaries] = coins
        seeds = np.frombuffer(secrets.token_bytes(4 * count), np.uint32).reshape(count, 1)
        ends = np.asarray(block(targets, seeds), dtype=np.float64)
        deviation = sigma * math.sqrt(steps)
        strength = np.full((1, canaries), CLIP / deviation)
        for coin, end in zip(coins, ends, strict=True):
            seen = Observation(end[None, :] / step / deviation, strength, trials=steps, rate=1 / query.records)
            yield GameRun(coin, (seen,), claim)
