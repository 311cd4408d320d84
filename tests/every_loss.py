"""One small table, and for every loss a target in it: what each way to train is tried with."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd

from ringfence.federation.custom_loss import custom_loss
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import Custom, FloatArray, Plan, Schema, parse_schema
from ringfence.protocol.losses import LOSSES
from ringfence.protocol.losses.targets import values_of
from ringfence.silo.records.records import Records, load_records

SILOS = ("north", "south")
RECORDS = 60
EPSILON, DELTA, ROUNDS = 1e6, 1e-6, 12
"""So little noise that it changes no digit that is looked at here: at most 1e-4 of a clipped gradient's length."""

_NUMBER = {"type": "numeric", "lower": -1.0, "upper": 1.0}
COLUMNS: dict[str, dict[str, Any]] = {
    "a": _NUMBER,
    "b": _NUMBER,
    "cost": {"type": "numeric", "lower": -3.0, "upper": 3.0},
    "ill": {"type": "categorical", "categories": ["no", "yes"]},
    "grade": {"type": "categorical", "categories": ["1", "2", "3"]},
    "visits": {"type": "numeric", "lower": 0.0, "upper": 20.0},
    "paid": {"type": "numeric", "lower": 0.05, "upper": 20.0},
    "days": {"type": "numeric", "lower": 0.0, "upper": 3.0},
    "died": {"type": "categorical", "categories": ["no", "yes"]},
    "years": {"type": "numeric", "lower": 0.5, "upper": 3.0},
    "shift": _NUMBER,
    "counts": {"type": "numeric", "lower": 0.0, "upper": 2.0},
}


def log_cosh(score: Any, target: Any) -> Any:
    return jnp.logaddexp(score - target, target - score) - jnp.log(2.0)


def table(seed: int) -> pd.DataFrame:
    """Draw a silo's records."""
    random = np.random.default_rng(seed)
    a, b, shift = random.uniform(-1, 1, (3, RECORDS))
    line, years, counts = 1.2 * a - b, random.uniform(0.5, 3.0, RECORDS), random.choice([0.0, 1.0, 2.0], RECORDS)
    time = random.exponential(np.exp(-line))
    noisy = line + 0.5 * random.logistic(size=RECORDS)
    numbers = {
        "a": a, "b": b, "shift": shift, "years": years, "counts": counts, "days": np.minimum(time, 2.9),
        "cost": np.clip(line + 0.3 * random.normal(size=RECORDS), -3, 3),
        "visits": np.minimum(random.poisson(years * np.exp(line + 0.5)), 20),
        "paid": np.clip(np.exp(line) * random.gamma(2.0, 0.5, RECORDS), 0.05, 20),
    }  # fmt: skip
    words = {
        "ill": np.where(noisy > 0, "yes", "no"),
        "grade": np.array(["1", "2", "3"])[np.searchsorted([-0.5, 0.5], noisy)],
        "died": np.where(time < 2.9, "yes", "no"),
    }
    return pd.DataFrame({**{name: np.round(cells, 6) for name, cells in numbers.items()}, **words})


@dataclass(frozen=True)
class Case:
    """What is predicted by a loss, with which columns beside the features, and what else is asked for."""

    loss: str
    target: str
    roles: dict[str, str] = field(default_factory=dict)
    choices: dict[str, Any] = field(default_factory=dict)
    more_targets: tuple[str, ...] = ()

    @property
    def targets(self) -> list[str]:
        return [self.target, *self.more_targets]

    @property
    def columns(self) -> list[str]:
        return ["a", "b", *self.targets, *self.roles.values()]

    @property
    def schema(self) -> Schema:
        return parse_schema(
            {"columns": {name: COLUMNS[name] for name in self.columns}, **self.roles}, target=self.targets
        )

    @cached_property
    def asked(self) -> Any:
        """The loss as a request names it."""
        return custom_loss(log_cosh, largest_score=6.0) if self.loss == "custom" else self.loss

    def plan(self, **wishes: Any) -> Plan:
        """Make a plan that trains by it, by the plainest algorithm unless another one is wished."""
        members = [Member(name, RECORDS, EPSILON, DELTA) for name in SILOS]
        plain: dict[str, Any] = {"rounds": ROUNDS, "survey": False} if "algorithm" not in wishes else {}
        request = PlanRequest(loss=self.asked, held_out=0.0, **plain, **self.choices, **wishes)
        return make_plan(self.schema, members, request)

    def records(self) -> dict[str, Records]:
        return {name: load_records(table(seed)[self.columns], self.schema) for seed, name in enumerate(SILOS)}

    def require_learned(self, plan: Plan, weights: FloatArray) -> None:
        """Check that training made the mean loss smaller by a tenth at least."""
        assert (plan.loss.name, plan.data) == (self.loss, self.schema)
        before, after = (self._mean_loss(plan, each) for each in (np.zeros(plan.dimension), weights))
        least = min(before, 0.0)  # of a loss that may be negative
        assert after - least < 0.9 * (before - least), (before, after)

    def _mean_loss(self, plan: Plan, weights: FloatArray) -> float:
        matrix = plan.loss.matrix(weights, plan.data.width)
        values = [values_of(plan.loss, own.block() @ matrix, own.targets) for own in self.records().values()]
        return float(np.mean(np.concatenate(values)))


CASES = {
    case.loss: case
    for case in [
        Case("squared", "cost", {"weight": "counts"}),
        Case("multi-squared", "cost", more_targets=("visits",)),
        Case("huber", "cost"),
        Case("absolute", "cost", {"offset": "shift"}),
        Case("pinball", "cost", choices={"quantile": 0.7}),
        Case("epsilon-insensitive", "cost"),
        Case("custom", "cost"),
        Case("logistic", "ill", {"weight": "counts"}),
        Case("hinge", "ill"),
        Case("softmax", "grade"),
        Case("ordinal", "grade"),
        Case("poisson", "visits", {"exposure": "years"}),
        Case("negative-binomial", "visits", {"offset": "shift"}, {"dispersion": 0.5}),
        Case("gamma", "paid", {"weight": "counts"}),
        Case("survival", "days", {"event": "died"}, {"cuts": (0.5, 1.5)}),
    ]
}
assert set(CASES) == {*LOSSES, Custom.model_fields["name"].default}, "every loss has its case"


def write_tables(folder: Path) -> dict[str, Path]:
    """Write every silo's whole table, and return the files."""
    paths = {name: folder / f"{name}.csv" for name in SILOS}
    for seed, path in enumerate(paths.values()):
        table(seed).to_csv(path, index=False)
    return paths
