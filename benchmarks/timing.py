"""Does the time of an agent's answers tell its records? python -m benchmarks.timing [ANSWERS [PAIR …]]

Two real agents serve neighbouring data sets, over loopback and with their ledgers in memory, where an observer sees
most. They are asked in random order. A pair of processes may differ for reasons of its own, so a comparison has BLOCKS
pairs, all begun afresh. Data sets: `same` (the same records twice: a control), `corner` (one record of zeros, or at
every bound), `subnormal` (zeros, or numbers so small that processors are slow with them) and `tiny weights` (as
`corner`, but the server asks at weights whose products with features are so small).

*Test.* In every block the medians differ by some amount, and so do the fastest tenths, which other work on the machine
disturbs least. If the data sets make no difference, each amount is as likely to have the other sign, so the mean over
blocks is compared with that of all 2^BLOCKS choices of signs: exact, with a false alarm in ALARM of the cases. The
Kolmogorov–Smirnov distance within blocks says how far whole distributions are apart; with 833 answers a block, chance
alone makes it exceed 0.16 in one of 10,000 blocks if the processes are alike.
"""

import http.client
import itertools
import json
import os
import random
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from scipy.stats import ks_2samp

from benchmarks.doors import PATIENCE, served
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import RoundRequest, load_schema
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.operator.decisions import approve_plan
from ringfence.silo.operator.setup import create_folder, make_settings
from ringfence.storage.memory import memory_folder

ANSWERS, BLOCKS, ALARM = 10_000, 12, 2e-3
RECORDS, WIDTH = 1000, 50
PAIRS = {
    "same": (0.0, 0.0, 0.0),
    "corner": (0.0, 1.0, 0.0),
    "subnormal": (0.0, 1e-310, 0.0),
    "tiny weights": (0.0, 1.0, 1e-308),
}
"""What stands in all features of the first record, in the one data set and the other, and the weights asked about."""


class Agent:
    """An agent's process, its approved plan, and the times of its answers."""

    def __init__(self, folder: Path, first: float, weight: float, rounds: int, running: ExitStack) -> None:
        folder.mkdir()
        os.environ["XDG_STATE_HOME"] = str(folder / "state")  # two users, who know nothing of each other
        names = [f"x{column}" for column in range(WIDTH)]
        number = "type = 'numeric'\nlower = -1.0\nupper = 1.0\n"
        label = "type = 'categorical'\ncategories = ['no', 'yes']\n"
        schema, data = folder / "schema.toml", folder / "records.csv"
        schema.write_text("".join(f"[columns.{name}]\n{number}" for name in names) + f"[columns.ill]\n{label}")
        rows = np.random.default_rng(1).uniform(-1, 1, (RECORDS, WIDTH))  # the same in every data set
        rows[0] = first
        lines = [",".join([*map(repr, row.tolist()), "yes" if place % 2 else "no"]) for place, row in enumerate(rows)]
        data.write_text("\n".join([",".join([*names, "ill"]), *lines]) + "\n")
        settings = make_settings(name="clinic", data_file=str(data), schema_file=str(schema), port=0)
        made = create_folder(folder / "clinic", settings, Budget(1.0, 1e-6))
        request = PlanRequest(rounds=rounds, algorithm="minibatch-sgd", survey=False)
        self.plan = make_plan(load_schema(schema, "ill"), [Member("clinic", RECORDS, 1.0, 1e-6)], request)
        approve_plan(made, self.plan)
        _, self.port = running.enter_context(served("silo", "serve", made.path, "--port", "0"))
        self.headers = {"Authorization": f"Bearer {made.token()}", "Content-Type": "application/octet-stream"}
        self.weights = np.full(self.plan.dimension, weight)
        self.times: list[float] = []

    def ask(self) -> None:
        """Ask for the next round, and note how long the answer takes, in milliseconds."""
        request = RoundRequest.at(self.plan.digest(), len(self.times), self.weights).to_bytes()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.connect()
            begun = time.perf_counter()
            connection.request("POST", "/answer", request, self.headers)
            answer = connection.getresponse()
            content = answer.read()
            self.times.append(1000 * (time.perf_counter() - begun))
        finally:
            connection.close()
        if answer.status != 200 or b'"update"' not in content:
            raise RuntimeError(f"The agent did not answer a round: {content[:200]!r}")


def block(folder: Path, pair: tuple[float, float, float], answers: int) -> tuple[list[float], list[float]]:
    """Return the times of two agents that begin afresh, in random order, and are asked in random order."""
    folder.mkdir()
    with ExitStack() as running:
        agents: dict[int, Agent] = {}
        for which in random.sample([0, 1], 2):
            agents[which] = Agent(folder / str(which), pair[which], pair[2], answers, running)
        for which in random.sample([0, 1] * (answers // 2), answers // 2 * 2):
            agents[which].ask()
        return agents[0].times[10:], agents[1].times[10:]  # the first ones warm up


def compared(found: list[tuple[list[float], list[float]]]) -> dict[str, object]:
    """Compare the times of all blocks."""
    signs = np.array(list(itertools.product((1.0, -1.0), repeat=len(found))))

    def differ(share: float) -> dict[str, object]:
        apart = np.array([np.quantile(other, share) - np.quantile(one, share) for one, other in found])
        chance = float(np.mean(np.abs(signs @ apart) >= abs(apart.sum()) * (1 - 1e-9)))
        known = {"mean": round(float(apart.mean()), 4), "deviation_over_blocks": round(float(apart.std(ddof=1)), 4)}
        return {**known, "chance": chance, "differs": chance < ALARM / 2}  # two are looked at

    shown = {}
    for side, name in enumerate(("one", "other")):
        times = np.concatenate([both[side] for both in found])
        shown[name] = {f"{share}": round(float(np.quantile(times, share)), 3) for share in (0.5, 0.9, 0.99, 0.999)}
    return {
        "milliseconds": shown,
        "difference_of_medians": differ(0.5),
        "difference_of_fastest_tenths": differ(0.1),
        "distance_within_blocks": [round(float(ks_2samp(*both).statistic), 3) for both in found],
    }


def main(answers: int = ANSWERS, *names: str) -> dict[str, object]:
    """Compare the named pairs, or all, with so many answers each."""
    results: dict[str, object] = {}
    for name in names or PAIRS:
        pair = PAIRS[name]
        with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
            found = [block(Path(folder) / f"{number}", pair, answers // BLOCKS) for number in range(BLOCKS)]
        results[name] = compared(found)
    return results


if __name__ == "__main__":
    count, *chosen = sys.argv[1:] or [str(ANSWERS)]
    print(json.dumps(main(int(count), *chosen), indent=2))
