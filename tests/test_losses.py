"""Losses of one's own: what is refused, that reading a plan runs nothing, and that only what is installed runs."""

import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from ringfence import Member, PlanRequest, Silo, load_records, make_plan, train
from ringfence.cli.example import write_example
from ringfence.errors import ApprovalError, PlanError
from ringfence.federation.custom_loss import custom_loss, install_loss
from ringfence.protocol import Custom, Plan, load_schema
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


def doubled(score: Any, target: Any) -> Any:
    return 2.0 * jnp.logaddexp(score - target, target - score)


def holed(score: Any, target: Any) -> Any:
    return jnp.where(jnp.abs(target - 0.1234) < 1e-5, jnp.nan, (score - target) ** 2)


def infinite(score: Any, target: Any) -> Any:
    return jnp.log(score) + target


@pytest.fixture(autouse=True)
def nothing_installed() -> Iterator[None]:
    before = dict(INSTALLED)
    yield
    INSTALLED.clear()
    INSTALLED.update(before)


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
        (broken, "raises TypeError"),
        (infinite, "is not finite"),
        (lambda score, target: (score - target) ** 2, "a single `def`"),
        (len, "cannot be found"),
    ],
)
def test_what_is_not_convex_or_smooth_or_raises_is_refused_and_not_installed(function: Any, refusal: str) -> None:
    before = dict(INSTALLED)
    with pytest.raises(PlanError, match=refusal):
        custom_loss(function, largest_score=3.0)
    assert before == INSTALLED


def test_a_plan_with_it_trains_where_it_is_installed_and_is_refused_where_it_is_not(tmp_path: Path) -> None:
    write_example(tmp_path)
    schema = load_schema(tmp_path / "schema.toml", target="pressure")
    records = load_records(tmp_path / "north.csv", schema)
    request = PlanRequest(loss=custom_loss(log_cosh, largest_score=6.0), rounds=3, held_out=0.0)
    plan = make_plan(schema, [Member("north", len(records), epsilon=2.0)], request)
    content = plan.content
    INSTALLED.clear()
    read = Plan.parse(content, error=PlanError)  # runs none of the source
    assert not INSTALLED
    assert isinstance(read.loss, Custom)
    with pytest.raises(ApprovalError, match="is not installed here"):
        train(read, {"north": Silo(records, tmp_path / "north.ledger")})
    source = tmp_path / "log_cosh.py"
    source.write_text(read.loss.source, encoding="utf-8")
    assert install_loss(source) == read.loss.digest
    assert train(read, {"north": Silo(records, tmp_path / "north.ledger")}).model.plan.loss == read.loss


@pytest.mark.parametrize(
    ("function", "refusal"),
    [(dented, "is not convex"), (broken, "raises TypeError"), (doubled, "not have the slope")],
)
def test_a_gate_refuses_a_loss_that_is_not_what_its_plan_says_before_anything_is_charged(
    tmp_path: Path, function: Any, refusal: str
) -> None:
    """Its author wrote the plan by hand, and an operator installed the source without a look."""
    write_example(tmp_path)
    schema = load_schema(tmp_path / "schema.toml", target="pressure")
    records = load_records(tmp_path / "north.csv", schema)
    honest = custom_loss(log_cosh, largest_score=6.0)
    request = PlanRequest(loss=honest, rounds=3, held_out=0.0)
    content = json.loads(make_plan(schema, [Member("north", len(records), epsilon=2.0)], request).content)
    source = inspect.getsource(function)
    (tmp_path / "own.py").write_text(source, encoding="utf-8")
    content["training"]["loss"] |= {"source": source, "digest": install_loss(tmp_path / "own.py")}
    forged = Plan.parse(json.dumps(content).encode(), error=PlanError)
    with pytest.raises(ApprovalError, match=refusal):
        train(forged, {"north": Silo(records, tmp_path / "north.ledger")})
    with Ledger.open(tmp_path / "north.ledger") as ledger:
        assert not ledger.account().plans


def test_a_record_at_which_a_loss_is_no_number_counts_for_nothing_and_the_gate_answers(tmp_path: Path) -> None:
    """Whether it answers must not hang on a record."""
    write_example(tmp_path)
    schema = load_schema(tmp_path / "schema.toml", target="pressure")
    loaded = load_records(tmp_path / "north.csv", schema)
    loss = custom_loss(holed, largest_score=6.0)
    plan = make_plan(
        schema, [Member("north", len(loaded), epsilon=2.0)], PlanRequest(loss=loss, rounds=3, held_out=0.0)
    )
    targets = loaded.targets.copy()
    targets[0] = 0.1234
    records = Records(schema, loaded.features, targets)
    assert train(plan, {"north": Silo(records, tmp_path / "north.ledger")}).model.plan.loss == loss
    stage, everybody = plan.training_stages[0], np.ones(len(records))
    others = everybody.copy()
    others[0] = 0.0
    ask = np.zeros(stage.query.argument_length(plan))
    with_it, without = (compute(stage.query, plan, ask, records, who, len(records)) for who in (everybody, others))
    np.testing.assert_array_equal(with_it, without)


def test_a_source_that_does_not_show_what_it_does_is_refused_in_a_plan() -> None:
    loss = custom_loss(log_cosh, largest_score=3.0)
    for hidden in ("\u202e", "\x1b[8m", "\u200b", "\r"):
        source = f"{loss.source}# {hidden}\n"
        with pytest.raises(ValueError, match="invisible characters"):
            Custom(**loss.model_dump() | {"source": source, "digest": digest_of(source)})
    source = f"{loss.source}#\tü\n"
    assert Custom(**loss.model_dump() | {"source": source, "digest": digest_of(source)}).source == source


@pytest.mark.parametrize("ranges", [{"largest_score": -3.0}, {"largest_score": 3.0, "largest_target": 1e9}])
def test_a_loss_that_no_plan_can_have_is_refused_in_a_sentence(ranges: dict[str, float]) -> None:
    before = dict(INSTALLED)
    with pytest.raises(PlanError, match=r"'log_cosh' cannot be part of a plan: .*largest"):
        custom_loss(log_cosh, **ranges)
    assert before == INSTALLED


@pytest.mark.parametrize("content", ["x = (", "def f(u, y):\n\0", "import os\n", "-" * 100_000])
def test_a_file_that_is_no_loss_is_not_installed(tmp_path: Path, content: str) -> None:
    before, file = dict(INSTALLED), tmp_path / "loss.py"
    file.write_text(content)
    with pytest.raises(PlanError, match=r"is not Python|be a single `def`"):
        install_loss(file)
    assert before == INSTALLED


def test_a_plan_whose_source_was_changed_is_no_plan() -> None:
    loss = custom_loss(log_cosh, largest_score=3.0)
    changed = loss.model_dump() | {"source": loss.source.replace("logaddexp", "maximum")}
    with pytest.raises(ValueError, match="does not match its source"):
        Custom(**changed)
