"""Your own convex loss, in arithmetic on a record's score and target.

    from ringfence import custom_loss

    def log_cosh(score, target):
        return jnp.log(jnp.cosh(score - target))

    loss = custom_loss(log_cosh, largest_score=6.0)

The source is part of the plan. A silo computes it only after its operator has read and installed it.
"""

import inspect
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

from pydantic import ValidationError

from ringfence.errors import PlanError
from ringfence.protocol import Custom, explain
from ringfence.protocol.losses.custom import INSTALLED, digest_of, examined
from ringfence.protocol.losses.elementwise import read


def custom_loss(function: Callable[[Any, Any], Any], *, largest_score: float, largest_target: float = 1.0) -> Custom:
    """Return your own convex loss of a record's score and scaled target, written with `jax.numpy` as `jnp`.

    The function is a `def` of two numbers, in a file, which only assigns and returns what arithmetic, comparisons and
    elementwise functions give (`DEFINED` and `PARTIALS` of `protocol.losses.elementwise`). Its source is part of the
    plan, and each silo's operator must install it. The score already includes offsets; weights are applied to the loss.
    It is refused, with a PlanError, if it contains anything else, or is not finite, not convex or not smooth for scores
    and targets up to these sizes, as far as a grid can show; beyond them no plan is made.
    """
    try:
        source = dedent(inspect.getsource(function))
    except (OSError, TypeError):
        raise PlanError("The source of this custom loss cannot be found: define it with `def` in a file.") from None
    title, digest = read(source).title, digest_of(source)
    score, target = float(largest_score), float(largest_target)
    try:
        lipschitz, smoothness = examined(source, score, target)
        made = Custom(
            title=title,
            source=source,
            digest=digest,
            largest_score=score,
            largest_target=target,
            lipschitz=lipschitz,
            smoothness=smoothness,
        )
        INSTALLED.add(digest)
        return made
    except PlanError as refused:
        problem = f"{refused}. Choose a convex and smooth one, or narrower ranges."
    except ValidationError as refused:
        problem = f"cannot be part of a plan: {explain(refused)}."
    raise PlanError(f"The custom loss '{title}' {problem}")


def install_loss(path: Path) -> str:
    """Allow this process to compute the loss in a file that its operator has read, and return the source's digest.

    The file must hold exactly the source in the plan, byte for byte. Read it first: it decides what a model learns.
    """
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise PlanError(f"The loss in {path} is not a readable text file.") from None
    read(source)
    INSTALLED.add(digest := digest_of(source))
    return digest
