"""What other tools' privacy gives for the same task, by running them: python benchmarks/comparison.py

Flower's LocalDpMod and NVFlare's filters are called as their own clients call them, on updates of the same logistic
regression that Ringfence trains: the invented hospitals of `ringfence example`. Epsilons are for replacing one record,
from Ringfence's accountant. Results and what they mean: docs/comparison.md.
"""

import json
import logging
import math
import os
import tempfile
from pathlib import Path

import flwr
import numpy as np
import nvflare
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.filters.percentile_privacy import PercentilePrivacy
from nvflare.app_common.filters.svt_privacy import SVTPrivacy

from ringfence import Member, Silo, load_records, load_schema, make_plan, train
from ringfence.accounting.account import answer_question
from ringfence.example import write_example
from ringfence.protocol.arrays import FloatArray
from ringfence.research.experiments.league.flower import Update, local_dp, sensitivity_for
from ringfence.silo.records import Records

DELTA = 1e-5
EPSILON = 1.0
ROUNDS = 10
REPEATS = 20


def composed_epsilon(sigma: float, clip: float, rounds: int) -> float:
    """Return the epsilon of releasing a vector of norm `clip` so often, which a record may move anywhere."""
    answer = answer_question(
        records=1, rounds=rounds, sampling="full", batch=None, clip=clip, delta=DELTA, sigma=sigma, epsilon=None
    )
    epsilon = answer["epsilon"]
    if not isinstance(epsilon, float):
        raise TypeError("the accountant gave no number")
    return epsilon


def measured_noise(send: Update, width: int = 20_000) -> float:
    """Return the standard deviation of what is added to an update of next to nothing (none at all divides by zero)."""
    zero = np.zeros(width)
    return float(np.std(send(zero, zero + 1e-12)))


def federated_average(silos: list[Records], send: Update, *, steps: int, rate: float) -> FloatArray:
    """Train logistic regression: some full-batch steps at every client, its update through `send`, the mean."""
    weights = np.zeros(silos[0].features.shape[1])
    total = sum(len(silo) for silo in silos)
    for _ in range(ROUNDS):
        mean = np.zeros_like(weights)
        for silo in silos:
            local = weights.copy()
            for _ in range(steps):
                margins = silo.targets * (silo.features @ local)
                local += rate * ((silo.targets / (1 + np.exp(margins))) @ silo.features) / len(silo)
            mean += len(silo) / total * send(weights, local)
        weights = mean
    return weights


def accuracy(weights: FloatArray, tests: list[Records]) -> float:
    """Return the share of held-out records that are classified correctly."""
    hits = np.concatenate([test.targets * (test.features @ weights) > 0 for test in tests])
    return float(np.mean(hits))


def flower() -> dict[str, object]:
    """Measure LocalDpMod's noise for (1, 1e-5), and what it gives over rounds."""
    send = local_dp(1.0, 1.0, EPSILON, DELTA)
    sigma = measured_noise(send)
    return {
        "version": flwr.__version__,
        "sigma_measured": sigma,
        "sigma_by_its_formula": math.sqrt(2 * math.log(1.25 / DELTA)) / EPSILON,
        "true_epsilon_by_rounds": {rounds: composed_epsilon(sigma, 1.0, rounds) for rounds in (1, 10, 41, 100)},
        "true_epsilon_of_a_named_one": {
            named: composed_epsilon(measured_noise(local_dp(1.0, 1.0, named, DELTA)), 1.0, 1)
            for named in (0.5, 1.0, 4.0, 8.0)
        },
        "with_sensitivity_a_tenth_of_the_clip": composed_epsilon(
            measured_noise(local_dp(1.0, 0.1, EPSILON, DELTA)), 1.0, 1
        ),
    }


def nvflare_filters() -> dict[str, object]:
    """Run the filters on an update of 50 weights: what they say they spend, whether they stop or add noise."""
    update = np.random.default_rng(1).normal(0, 1e-4, 50)
    context = FLContext()

    def apply(chosen: SVTPrivacy | PercentilePrivacy, values: FloatArray) -> FloatArray:
        filtered = chosen.process_dxo(DXO(DataKind.WEIGHT_DIFF, {"w": values.copy()}), Shareable(), context)
        result: FloatArray = filtered.data["w"]
        return result

    svt = SVTPrivacy()
    spent = {}
    for call in range(1, 101):
        apply(svt, update)
        if call in (1, 10, 41, 100):
            spent[call] = svt.get_privacy_spent()
    svt.handle_event(EventType.START_RUN, context)
    percentile = PercentilePrivacy()
    once, again = apply(percentile, update), apply(percentile, update)
    other = update.copy()
    other[np.argmax(np.abs(other))] *= 1.5
    return {
        "version": nvflare.__version__,
        "svt_epsilon_by_its_own_sum": spent,
        "svt_epsilon_after_a_new_run_began": svt.get_privacy_spent(),
        "svt_answers_after_100_calls": bool(np.any(apply(svt, update))),
        "percentile_repeats_itself": bool(np.array_equal(once, again)),
        "percentile_tells_two_updates_apart": bool(not np.array_equal(once, apply(percentile, other))),
    }


def same_task() -> dict[str, object]:
    """Train on the same records at the same total epsilon; mean accuracies over fresh noise and splits."""
    settings = [(clip, steps) for clip in (0.1, 0.3, 1.0, 3.0) for steps in (1, 5, 20)]
    found: dict[str, list[float]] = {"not private": [], "ringfence": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["XDG_STATE_HOME"] = name
        write_example(folder)
        schema = load_schema(folder / "schema.toml", target="ill")
        everybody = {silo: load_records(folder / f"{silo}.csv", schema) for silo in ("north", "south", "west")}
        for repeat in range(REPEATS):
            choices = np.random.default_rng(repeat)
            orders = [(records, choices.permutation(len(records))) for records in everybody.values()]
            silos = [records.take(order[len(order) // 5 :]) for records, order in orders]
            tests = [records.take(order[: len(order) // 5]) for records, order in orders]
            plain = federated_average(silos, lambda sent, learned: learned, steps=20, rate=2.0)
            found["not private"].append(accuracy(plain, tests))
            for clip, steps in settings:
                # Noise for a total of (1, 1e-5) over all rounds: what LocalDpMod needs to be told for that.
                sensitivity = sensitivity_for(clip, ROUNDS, EPSILON, DELTA)
                for label, told in (("per round", clip), ("in total", sensitivity)):
                    weights = federated_average(silos, local_dp(clip, told, EPSILON, DELTA), steps=steps, rate=2.0)
                    found.setdefault(f"LocalDpMod {label}, clip {clip:g}, {steps} steps", []).append(
                        accuracy(weights, tests)
                    )
            members = [
                Member(silo, len(records), epsilon=EPSILON, delta=DELTA)
                for silo, records in zip(everybody, silos, strict=True)
            ]
            ledgers = {
                silo: Silo(records, folder / f"{repeat}-{silo}.ledger", new_beginning="the comparison is repeated")
                for silo, records in zip(everybody, silos, strict=True)
            }
            model = train(make_plan(schema, members), ledgers).model
            found["ringfence"].append(accuracy(model.coefficients[:, 0], tests))
    means = {
        name: (float(np.mean(values)), float(np.std(values) / math.sqrt(REPEATS))) for name, values in found.items()
    }
    best = {
        label: max((name for name in means if name.startswith(f"LocalDpMod {label}")), key=lambda name: means[name][0])
        for label in ("per round", "in total")
    }
    shown = ["not private", "ringfence", *best.values()]
    return {name: {"accuracy": means[name][0], "standard_error": means[name][1]} for name in shown}


def main() -> None:
    """Print all measurements as JSON."""
    logging.disable(logging.INFO)
    print(json.dumps({"flower": flower(), "nvflare": nvflare_filters(), "same_task": same_task()}, indent=2))


if __name__ == "__main__":
    main()
