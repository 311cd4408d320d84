"""A peer in a process of its own: python -m tests.federation.lone_peer FOLDER SILO

It reads the plan and its own records from the folder and keeps its own ledger there. Each round it prints its answer
as one line (an empty one if it is not its turn), then reads what all have said, one line each up to an empty one. Last
it prints a digest of its model.
"""

import hashlib
import sys
from pathlib import Path

from ringfence.errors import PlanError
from ringfence.federation.peers import Peer
from ringfence.protocol import Plan, parse_answer
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.ledger import Ledger
from ringfence.silo.records.records import load_records


def main(folder: Path, silo: str) -> None:
    """Approve the plan, take part in it, end it."""
    plan = Plan.parse((folder / "plan.json").read_bytes(), error=PlanError)
    terms = plan.terms(silo)
    assert terms is not None
    with Ledger.create(folder / f"{silo}.ledger", silo=silo, budget=Budget.of(terms.guarantees)) as ledger:
        gate = Gate(load_records(folder / f"{silo}.csv", plan.data), ledger)
        gate.approve(plan)
        peer = Peer(plan, gate)
        while not peer.finished:
            said = peer.broadcast()
            print("" if said is None else said.to_bytes().decode(), flush=True)
            received = [parse_answer(line.encode()) for line in iter(lambda: sys.stdin.readline().rstrip("\n"), "")]
            peer.receive({answer.silo: answer for answer in received})
        gate.end(plan)
        print(hashlib.sha256(peer.result().weights.tobytes()).hexdigest(), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
