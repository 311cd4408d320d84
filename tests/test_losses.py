"""Losses of one's own: what is refused, that only what is installed is computed, and no record sees another."""

import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ringfence import Member, PlanRequest, Silo, load_records, make_plan, train
from ringfence.cli.first_steps import write_example
from ringfence.errors import ApprovalError, PlanError
from ringfence.federation.custom_loss import custom_loss, install_loss
from ringfence.protocol import Custom, Loss, Plan, load_schema
from ringfence.protocol.losses.custom import INSTALLED, digest_of
from ringfence.silo.ledger.ledger import Ledger
from ringfence.silo.queries import compute
from ringfence.silo.records.records import Records


def log_cosh(score: Any, target: Any) -> Any:
    return jnp.logaddexp(score - target, target - score)


def dented(score: Any, target: Any) -> Any:
    return jnp.cos(score - target)


def kinked(score: Any, target: Any) -> Any:
    return jnp.abs(score - target)


def broken(score: Any, target: Any) -> Any:
    return jnp.reshape(score - target, (3, 7))


def leaking(score: Any, target: Any) -> Any:
    @jax.custom_batching.custom_vmap
    def others(numbers: Any) -> Any:
        return 0.0 * numbers

    @others.def_vmap
    def total(size: int, batched: Any, numbers: Any) -> Any:
        return jnp.full(size, jnp.sum(numbers)), True

    return jnp.logaddexp(score - target, target - score) + score * jax.lax.stop_gradient(others(target))


def doubled(score: Any, target: Any) -> Any:
    return 2.0 * jnp.logaddexp(score - target, target - score)


def holed(score: Any, target: Any) -> Any:
    return jnp.where(jnp.abs(target - 0.1234) < 1e-5, jnp.nan, (score - target) ** 2)


def overflowing(score: Any, target: Any) -> Any:
    return jnp.exp(1000.0 * score) + target


def infinite(score: Any, target: Any) -> Any:
    return jnp.log(score) + target


@pytest.fixture(autouse=True)
def nothing_installed() -> Iterator[None]:
    before = set(INSTALLED)
    INSTALLED.clear()
    yield
    INSTALLED.clear()
    INSTALLED.update(before)


@pytest.fixture
def records(tmp_path: Path) -> Records:
    write_example(tmp_path)
    return load_records(tmp_path / "north.csv", load_schema(tmp_path / "schema.toml", target="pressure"))


def plan_with(function: Any, records: Records) -> Plan:
    request = PlanRequest(loss=custom_loss(function, largest_score=6.0), rounds=3, held_out=0.0, curves=0)
    return make_plan(records.schema, [Member("north", len(records), epsilon=2.0)], request)


def install(folder: Path, source: str) -> str:
    """Install a source, and return its digest."""
    (folder / "own.py").write_text(source, encoding="utf-8")
    return install_loss(folder / "own.py")


def trained(plan: Plan, records: Records, folder: Path) -> Loss:
    """Train, and return the loss of the model's plan."""
    return train(plan, {"north": Silo(records, folder / "north.ledger")}).model.plan.loss


def test_its_residuals_are_its_derivative_and_its_constants_those_of_the_grid() -> None:
    loss = custom_loss(log_cosh, largest_score=3.0)
    scores, targets = np.linspace(-3, 3, 50)[:, None], np.linspace(1, -1, 50)
    np.testing.assert_allclose(loss.residuals(scores, targets), np.tanh(scores - targets[:, None]), atol=1e-12)
    assert loss.constants(1.0, 1.0, 3.0).lipschitz == pytest.approx(np.tanh(4.0))
    assert 0.99 < loss.constants(1.0, 1.0, 3.0).smoothness <= 1.0
    assert loss.constants(1.0, 1.0, 3.1).lipschitz == np.inf


@pytest.mark.parametrize(
    ("function", "refusal"),
    [
        (dented, "is not convex"),
        (kinked, "is not smooth"),
        (broken, "may not contain `jnp.reshape"),
        (infinite, "is not finite"),
        (overflowing, "is not finite"),
        (lambda score, target: (score - target) ** 2, "a single `def`"),
        (len, "cannot be found"),
    ],
)
def test_what_is_not_convex_or_smooth_or_raises_is_refused_and_not_installed(function: Any, refusal: str) -> None:
    with pytest.raises(PlanError, match=refusal):
        custom_loss(function, largest_score=3.0)
    assert not INSTALLED


def test_a_loss_that_adds_up_the_records_beside_each_other_is_neither_made_nor_installed(tmp_path: Path) -> None:
    """A batching rule of its own sees all records at once: one of 500 would move the gradient by 180 times its charge.

    On the grid of scores and targets the sum is 0, so it seems to be log cosh.
    """
    with pytest.raises(PlanError, match="may not contain `@jax"):
        custom_loss(leaking, largest_score=6.0)
    with pytest.raises(PlanError, match="may not contain"):
        install(tmp_path, inspect.getsource(leaking))
    assert not INSTALLED


def test_a_plan_with_it_trains_where_it_is_installed_and_is_refused_where_it_is_not(
    tmp_path: Path, records: Records
) -> None:
    content = plan_with(log_cosh, records).content
    INSTALLED.clear()
    read = Plan.parse(content, error=PlanError)  # runs none of the source
    assert not INSTALLED
    assert isinstance(read.loss, Custom)
    with pytest.raises(ApprovalError, match="is not installed here"):
        trained(read, records, tmp_path)
    assert install(tmp_path, read.loss.source) == read.loss.digest
    assert trained(read, records, tmp_path) == read.loss


@pytest.mark.parametrize(
    ("function", "refusal"),
    [(dented, "is not convex"), (leaking, "may not contain"), (doubled, "not have the slope")],
)
def test_a_gate_refuses_a_loss_that_is_not_what_its_plan_says_before_anything_is_charged(
    tmp_path: Path, records: Records, function: Any, refusal: str
) -> None:
    """Its author wrote the plan by hand, and an operator agreed to the source without a look."""
    content, source = json.loads(plan_with(log_cosh, records).content), inspect.getsource(function)
    content["training"]["loss"] |= {"source": source, "digest": digest_of(source)}
    INSTALLED.add(digest_of(source))
    forged = Plan.parse(json.dumps(content).encode(), error=PlanError)
    with pytest.raises(ApprovalError, match=refusal):
        trained(forged, records, tmp_path)
    with Ledger.open(tmp_path / "north.ledger") as ledger:
        assert not ledger.account().plans


def test_a_record_at_which_a_loss_is_no_number_counts_for_nothing_and_the_gate_answers(
    tmp_path: Path, records: Records
) -> None:
    """Whether it answers must not hang on a record."""
    plan, targets = plan_with(holed, records), records.targets.copy()
    targets[0] = 0.1234
    records = Records(records.schema, records.features, targets)
    assert trained(plan, records, tmp_path) == plan.loss
    stage, everybody = plan.training_stages[0], np.ones(len(records))
    others = np.where(np.arange(len(records)) == 0, 0.0, everybody)
    ask = np.zeros(stage.query.argument_length(plan))
    with_it, without = (compute(stage.query, plan, ask, records, who, len(records)) for who in (everybody, others))
    np.testing.assert_array_equal(with_it, without)


def test_a_source_that_was_changed_or_does_not_show_what_it_does_is_refused_in_a_plan() -> None:
    loss = custom_loss(log_cosh, largest_score=3.0)
    for hidden in ("\u202e", "\x1b[8m", "\u200b", "\r"):
        source = f"{loss.source}# {hidden}\n"
        with pytest.raises(ValueError, match="invisible characters"):
            Custom(**loss.model_dump() | {"source": source, "digest": digest_of(source)})
    source = f"{loss.source}#\tü\n"
    assert Custom(**loss.model_dump() | {"source": source, "digest": digest_of(source)}).source == source
    with pytest.raises(ValueError, match="does not match its source"):
        Custom(**loss.model_dump() | {"source": source})


@pytest.mark.parametrize("ranges", [{"largest_score": -3.0}, {"largest_score": 3.0, "largest_target": 1e9}])
def test_a_loss_that_no_plan_can_have_is_refused_in_a_sentence(ranges: dict[str, float]) -> None:
    with pytest.raises(PlanError, match=r"'log_cosh' cannot be part of a plan: .*largest"):
        custom_loss(log_cosh, **ranges)
    assert not INSTALLED


@pytest.mark.parametrize("content", ["x = (", "def f(u, y):\n\0", "import os\n", "-" * 100_000])
def test_a_file_that_is_no_loss_is_not_installed(tmp_path: Path, content: str) -> None:
    with pytest.raises(PlanError, match=r"is not Python|be a single `def`"):
        install(tmp_path, content)
    assert not INSTALLED
