"""Metrics as a table of pandas and as a picture of matplotlib, each imported only when it is asked for."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ringfence.errors import OutputError

if TYPE_CHECKING:
    from ringfence.estimates.metrics import Metric, ModelMetrics


def metrics_frame(metrics: "tuple[Metric, ...]") -> Any:
    """Return a table with a row per metric; unknown numbers are NaN, and `note` says why."""
    _require("pandas", "`to_frame`")
    import pandas as pd

    index = pd.Index([metric.name for metric in metrics], name="metric")
    numbers = {name: [getattr(metric, name) for metric in metrics] for name in ("value", "low", "high")}
    notes = [metric.unknown or metric.note for metric in metrics]
    return pd.DataFrame(numbers, index, dtype=float).assign(note=notes)


def plot_metrics(
    title: str, silos: "Mapping[str, ModelMetrics]", names: tuple[str, ...], guesses: Mapping[str, float]
) -> Any:
    """Draw each named metric on axes of its own, a dot and an interval per silo, and dashed what guessing gives."""
    _require("matplotlib", "`plot`")
    import matplotlib.pyplot as plt

    height = len(names) * (0.9 + 0.25 * len(silos))
    figure, axes = plt.subplots(len(names), figsize=(6.4, height), squeeze=False, layout="constrained")
    figure.suptitle(title)
    for name, ax in zip(names, axes[:, 0], strict=True):
        ax.set_title(f"{name} (dashed: guessing)" if name in guesses else name)
        ax.set_yticks(range(len(silos)), list(silos))
        ax.set_ylim(len(silos) - 0.5, -0.5)
        for place, metrics in enumerate(silos.values()):
            found = next((metric for metric in metrics.metrics if metric.name == name), None)
            if found is not None and found.value is not None:
                ax.plot([found.low, found.high], [place, place], color="C0")
                ax.plot([found.value], [place], "o", color="C0")
        if name in guesses:
            ax.axvline(guesses[name], color="grey", linestyle="--")
    return axes[:, 0]


def _require(package: str, what: str) -> None:
    """Refuse a table or a picture of metrics if the package that makes it is not installed."""
    if find_spec(package) is None:
        raise OutputError(f"{what} needs {package}, which is not installed: pip install {package}.")
