"""The language of custom losses: what JAX would compute, for one record at a time, and nothing else."""

import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from ringfence.errors import PlanError
from ringfence.protocol.losses.elementwise import _ARITY, CONSTANTS, read
from tests.generated import examples

SCORES, TARGETS = np.linspace(0.11, 2.9, 40), np.linspace(1.73, 0.36, 40)

OPERATORS = ["+", "-", "*", "/", "**", "<", "<=", ">", ">=", "==", "!="]

EXPRESSIONS = [
    *(f"{name}({', '.join(('score', 'target', '0.7')[:count])})" for name, count in _ARITY.items()),
    *(f"{name}(-score)" for name in ("jnp.abs", "jnp.sinh", "jnp.tanh", "jax.nn.relu", "jax.scipy.special.erfc")),
    *(f"{name}(target, score)" for name in ("jnp.power", "jnp.divide", "jnp.hypot", "jax.scipy.special.xlogy")),
    *(f"score {operator} target" for operator in OPERATORS),
    *("score**0", "(-score)**3", "~(score > 1)", "jax.numpy.exp(score) * jnp.pi", "2 - score", "target * 3", "7"),
    "jnp.where((score > 1) & (target < 1) | (score == 2), jnp.log(score), -score)",
    "jnp.where(score > 100, jnp.sqrt(-score), score)",
]


def loss_of(expression: str) -> str:
    return f"def own(score, target):\n    return {expression}\n"


def by_jax(source: str) -> tuple[Any, Any]:
    """Return values and slopes, by Python and JAX's reverse mode."""
    names: dict[str, Any] = {"jnp": jnp, "jax": jax}
    exec(source, names)
    own = names["own"]
    with jax.enable_x64(True):
        value: Any = jax.vmap(lambda *record: jnp.asarray(own(*record), float))
        slope: Any = jax.vmap(jax.grad(lambda *record: jnp.asarray(own(*record), float)))
        return np.asarray(value(SCORES, TARGETS)), np.asarray(slope(SCORES, TARGETS))


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_values_and_slopes_are_those_of_jax_to_ten_digits(expression: str) -> None:
    source = loss_of(expression)
    found = read(source)
    values, slopes = by_jax(source)
    np.testing.assert_allclose(found.values(SCORES[:, None], TARGETS), values, rtol=1e-10, atol=1e-10)
    if "digamma" not in expression and "sqrt(-" not in expression:
        np.testing.assert_allclose(found.residuals(SCORES[:, None], TARGETS)[:, 0], slopes, rtol=1e-10, atol=1e-10)


def test_a_branch_that_is_not_taken_spoils_no_slope() -> None:
    """Where JAX's reverse mode multiplies 0 by infinity."""
    found = read(loss_of("jnp.where(score > 0, score, jnp.sqrt(-score))"))
    np.testing.assert_array_equal(found.residuals(np.array([[2.0], [0.0]]), np.zeros(2))[0], [1.0])


def test_what_the_simulator_computes_in_jax_is_what_a_silo_computes_in_numpy() -> None:
    found = read(loss_of("jax.nn.softplus(score) - target * jax.scipy.special.log_ndtr(score)"))
    columns = np.stack([SCORES, -SCORES], axis=1)[..., None]  # an axis of configurations
    with jax.enable_x64(True):
        traced = jax.jit(lambda u, y: (found.values(u, y), found.residuals(u, y)))(columns, TARGETS)
    for own, other in zip((found.values(columns, TARGETS), found.residuals(columns, TARGETS)), traced, strict=True):
        assert own.shape == other.shape
        np.testing.assert_allclose(own, other, rtol=1e-10)


def test_assignments_are_made_in_order_and_annotations_and_a_docstring_mean_nothing() -> None:
    found = read(
        'def own(score: float, target: "anything") -> float:\n'
        '    """It is shown to operators."""\n'
        "    error = score - target\n"
        "    error = error * 2\n"
        "    return error + error\n"
    )
    assert found.title == "own"
    np.testing.assert_array_equal(found.values(np.array([[5.0]]), np.array([2.0])), [12.0])


def test_the_documentation_lists_every_name_of_the_language() -> None:
    page = (Path(__file__).parents[3] / "docs" / "extending.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(jnp|jax[.\w]*)` \| (.*) \|$", page, re.MULTILINE)
    listed = {f"{library}.{name}" for library, names in rows for name in re.findall(r"`(\w+)`", names)}
    assert listed == {*_ARITY, *CONSTANTS}


MIXED = [
    # what adds up, sorts, moves or makes arrays
    "jnp.sum(score)", "jnp.mean(score) + score", "jnp.cumsum(score)", "jnp.sort(score)", "jnp.max(score)",
    "jnp.stack([score, target])", "jnp.array([score])", "jnp.broadcast_to(score, (2,))", "score.sum()", "score.T",
    "score @ target", "jnp.dot(score, target)", "jnp.einsum('i->', score)", "jnp.roll(score, 1)", "jnp.where(score)",
    "jax.nn.softmax(score)", "jax.nn.logsumexp(score)", "jax.nn.standardize(score)",
    "jax.scipy.special.logsumexp(score)",
    "jnp.linalg.norm(score)", "jnp.fft.fft(score)", "jnp.vectorize(jnp.sum, signature='(n)->()')(score)",
    "jnp.add.reduce(score)", "jnp.logaddexp.accumulate(score)", "jnp.add.at(score, 0, target)",
    "jnp.clip(score, 0, axis=0)", "jnp.exp(score, where=True)", "jnp.exp(*score)", "jnp.exp(**score)", "jnp.exp()",
    "jax.nn.relu(score, 0)", "jnp.nansum(score)", "score[0]", "score[::-1]", "score.at[0].set(1)",
    # collectives, callbacks, transformations and everything in lax
    "jax.lax.psum(score, 'i')", "jax.lax.pmean(score, 'i')", "jax.lax.all_gather(score, 'i')",
    "jax.lax.axis_index('i')",
    "jax.lax.map(score, target)", "jax.lax.cond(True, score, target)", "jax.lax.reduce(score, 0, 0, (0,))",
    "jax.pure_callback(print, score, target)", "jax.debug.print('{}', score)", "jax.experimental.io_callback(score)",
    "jax.vmap(jnp.exp)(score)", "jax.jit(jnp.exp)(score)", "jax.grad(jnp.exp)(score)",
    "jax.custom_batching.custom_vmap(jnp.exp)(score)", "jax.custom_jvp(jnp.exp)(score)",
    "jax.custom_vjp(jnp.exp)(score)",
    # Python
    "(lambda u: u)(score)", "[u for u in (score,)][0]", "{u: u for u in (score,)}", "sum(u for u in (score,))",
    "(u := score)", "f'{score}'", "score if target else 0", "score and target", "not score", "score in target",
    "score is target", "0 < score < 1", "score % 2", "score // 2", "score << 1", "+score", "'text'", "True", "None",
    "...", "1j", "b'bytes'", "(score, target)", "{score}", "{}", "(yield score)", "print(score)", "abs(score)",
    "getattr(jnp, 'sum')(score)", "__import__('os')", "__builtins__['open']('file')", "globals()", "jnp", "jax",
    "jnp.__dict__['sum'](score)", "jnp.exp.__call__(score)", "jnp.exp.__globals__", "jnp.numpy.exp(score)",
    "jax.jnp.exp(score)", "jnp.os.system('id')", "jnp.exp", "jnp.exp.__self__", "math.exp(score)", "np.exp(score)",
    "x", "own(score, target)", "score.__class__", "jnp.load('file')", "jnp.save('file', score)",
    "jnp.frombuffer(score)",
    "jnp.piecewise(score, [score > 0], [1])", "jnp.select([score > 0], [score])",
    "jnp.apply_along_axis(jnp.sum, 0, score)",
    "jax.random.normal(score)", "jax.device_get(score)", "jax.process_index()", "-(-jnp.sum(score))",
    "jnp.exp(jnp.sum(score))", "jnp.where(score > 0, score, jnp.sum(score))",
]  # fmt: skip

SOURCES = {
    "a nested function": "def own(score, target):\n    def inner(u):\n        return u\n    return score\n",
    "a class": "def own(score, target):\n    class A: pass\n    return score\n",
    "an import": "def own(score, target):\n    import os\n    return score\n",
    "global": "def own(score, target):\n    global jnp\n    return score\n",
    "nonlocal": "def own(score, target):\n    nonlocal jnp\n    return score\n",
    "a loop": "def own(score, target):\n    for i in (1,):\n        score = score\n    return score\n",
    "while": "def own(score, target):\n    while 1:\n        pass\n    return score\n",
    "if": "def own(score, target):\n    if 1:\n        return target\n    return score\n",
    "try": "def own(score, target):\n    try:\n        return score\n    finally:\n        pass\n",
    "with": "def own(score, target):\n    with jax.disable_jit():\n        return score\n",
    "match": "def own(score, target):\n    match score:\n        case u: return u\n",
    "an augmented assignment": "def own(score, target):\n    score += 1\n    return score\n",
    "an annotated assignment": "def own(score, target):\n    u: int = score\n    return u\n",
    "a chained assignment": "def own(score, target):\n    u = v = score\n    return u\n",
    "unpacking": "def own(score, target):\n    u, v = score, target\n    return u\n",
    "an assignment to an attribute": "def own(score, target):\n    jnp.exp = score\n    return score\n",
    "an assignment to an item": "def own(score, target):\n    score[0] = target\n    return score\n",
    "an assignment to a library": "def own(score, target):\n    jnp = score\n    return score\n",
    "a call for its effect": "def own(score, target):\n    print(score)\n    return score\n",
    "nothing returned": "def own(score, target):\n    return\n",
    "no return": "def own(score, target):\n    score = target\n",
    "an early return": "def own(score, target):\n    return score\n    return target\n",
    "del": "def own(score, target):\n    del target\n    return score\n",
    "assert": "def own(score, target):\n    assert score\n    return score\n",
    "raise": "def own(score, target):\n    raise score\n    return score\n",
    "a default": "def own(score, target=jnp.sum):\n    return score\n",
    "an argument more": "def own(score, target, jnp):\n    return score\n",
    "a keyword": "def own(score, *, target):\n    return score\n",
    "a star": "def own(*score):\n    return score\n",
    "two stars": "def own(score, target, **more):\n    return score\n",
    "a position": "def own(score, /, target):\n    return score\n",
    "a library as its score": "def own(jnp, target):\n    return jnp\n",
    "a decorator": "@jax.jit\ndef own(score, target):\n    return score\n",
    "async": "async def own(score, target):\n    return score\n",
    "two functions": "def own(score, target):\n    return score\ndef more():\n    return 1\n",
    "a lambda": "own = lambda score, target: score\n",
    "a name before its value": "def own(score, target):\n    u = v\n    v = score\n    return u\n",
    "too much": "def own(score, target):\n    return " + "+".join(["score"] * 251) + "\n",
    "a depth": "def own(score, target):\n    return " + "-" * 5_000 + "score\n",
    "a digit more than Python reads": "def own(score, target):\n    return 0x" + "f" * 15_000 + "\n",
}


@pytest.mark.parametrize("source", [*map(loss_of, MIXED), *SOURCES.values()], ids=[*MIXED, *SOURCES])
def test_nothing_that_is_not_of_the_language_is_read(source: str) -> None:
    with pytest.raises(PlanError):
        read(source)


def expressions() -> some.SearchStrategy[str]:
    """Draw expressions of the language."""
    leaf = some.sampled_from(["score", "target", "2", "0.5", "jnp.pi", "1e300", "0"])

    def larger(inner: some.SearchStrategy[str]) -> some.SearchStrategy[str]:
        called = some.sampled_from(sorted(_ARITY.items())).flatmap(
            lambda each: some.tuples(*[inner] * each[1]).map(lambda parts: f"{each[0]}({', '.join(parts)})")
        )
        return called | some.tuples(inner, some.sampled_from([*OPERATORS, "&", "|"]), inner).map(
            lambda parts: f"({' '.join(parts)})"
        )

    return some.recursive(leaf, larger, max_leaves=12)


@examples(200)
@given(expressions(), some.lists(some.floats(allow_subnormal=True), min_size=3, max_size=40), some.randoms())
def test_whatever_is_read_is_computed_and_no_bit_of_it_depends_on_another_record(
    expression: str, numbers: list[float], random: Any
) -> None:
    """Warnings are errors here, so none tells about a record either."""
    loss = read(loss_of(expression))
    scores, targets = np.array(numbers), np.array(numbers[::-1])
    order = np.array(random.sample(range(len(numbers)), len(numbers)))
    kept = order[: max(1, len(order) // 2)]

    def computed(rows: Any) -> Any:
        return np.stack(
            [loss.values(scores[rows, None], targets[rows]), loss.residuals(scores[rows, None], targets[rows])[:, 0]]
        )

    everybody = computed(slice(None))
    for rows in (order, kept, kept[:1]):
        np.testing.assert_array_equal(computed(rows), everybody[:, rows])
