"""What simulations of the default plan cost: many runs on small and large silos, and the first run in a process."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.waiting import Row, least
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import FloatArray, Logistic, Plan, Squared, parse_schema
from ringfence.simulation import trials

RUNS = 64
SMALL, LARGE = (823, 8, 4), (26_000, 90, 5)
"""Records, columns beside the target, and silos."""

Silos = list[tuple[FloatArray, FloatArray]]


def rows() -> Iterator[Row]:
    """Measure the simulator: processor seconds of all its threads."""
    yield Row(f"simulating the default plan, {RUNS} runs, 823 × 9", simulation(*federation(*SMALL)), "CPU s", 0.3)
    plan, silos = federation(*LARGE)
    own, training, all_rounds = simulation(plan, silos), *products(plan, silos)
    beside = f"{all_rounds / own:.2f} with the products of the survey, whose every run has {plan.data.width} axes"
    yield Row(
        f"the bare products of {RUNS} runs' rounds, of simulating them, 26,000 × 91", training / own, "", 0.5, beside
    )
    with tempfile.TemporaryDirectory() as folder:
        empty = first_run(folder)
        warm = least(lambda: first_run(folder))
    yield Row("first run of a compiled plan in a process", warm, "CPU s", 0.5, f"{empty:.2f} CPU s with an empty cache")


def federation(records: int, columns: int, silos: int) -> tuple[Plan, Silos]:
    """Make silos of that many records together, and the plan of `ringfence train` for them at ε = 1."""
    random = np.random.default_rng(0)
    number = {"type": "numeric", "lower": -1.0, "upper": 1.0}
    label = {"type": "categorical", "categories": ["no", "yes"]}
    names = {f"x{column}": number for column in range(columns)} | {"y": number if columns < 50 else label}
    schema = parse_schema({"columns": names}, target="y")
    features = np.concatenate([random.uniform(-1, 1, (records, columns)), np.ones((records, 1))], axis=1)
    targets = np.clip(features[:, 0] / 2 + random.normal(0, 0.3, records), -1, 1)
    targets = targets if columns < 50 else np.sign(targets)
    parts = [(features[silo::silos], targets[silo::silos]) for silo in range(silos)]
    members = [Member(f"s{silo}", len(own), 1.0) for silo, (_, own) in enumerate(parts)]
    loss = Squared() if columns < 50 else Logistic()
    return make_plan(schema, members, PlanRequest(loss=loss, algorithm="preconditioned", curves=0)), parts


def simulation(plan: Plan, silos: Silos) -> float:
    """Return the processor seconds of a simulation whose programs are compiled."""
    return _least(lambda: trials.simulated_weights(plan, silos, range(RUNS)))


def products(plan: Plan, silos: Silos) -> tuple[float, float]:
    """Return the processor seconds of all rounds' X@W and Rᵀ@X, with a column per run, and with the survey's axes."""
    features = np.concatenate([own for own, _ in silos]).astype(np.float32)
    random, width = np.random.default_rng(1), plan.data.width
    surveyed = plan.rounds - plan.steps

    def multiply(columns: int) -> None:
        """Multiply as a round does whose request holds that many columns."""
        residuals = features @ random.standard_normal((width, columns), dtype=np.float32)
        residuals.T @ features

    with threadpool_limits(limits=1, user_api="blas"):
        of_gradients = _least(lambda: multiply(RUNS))
        of_axes = _least(lambda: multiply(width))
    # All runs' first requests of a survey are equal, and answered once.
    return plan.rounds * of_gradients, plan.steps * of_gradients + (1 + (surveyed - 1) * RUNS) * of_axes


def first_run(cache: str) -> float:
    """Return the processor seconds that a new process takes for its first simulation, after its imports."""
    command = [sys.executable, "-c", "from benchmarks.waiting import simulator; simulator.print_first_run()"]
    done = subprocess.run(
        command, env=os.environ | {"XDG_CACHE_HOME": cache}, capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def print_first_run() -> None:
    """Print the processor seconds of a simulation."""
    plan, silos = federation(*SMALL)
    begun = time.process_time()
    trials.simulated_weights(plan, silos, range(RUNS))
    print(time.process_time() - begun)


def _least(work: Callable[[], object], tries: int = 3) -> float:
    """Return the least processor seconds of some work, once it was done before."""
    work()

    def once() -> float:
        begun = time.process_time()
        work()
        return time.process_time() - begun

    return least(once, tries)
