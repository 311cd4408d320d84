"""Every loss, one's own too, trains through real gates and in the simulator.

`tests/estimators/test_every_loss.py` and `tests/deployment/test_through_agents.py` have the other ways.
"""

from pathlib import Path

import numpy as np
import pytest

from ringfence import Silo, train
from ringfence.protocol import unpack
from ringfence.silo.ledger.ledger import Ledger
from ringfence.simulation import engine, trials
from tests.every_loss import CASES, SILOS, Case

every_loss = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@every_loss
def test_it_trains_through_gates_whose_ledgers_charge_every_round(tmp_path: Path, case: Case) -> None:
    plan = case.plan()
    silos = {name: Silo(records, tmp_path / f"{name}.ledger") for name, records in case.records().items()}
    case.require_learned(plan, unpack(train(plan, silos).model.weights))
    for name in SILOS:
        with Ledger.open(tmp_path / f"{name}.ledger") as ledger:
            assert set(ledger.account().plans[plan.digest()].rounds) == set(range(plan.rounds))


SURVEYED = ["squared", "logistic", "softmax", "poisson", "negative-binomial", "gamma"]


@pytest.mark.parametrize("case", [CASES[name] for name in SURVEYED], ids=SURVEYED)
def test_preconditioned_it_trains_through_gates_and_in_the_simulator(tmp_path: Path, case: Case) -> None:
    """With the offsets and weights that its case has."""
    plan, records = case.plan(algorithm="preconditioned", curves=0), case.records()
    silos = {name: Silo(own, tmp_path / f"{name}.ledger") for name, own in records.items()}
    case.require_learned(plan, unpack(train(plan, silos).model.weights))
    for weights in trials.simulated_weights(plan, list(records.values()), [1, 2]):
        case.require_learned(plan, weights)


@every_loss
def test_it_trains_in_the_simulator(case: Case) -> None:
    plan = case.plan()
    data = engine.federation_of(plan, list(case.records().values()))
    streams, runs = engine.from_plans([plan, plan], seeds=[1, 2])
    for weights in np.asarray(engine.simulate(engine.Rules.of(plan), data, streams, runs), dtype=np.float64):
        case.require_learned(plan, weights)
