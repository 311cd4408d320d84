"""Your own convex loss, differentiated by JAX.

    from ringfence import custom_loss

    def log_cosh(score, target):
        return jnp.log(jnp.cosh(score - target))

    loss = custom_loss(log_cosh, largest_score=6.0)

The source is part of the plan. A silo computes it only after its operator has read and installed it.
"""

import __future__

import ast
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
from pydantic import ValidationError

from ringfence.errors import PlanError, require_extra
from ringfence.protocol import Custom, FloatArray, explain
from ringfence.protocol.losses.base import LinearLoss
from ringfence.protocol.losses.custom import INSTALLED, digest_of, examined


def custom_loss(function: Callable[[Any, Any], Any], *, largest_score: float, largest_target: float = 1.0) -> Custom:
    """Return your own convex loss of a record's score and scaled target, written with `jax.numpy` as `jnp`.

    The function is a `def` of two numbers, at the top of a file, which uses nothing but them, `jnp` and `jax`: its
    source is part of the plan, and each silo's operator must install it. The score already includes offsets; weights
    are applied to the loss. It is refused, with a PlanError, if it raises, is not finite, or is not convex or not
    smooth for scores and targets up to these sizes, as far as a grid can show; beyond them no plan is made.
    """
    try:
        source = dedent(inspect.getsource(function))
    except (OSError, TypeError):
        raise PlanError("The source of this custom loss cannot be found: define it with `def` in a file.") from None
    title, digest = _derived(source), digest_of(source)
    score, target = float(largest_score), float(largest_target)
    try:
        lipschitz, smoothness = examined(digest, score, target)
        return Custom(
            title=title,
            source=source,
            digest=digest,
            largest_score=score,
            largest_target=target,
            lipschitz=lipschitz,
            smoothness=smoothness,
        )
    except PlanError as refused:
        problem = f"{refused}. Choose a convex and smooth one, or narrower ranges."
    except ValidationError as refused:
        problem = f"cannot be part of a plan: {explain(refused)}."
    INSTALLED.pop(digest)
    raise PlanError(f"The custom loss '{title}' {problem}")


def install_loss(path: Path) -> str:
    """Allow this process to compute the loss in a file that its operator has read, and return the source's digest.

    The file must hold exactly the source in the plan, byte for byte. It will be run: install nothing that you have not
    read.
    """
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise PlanError(f"The loss in {path} is not a readable text file.") from None
    _derived(source)
    return digest_of(source)


@dataclass(frozen=True)
class _Derived(LinearLoss):
    """A function of one score and target, over records and configurations, with its derivative by JAX."""

    function: Callable[[Any, Any], Any]

    def values(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return the custom loss of every record."""
        result: FloatArray = self._over(self.function, scores[..., 0], targets)
        return result

    def residuals(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return the custom loss's derivative in each record's score, by JAX."""
        import jax

        result: FloatArray = self._over(jax.grad(self.function), scores[..., 0], targets)[..., None]
        return result

    @staticmethod
    def _over(function: Callable[[Any, Any], Any], scores: Any, targets: Any) -> Any:
        """Apply a custom loss, or its derivative, to every score: JAX's arrays as they are, NumPy's in 64 bits."""
        import jax
        import jax.numpy as jnp

        def each(scores: Any, targets: Any) -> Any:
            """Apply the custom loss to all scores at once, each with its record's target."""
            beside = jnp.broadcast_to(targets.reshape(-1, *[1] * (scores.ndim - 1)), scores.shape)
            return jax.vmap(function)(scores.reshape(-1), beside.reshape(-1)).reshape(scores.shape)

        if not isinstance(scores, np.ndarray):
            return each(scores, targets)
        with jax.enable_x64(True):
            return np.asarray(each(jnp.asarray(scores), jnp.asarray(targets)), dtype=np.float64)


def _derived(source: str) -> str:
    """Run a custom loss's source, which holds one function; install it, and return its name."""
    require_extra("simulation", "A custom loss", "jax", error=PlanError)
    import jax
    import jax.numpy as jnp

    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise PlanError("The source of a custom loss is not Python.") from None
    functions = [part for part in body if isinstance(part, ast.FunctionDef)]
    if len(functions) != 1 or len(body) != 1 or functions[0].decorator_list:
        raise PlanError(
            "A custom loss must be a single `def` of a score and a target, without decorators, and nothing else."
        )
    names: dict[str, Any] = {"jax": jax, "jnp": jnp}
    code = compile(source, "<custom loss>", "exec", flags=__future__.annotations.compiler_flag)
    try:
        exec(code, names)  # noqa: S102 (the author's own, or installed by the operator)
    except Exception as raised:
        raise PlanError(f"The source of a custom loss raises {type(raised).__name__}: {raised}") from None
    INSTALLED[digest_of(source)] = _Derived(names[functions[0].name])
    return functions[0].name
