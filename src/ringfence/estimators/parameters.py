"""The estimators' parameters, and how constructors and docstrings are made from their declarations.

An estimator's constructor is the one that a dataclass makes of the declared parameters: it takes them by name and does
nothing but keep them. scikit-learn reads them off its signature (`get_params`, `clone`), and so do help and type
checkers; help shows annotations as they are written in the source. Docstrings have NumPy's layout.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, dataclass_transform

from numpy.typing import ArrayLike

from ringfence.errors import EstimatorError
from ringfence.planning.request import HELD_OUT
from ringfence.protocol import PersonRule, Schema
from ringfence.silo.ledger.budget import Budget

if TYPE_CHECKING:  # scikit-learn ships no types, and with a base of no type a constructor would take any keyword

    class BaseEstimator:
        """With whichever attributes scikit-learn adds."""

        def __getattr__(self, name: str) -> Any: ...
        def __sklearn_tags__(self) -> Any: ...
        def __sklearn_clone__(self) -> Any: ...
        def set_params(self, **parameters: Any) -> Any: ...

    class ClassifierMixin:
        """Adds `score`, as RegressorMixin does."""

        def score(self, X: Any, y: Any, sample_weight: Any = None) -> Any: ...

    RegressorMixin = ClassifierMixin
else:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin  # noqa: F401 - for the estimators

PerSilo = ArrayLike | Mapping[Any, float]
"""One number for all silos, one for each in their order, or a mapping from silo to number."""

Interval = tuple[ArrayLike, ArrayLike]
"""A lower and an upper bound: two numbers, or two sequences of them."""

SECTIONS = ("Parameters", "Attributes", "Notes", "Examples")

_HEADING = re.compile(r"^(?P<name>\w+)\n-{4,}\n", re.MULTILINE)
_ENTRY = re.compile(r"^(?=[^\s].* : )", re.MULTILINE)

Estimator = TypeVar("Estimator", bound=type)


@dataclass(kw_only=True, eq=False, repr=False)  # scikit-learn compares and shows estimators
class Parameters:
    """Those of every estimator."""

    epsilon: PerSilo = 1.0
    delta: PerSilo | None = None
    bounds: Interval | Mapping[str, Interval] | None = None
    schema: Schema | str | Path | None = None
    algorithm: str = "auto"
    max_rounds: int | None = None
    ridge: float = 0.0
    lasso: float = 0.0
    clip: float | None = None
    sample_weight_bound: float | None = None
    fit_intercept: bool = True
    person_rule: PersonRule | None = None
    rows_per_person: int | None = None
    held_out: float | None = HELD_OUT
    figures: str | Sequence[str] | None = None
    cap: Budget | tuple[float, float] | None = None
    ledgers: str | Path | None = None
    equal_rows: str = "copies"
    new_beginning: str = ""
    unusual_budget: bool = False
    anyway: bool = False


@dataclass_transform(kw_only_default=True, eq_default=False)
def estimator_class(cls: Estimator) -> Estimator:
    """Make the constructor from the declared parameters, and join the docstring with those of its bases.

    Help then shows every parameter and attribute. What a base says above its first heading is not inherited.
    """
    refuse_seeds(dataclass(kw_only=True, eq=False, repr=False)(cls))
    texts = [base.__doc__ for base in reversed(cls.__mro__) if base.__module__.startswith("ringfence")]
    cls.__doc__ = joined_docstring([inspect.cleandoc(text) for text in texts if text])
    return cls


def refuse_seeds(cls: Estimator) -> Estimator:
    """Let an estimator's constructor say why it takes no `random_state`."""
    constructor = cls.__init__  # type: ignore[misc]

    @wraps(constructor)
    def refusing(self: Any, *args: Any, **parameters: Any) -> None:
        """Store the parameters, unless one of them is a seed."""
        _require_no_seed(parameters)
        constructor(self, *args, **parameters)

    cls.__init__ = refusing  # type: ignore[misc]
    return cls


class Seedless(BaseEstimator):
    """An estimator whose `set_params` says why there is no `random_state`."""

    def set_params(self, **parameters: Any) -> Self:
        """Set parameters of the estimator, by name."""
        _require_no_seed(parameters)
        super().set_params(**parameters)
        return self


def _require_no_seed(parameters: Mapping[str, Any]) -> None:
    """Refuse a `random_state` for an estimator."""
    if "random_state" in parameters:
        raise EstimatorError(
            "There is no `random_state`: privacy rests on noise that nobody can repeat, and whoever knows a seed can "
            "subtract the noise that it makes. Each fit draws its noise from the operating system, so two fits differ. "
            "Remove the argument; to keep a fitted model, save it: model_.save(path)."
        )


def docstring_sections(text: str) -> dict[str, str]:
    """Return the sections of an estimator's docstring by heading; the words above the first heading by ''."""
    first, *rest = _HEADING.split(text)
    return {"": first.strip()} | {name: words.strip("\n") for name, words in zip(rest[::2], rest[1::2], strict=True)}


def section_entries(section: str) -> dict[str, str]:
    """Return the entries `names : kind` of a docstring's section, with their descriptions, by their names."""
    return {entry.partition(" : ")[0]: entry.strip("\n") for entry in _ENTRY.split(section) if " : " in entry}


def joined_docstring(texts: Iterable[str]) -> str:
    """Join docstrings, the most general first; a later entry replaces a former one of the same name."""
    entries: dict[str, dict[str, str]] = {"Parameters": {}, "Attributes": {}}
    notes: list[str] = []
    last: dict[str, str] = {}
    for text in texts:
        last = docstring_sections(text)
        for heading in entries:
            entries[heading] |= section_entries(last.get(heading, ""))
        notes += [last["Notes"]] if "Notes" in last else []
    joined = {heading: "\n".join(found.values()) for heading, found in entries.items()}
    return docstring_of(last | joined | {"Notes": "\n\n".join(notes)})


def docstring_of(sections: Mapping[str, str]) -> str:
    """Return an estimator's docstring with these sections; empty ones are left out."""
    headed = [f"{name}\n{'-' * len(name)}\n{sections[name]}" for name in SECTIONS if sections.get(name)]
    return "\n\n".join([sections[""], *headed])
