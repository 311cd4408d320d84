"""scikit-learn's cross-validations and searches, which fit the same records many times, need a cap.

They replace a fit that raises by a score of nan and go on, so a refusal by `fit` would come last, inside a message of
theirs, after other fits have charged the records. Each of them begins by cloning the estimator, outside of what they
catch: that is where we look at who calls, and refuse.
"""

import inspect
from collections.abc import Iterator
from types import FrameType
from typing import Any

from joblib import effective_n_jobs  # type: ignore[import-untyped]  # joblib ships no types

from ringfence.errors import ApprovalError

_TOOLS = {"sklearn.model_selection._validation", "sklearn.model_selection._search"}


def require_cap_for_repeated_fits(cap: Any) -> None:
    """Refuse to be cloned for many fits on the same records, unless a cap limits all of them and its refusal ends them.

    A process counts its own fits, so those of other processes would escape the cap.
    """
    tools = list(_tools_around())
    if tools and (cap is None or any(_swallows_errors(frame) or _uses_processes(frame) for frame in tools)):
        raise ApprovalError(
            f"{_name(tools[-1])} would fit the same records several times, and they pay epsilon for each fit. Nothing "
            "was charged. One `fit` measures the model on held-out rows: see `evaluation_` and `score_`. To compare "
            "settings for the price of one fit, use ringfence.estimators.FederatedSearch. To let the records pay for "
            "every fit, limit what all fits may cost together, with cap=(epsilon, delta). Let scikit-learn stay in "
            "this process, whose fits the cap counts (n_jobs=1), and end at the first refused fit "
            "(error_score='raise')."
        )


def _tools_around() -> Iterator[FrameType]:
    """Yield the calls of scikit-learn's cross-validations and searches that we are in, from the innermost out."""
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_globals.get("__name__") in _TOOLS:
            yield frame
        frame = frame.f_back


def _swallows_errors(frame: FrameType) -> bool:
    """Return whether one of scikit-learn's tools goes on after a fit that raises; those without a choice do not."""
    found = _argument(frame, "error_score", "raise")
    return not (isinstance(found, str) and found == "raise")


def _uses_processes(frame: FrameType) -> bool:
    """Return whether one of scikit-learn's tools spreads its fits over several jobs."""
    jobs: int = effective_n_jobs(_argument(frame, "n_jobs", None))
    return jobs > 1


def _argument(frame: FrameType, name: str, default: Any) -> Any:
    """Return an argument of a function of scikit-learn, or of the object whose method it is."""
    return frame.f_locals.get(name, getattr(frame.f_locals.get("self"), name, default))


def _name(frame: FrameType) -> str:
    """Return the name of a function of scikit-learn, or of the class whose method it is."""
    return type(frame.f_locals["self"]).__name__ if "self" in frame.f_locals else frame.f_code.co_name
