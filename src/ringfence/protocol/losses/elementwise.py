"""The language of custom losses: arithmetic and elementwise functions of a record's score and target.

    def huber(score, target):
        error = jnp.abs(score - target)
        return jnp.where(error < 1, error**2 / 2, error - 0.5)

A loss reads as Python with `jax.numpy` as `jnp`, but Python never runs it: it becomes operations of the tables below,
and everything else is refused. Each operation maps numbers of a record to a number of the same record, so a value or
slope is a function of its record alone (`docs/proofs.md`, Q0). Slopes are computed beside values (forward mode), by
partial derivatives that the tables state in the same language.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Literal, TypeAlias

import numpy as np

from ringfence.errors import PlanError, visible
from ringfence.protocol.arrays import FloatArray, namespace
from ringfence.protocol.losses.base import LinearLoss, beside

MOST_OPERATIONS = 500
"""Each takes time for every record, and an operator is to read them."""

_PLACES = "x", "y", "z"
"""What the tables call a function's arguments."""

PARTIALS: dict[str, tuple[str, ...]] = {
    "jnp.add": ("1", "1"),
    "jnp.subtract": ("1", "-1"),
    "jnp.multiply": ("y", "x"),
    "jnp.divide": ("1 / y", "-x / (y * y)"),
    "jnp.power": ("jnp.where(y == 0, 0, y * x ** (y - 1))", "jnp.log(x) * x**y"),
    "jnp.negative": ("-1",),
    "jnp.abs": ("jnp.sign(x)",),
    "jnp.sign": ("0",),
    "jnp.exp": ("jnp.exp(x)",),
    "jnp.expm1": ("jnp.exp(x)",),
    "jnp.log": ("1 / x",),
    "jnp.log1p": ("1 / (1 + x)",),
    "jnp.logaddexp": ("jax.nn.sigmoid(x - y)", "jax.nn.sigmoid(y - x)"),
    "jnp.sqrt": ("1 / (2 * jnp.sqrt(x))",),
    "jnp.hypot": ("x / jnp.hypot(x, y)", "y / jnp.hypot(x, y)"),
    "jnp.sin": ("jnp.cos(x)",),
    "jnp.cos": ("-jnp.sin(x)",),
    "jnp.arctan": ("1 / (1 + x * x)",),
    "jnp.sinh": ("jnp.cosh(x)",),
    "jnp.cosh": ("jnp.sinh(x)",),
    "jnp.tanh": ("1 / jnp.cosh(x) ** 2",),
    "jnp.arcsinh": ("1 / jnp.hypot(1, x)",),
    **{f"jnp.{name}": ("0", "0") for name in ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")},
    **{f"jnp.logical_{name}": ("0",) * count for name, count in (("and", 2), ("or", 2), ("not", 1))},
    "jax.scipy.special.expit": ("jax.scipy.special.expit(x) * jax.scipy.special.expit(-x)",),
    "jax.scipy.special.erf": ("2 * jnp.exp(-x * x) / jnp.sqrt(jnp.pi)",),
    "jax.scipy.special.erfc": ("-2 * jnp.exp(-x * x) / jnp.sqrt(jnp.pi)",),
    "jax.scipy.special.ndtr": ("jnp.exp(-x * x / 2) / jnp.sqrt(2 * jnp.pi)",),
    "jax.scipy.special.log_ndtr": (
        "jnp.exp(-x * x / 2 - jax.scipy.special.log_ndtr(x)) / jnp.sqrt(2 * jnp.pi)",
    ),
    "jax.scipy.special.gammaln": ("jax.scipy.special.digamma(x)",),
    "jax.scipy.special.digamma": ("jnp.nan",),
    "jax.scipy.special.xlogy": ("jnp.log(y)", "x / y"),
}  # fmt: skip
"""What NumPy and SciPy, or JAX, compute, and its partial derivatives in x and y."""

DEFINED: dict[str, str] = {
    "jnp.maximum": "jnp.where(x < y, y, x)",
    "jnp.minimum": "jnp.where(x > y, y, x)",
    "jnp.clip": "jnp.minimum(jnp.maximum(x, y), z)",
    "jnp.square": "x * x",
    "jnp.reciprocal": "1 / x",
    "jnp.log2": "jnp.log(x) / jnp.log(2)",
    "jnp.log10": "jnp.log(x) / jnp.log(10)",
    "jnp.exp2": "2**x",
    "jax.nn.sigmoid": "jax.scipy.special.expit(x)",
    "jax.nn.log_sigmoid": "-jnp.logaddexp(-x, 0)",
    "jax.nn.softplus": "jnp.logaddexp(x, 0)",
    "jax.nn.relu": "jnp.maximum(x, 0)",
    "jax.nn.silu": "x * jax.nn.sigmoid(x)",
    "jax.nn.squareplus": "(x + jnp.sqrt(x * x + y)) / 2",
}
"""What is computed by means of other functions."""

CONSTANTS = {"jnp.pi": np.pi, "jnp.e": np.e, "jnp.inf": np.inf, "jnp.nan": np.nan}

_CHOICE = "jnp.where"
_LIBRARIES = {"jnp", "jax"}
_ARITY = {name: len(partials) for name, partials in PARTIALS.items()} | {_CHOICE: 3}
_ARITY |= {name: len(set(re.findall(r"\b[xyz]\b", text))) for name, text in DEFINED.items()}
_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "jnp.add", ast.Sub: "jnp.subtract", ast.Mult: "jnp.multiply", ast.Div: "jnp.divide",
    ast.Pow: "jnp.power", ast.USub: "jnp.negative", ast.Lt: "jnp.less", ast.LtE: "jnp.less_equal",
    ast.Gt: "jnp.greater", ast.GtE: "jnp.greater_equal", ast.Eq: "jnp.equal", ast.NotEq: "jnp.not_equal",
    ast.BitAnd: "jnp.logical_and", ast.BitOr: "jnp.logical_or", ast.Invert: "jnp.logical_not",
}  # fmt: skip

Step: TypeAlias = tuple[Literal["number", "name", "store", "apply"], Any]
"""An operation on a stack: push a number or what a name stands for, name the last, or apply a function to the last."""

Dual: TypeAlias = tuple[Any, Any]
"""Numbers, and their derivatives in the score; None stands for 0."""


@dataclass(frozen=True)
class Elementwise(LinearLoss):
    """A custom loss that was read: its name, those of its score and target, and its operations."""

    title: str
    parameters: tuple[str, ...]
    steps: tuple[Step, ...]

    def values(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return the custom loss of every record."""
        result: FloatArray = self._computed(scores, targets, slope=None)[0]
        return result

    def residuals(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return the derivative of every record's custom loss in its score."""
        one = namespace(scores).ones_like(scores[..., 0])
        result: FloatArray = self._computed(scores, targets, slope=one)[1][..., None]
        return result

    def _computed(self, scores: FloatArray, targets: FloatArray, slope: FloatArray | None) -> Dual:
        """Return values and slopes of the custom loss."""
        xp, own = namespace(scores), scores[..., 0]
        given = dict(zip(self.parameters, ((own, slope), (beside(own, targets), None)), strict=True))
        with np.errstate(all="ignore"):  # a warning would be about a record
            value, found = _run(self.steps, given, xp)
        return xp.zeros_like(own) + value, xp.zeros_like(own) + (0.0 if found is None else found)


def read(source: str) -> Elementwise:
    """Read a custom loss without running it; PlanError, with what is wrong, if it is not of the language."""
    try:
        body = ast.parse(source).body
        if len(body) != 1 or not isinstance(body[0], ast.FunctionDef) or body[0].decorator_list:
            raise PlanError(
                "A custom loss must be a single `def` of a score and a target, without decorators, and nothing else."
            )
        return _function(body[0])
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise PlanError("The source of a custom loss is not Python, or nests too deeply.") from None


def _function(given: ast.FunctionDef) -> Elementwise:
    """Return the custom loss that a `def` states."""
    named = [one.arg for one in given.args.args]
    only = ast.arguments([], given.args.args, None, [], [], None, [])
    if len(named) != 2 or ast.dump(only) != ast.dump(given.args) or _LIBRARIES & set(named):
        raise PlanError("A custom loss takes a score and a target: two parameters, without defaults.")
    *lines, last = given.body
    if lines and isinstance(lines[0], ast.Expr) and isinstance(lines[0].value, ast.Constant):
        lines = lines[1:]  # a docstring
    known, steps = set(named), list[Step]()
    for line in lines:
        match line:
            case ast.Assign([ast.Name(name)], value) if name not in _LIBRARIES:
                steps += [*_steps(value, known), ("store", name)]
                known.add(name)
            case _:
                raise _refused(line)
    if not isinstance(last, ast.Return) or last.value is None:
        raise _refused(last)
    steps += _steps(last.value, known)
    if len(steps) > MOST_OPERATIONS:
        raise PlanError(f"A custom loss has at most {MOST_OPERATIONS} numbers, names and operations, not {len(steps)}.")
    return Elementwise(given.name, tuple(named), tuple(steps))


def _steps(expression: ast.AST, known: Set[str]) -> Iterator[Step]:
    """Yield the operations of an expression in the language of custom losses, in which these names are known."""
    match expression:
        case ast.Constant(int() | float() as number) if not isinstance(number, bool):
            yield "number", float(repr(number))  # an integer too long for a double is infinite
            return
        case ast.Name(name) if name in known:
            yield "name", name
            return
        case ast.Attribute() if (constant := ast.unparse(expression)) in CONSTANTS:
            yield "number", CONSTANTS[constant]
            return
        case ast.BinOp(left, operator, right) | ast.Compare(left, [operator], [right]):
            function, arguments = _OPERATORS.get(type(operator)), [left, right]
        case ast.UnaryOp(operator, operand):
            function, arguments = _OPERATORS.get(type(operator)), [operand]
        case ast.Call(ast.Attribute() as called, arguments, []):
            function = ast.unparse(called).replace("jax.numpy.", "jnp.")
        case _:
            raise _refused(expression)
    if function is None or _ARITY.get(function) != len(arguments):
        raise _refused(expression)
    for argument in arguments:
        yield from _steps(argument, known)
    yield "apply", function


def _refused(part: ast.AST) -> PlanError:
    """Return the error about a part of a source that is not of the language of custom losses."""
    shown = visible(ast.unparse(part).partition("\n")[0][:80])
    return PlanError(
        f"A custom loss may not contain `{shown}`: it has assignments to names and a return, of numbers, "
        "arithmetic, comparisons and the functions that docs/extending.md lists."
    )


@cache
def _program(expression: str) -> tuple[Step, ...]:
    """Return the operations of an expression of the tables."""
    return tuple(_steps(ast.parse(expression, mode="eval").body, set(_PLACES)))


def _run(steps: Sequence[Step], given: Mapping[str, Dual], xp: Any) -> Dual:
    """Return what a custom loss's operations leave, for what names stand for."""
    known, stack = dict(given), list[Dual]()
    for kind, what in steps:
        if kind == "number":
            stack.append((xp.asarray(what), None))
        elif kind == "name":
            stack.append(known[what])
        elif kind == "store":
            known[what] = stack.pop()
        else:
            stack[-_ARITY[what] :] = [_applied(what, stack[-_ARITY[what] :], xp)]
    return stack.pop()


def _applied(function: str, arguments: Sequence[Dual], xp: Any) -> Dual:
    """Return a function of a custom loss's numbers, by the rule of its table, and its derivative by the chain rule."""
    given = dict(zip(_PLACES, arguments, strict=False))
    if function in DEFINED:
        return _run(_program(DEFINED[function]), given, xp)
    values, slopes = zip(*arguments, strict=True)
    if function == _CHOICE:
        chosen = xp.where(*values)
        if slopes[1] is None and slopes[2] is None:
            return chosen, None
        return chosen, xp.where(values[0], *(0.0 if slope is None else slope for slope in slopes[1:]))
    package, _, name = function.rpartition(".")
    library = xp if package == "jnp" else import_module("scipy.special" if xp is np else package)
    found: Any = None
    for partial, slope in zip(PARTIALS[function], slopes, strict=True):
        if slope is not None and partial != "0":
            plain = {place: (value, None) for place, value in zip(_PLACES, values, strict=False)}
            product = _run(_program(partial), plain, xp)[0] * slope
            found = product if found is None else found + product
    result = getattr(library, name)(*values)
    return (xp.where(result, 1.0, 0.0) if result.dtype == bool else result), found
