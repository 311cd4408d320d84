"""NVFlare's privacy filters, called as its clients call them: what they say they spend, and whether they stop."""

from typing import Any

import numpy as np

from ringfence.protocol import FloatArray
from ringfence.research.markdown import table

WEIGHTS = (50, 500, 5_000)
MESSAGES = (1, 10, 41, 100)


def spent() -> str:
    """Return the table of SVTPrivacy's own sums, with its default settings."""
    lines = [(f"{weights:,}", *(f"{epsilon:.4g}" for epsilon in _sums(weights))) for weights in WEIGHTS]
    return table(["weights", *(f"{'1 message' if m == 1 else f'{m} messages'}" for m in MESSAGES)], lines)


def habits() -> str:
    """Return what the filters do after 100 messages, after a restart, and with the same update twice."""
    from nvflare.apis.event_type import EventType
    from nvflare.apis.fl_context import FLContext
    from nvflare.app_common.filters.percentile_privacy import PercentilePrivacy
    from nvflare.app_common.filters.svt_privacy import SVTPrivacy

    update = _update(50)
    svt = SVTPrivacy()
    for _ in range(100):
        _apply(svt, update)
    answers = bool(np.any(_apply(svt, update)))
    svt.handle_event(EventType.START_RUN, FLContext())
    percentile = PercentilePrivacy()
    other = update.copy()
    other[np.argmax(np.abs(other))] *= 1.5
    once, again, changed = (_apply(percentile, sent) for sent in (update, update, other))
    lines = [
        ("`SVTPrivacy` still answers after 100 messages", _yes(answers)),
        ("its sum after a new run began", f"{svt.get_privacy_spent():g}"),
        ("`PercentilePrivacy` sends the same for the same update", _yes(np.array_equal(once, again))),
        ("and something else for another update", _yes(not np.array_equal(once, changed))),
    ]
    return table(["asked of the filters", "found"], lines, texts=2)


def _sums(weights: int) -> list[float]:
    from nvflare.app_common.filters.svt_privacy import SVTPrivacy

    update, svt, sums = _update(weights), SVTPrivacy(), []
    for message in range(1, max(MESSAGES) + 1):
        _apply(svt, update)
        if message in MESSAGES:
            sums.append(float(svt.get_privacy_spent()))
    return sums


def _update(weights: int) -> FloatArray:
    return np.random.default_rng(1).normal(0, 1e-4, weights)


def _apply(chosen: Any, values: FloatArray) -> FloatArray:
    from nvflare.apis.dxo import DXO, DataKind
    from nvflare.apis.fl_context import FLContext
    from nvflare.apis.shareable import Shareable

    filtered = chosen.process_dxo(DXO(DataKind.WEIGHT_DIFF, {"w": values.copy()}), Shareable(), FLContext())
    result: FloatArray = filtered.data["w"]
    return result


def _yes(it_does: bool) -> str:
    return "yes" if it_does else "no"
