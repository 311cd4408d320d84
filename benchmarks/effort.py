"""Whether a round takes what its review said it would: python -m benchmarks.effort

An estimate is good if it is above what is measured, and not by orders of magnitude: then a limit refuses what would
hold a silo up, and nothing else. A first round is timed; a second, which is traced and so is slower, tells its memory.
"""

import json
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

import numpy as np

from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import PublicKeys, Refusal, RoundRequest, parse_schema
from ringfence.shuffler.sealing import public_key, verifying_key
from ringfence.silo.gate.gate import Gate
from ringfence.silo.gate.limits import MEGABYTE, largest_round
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.ledger import Ledger
from ringfence.silo.records.records import Records

KEY = bytes(range(32))
SUM = PlanRequest(rounds=2, survey=False, person_rule="sum")
SHAPES: dict[str, tuple[int, int, PlanRequest]] = {
    "full, n=1000000 d=50": (1_000_000, 50, PlanRequest(rounds=2, survey=False)),
    "full, n=10000 d=1000": (10_000, 1000, PlanRequest(rounds=2, survey=False)),
    "full, n=1000 d=50000": (1000, 50_000, PlanRequest(rounds=2, survey=False)),
    "poisson, n=1000000 d=50": (1_000_000, 50, PlanRequest(rounds=2, sampling="poisson", batch=1000, survey=False)),
    "one-pass, n=1000000 d=50": (1_000_000, 50, PlanRequest(rounds=2, sampling="one-pass", survey=False)),
    "shuffled, n=1000 d=50": (1000, 50, PlanRequest(rounds=2, trust="shuffler", survey=False)),
    "shuffled, n=10000 d=200": (10_000, 200, PlanRequest(rounds=2, trust="shuffler", survey=False)),
    "sum, n=300000 d=50": (300_000, 50, SUM),
    "sum, n=3000 d=5000": (3000, 5000, SUM),
}


def measure(records: int, dimension: int, request: PlanRequest) -> dict[str, float]:
    """Return what a round took of this process, and its estimate in units of that; persons have ten rows each."""
    persons = records // 10 if request.person_rule else None
    number = {"type": "numeric", "lower": -1, "upper": 1}
    columns = {
        **{f"x{i}": number for i in range(dimension - 1)},
        "y": {"type": "categorical", "categories": ["a", "b"]},
    }
    schema = parse_schema({"columns": columns, "person": "patient" if persons else None}, target="y")
    random = np.random.default_rng(0)
    names = ("north", "south", "west")
    if request.trust == "shuffler":
        keys = PublicKeys(
            server=public_key(KEY), shuffler=public_key(KEY[::-1]), silos=dict.fromkeys(names, verifying_key(KEY))
        )
        request = PlanRequest(**{**vars(request), "keys": keys})
    plan = make_plan(schema, [Member(name, persons or records, 1.0, 1e-7) for name in names], request)
    terms = plan.terms("north")
    assert terms is not None
    features = random.uniform(-1, 1, (records, dimension))
    of_row = np.arange(records) // 10 if persons else None
    data = Records(schema, features, random.choice([-1.0, 1.0], records), of_row=of_row)
    with (
        tempfile.TemporaryDirectory() as folder,
        Ledger.create(Path(folder) / "north.ledger", silo="north", budget=Budget(9.0, 1e-7, anyone=99.0)) as ledger,
    ):
        gate = Gate(data, ledger, KEY)
        gate.approve(plan)
        began = time.process_time()
        first = gate.answer(RoundRequest.at(plan.digest(), 0, np.zeros(plan.dimension)))
        seconds = time.process_time() - began
        tracemalloc.start()
        second = gate.answer(RoundRequest.at(plan.digest(), 1, np.zeros(plan.dimension)))
        memory = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert not any(isinstance(answer, Refusal) for answer in (first, second))
    estimate = largest_round(plan, terms.model_copy(update={"records": data.rows}))  # a plan counts persons
    return {
        "seconds": seconds,
        "estimated / seconds": estimate.seconds / seconds,
        "MB": memory / MEGABYTE,
        "estimated / MB": estimate.memory / memory,
    }


if __name__ == "__main__":
    print(json.dumps({name: measure(*SHAPES[name]) for name in sys.argv[1:] or SHAPES}, indent=2))
