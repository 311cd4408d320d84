"""What the core costs, each time beside something known in the same run: python benchmarks/core.py"""

import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import dp_accounting
import numpy as np
from dp_accounting.pld import pld_privacy_accountant

from ringfence.accounting import accountant, calibrate
from ringfence.accounting.runs import run_events
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import NoisyUpdate, RoundRequest, parse_schema
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.ledger import Ledger
from ringfence.silo.records.records import Records

DELTA = 1 / 1238**2


def seconds(function: Callable[[], object], repeats: int) -> float:
    """Return the median time of a call."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def reference_epsilon() -> float:
    """Ask dp-accounting the Poisson query; its noise multiplier is in units of half our shift."""
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    event = dp_accounting.PoissonSampledDpEvent(181 / 1238, dp_accounting.GaussianDpEvent(0.015 * 181))
    composed = pld_privacy_accountant.PLDAccountant(relation).compose(event, 35)
    return float(composed.get_epsilon(DELTA))


def accounting() -> dict[str, float]:
    """Time the accountant's four queries beside dp-accounting's answer to one of them."""
    reference = seconds(reference_epsilon, 3)

    def ask(sampling: str, batch: int) -> Callable[[], float]:
        events = run_events(sampling, 35, records=1238, batch=batch, clip=1.0, sigma=0.015)
        return lambda: accountant.epsilon(events, DELTA)

    def calibration(sampling: str, batch: int) -> Callable[[], float]:
        return lambda: calibrate.noise(
            sampling, records=1238, batch=batch, rounds=35, clip=1.0, epsilon=3.0, delta=DELTA
        )

    measured = {
        "full batch, epsilon": seconds(ask("full", 1238), 100),
        "fixed size, epsilon": seconds(ask("fixed", 181), 5),
        "poisson, epsilon": seconds(ask("poisson", 181), 5),
        "full batch, noise": seconds(calibration("full", 1238), 20),
        "fixed size, noise": seconds(calibration("fixed", 181), 3),
        "poisson, noise": seconds(calibration("poisson", 181), 3),
    }
    return {"dp-accounting poisson, epsilon": reference, **measured, **{
        f"{name} / dp-accounting": time / reference for name, time in measured.items()
    }}  # fmt: skip


def gate(records: int = 10_000, features: int = 100) -> dict[str, float]:
    """Time a round through the gate (validate, charge, sync, clip, noise, store) beside two bare fsyncs."""
    number = {"type": "numeric", "lower": -1, "upper": 1}
    columns = {**{f"x{i}": number for i in range(features - 1)}, "y": {"type": "categorical", "categories": ["a", "b"]}}
    schema = parse_schema({"columns": columns}, target="y")
    random = np.random.default_rng(0)
    data = np.concatenate([random.uniform(-1, 1, (records, features - 1)), np.ones((records, 1))], axis=1)
    plan = make_plan(schema, [Member("silo", records, 1.0)], PlanRequest(algorithm="accelerated", rounds=100))
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        with Ledger.create(Path(folder) / "silo.ledger", silo="silo", budget=Budget(2.0, 1e-5)) as ledger:
            door = Gate(Records(schema, data, random.choice([-1.0, 1.0], records)), ledger)
            door.approve(plan)
            rounds = iter(range(plan.rounds))

            def answer() -> None:
                request = RoundRequest.at(plan.digest(), next(rounds), np.zeros(plan.dimension))
                assert isinstance(door.answer(request), NoisyUpdate)

            round_time = seconds(answer, plan.rounds)
        with (Path(folder) / "plain").open("wb") as file:

            def two_syncs() -> None:
                for _ in range(2):
                    file.write(b"x" * 1000)
                    file.flush()
                    os.fsync(file.fileno())

            sync_time = seconds(two_syncs, 50)
    return {"gate round": round_time, "two bare fsyncs": sync_time, "ratio": round_time / sync_time}


if __name__ == "__main__":
    print(json.dumps({"accounting, seconds": accounting(), "gate, n=10000 d=100, seconds": gate()}, indent=2))
