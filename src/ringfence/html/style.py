"""The style of all pages: `style.css`, and colours with one name and two values, for light and for dark.

Charts carry the light values in their files, and classes that a page's style colours (`ringfence.html.charts`).
"""

from collections.abc import Mapping
from pathlib import Path

LIGHT = {
    "paper": "#ffffff", "wash": "#f5f7fa", "ink": "#1c2430", "soft": "#55606e", "line": "#d5dae1", "edge": "#7b8694",
    "blue": "#00588a", "on-blue": "#ffffff", "warn": "#8a3b00", "danger": "#a3260f", "on-danger": "#ffffff",
    "focus": "#1f6fb2", "grid": "#e1e5ea",
}  # fmt: skip
DARK = {
    "paper": "#14181f", "wash": "#1e242e", "ink": "#e4e8ee", "soft": "#a9b3c0", "line": "#363f4c", "edge": "#8a95a5",
    "blue": "#7cc0f0", "on-blue": "#0b1620", "warn": "#f0a36b", "danger": "#e8785f", "on-danger": "#0b1620",
    "focus": "#7cc0f0", "grid": "#303844",
}  # fmt: skip

SERIES = ("#0072b2", "#c65300", "#00805c", "#b4558c", "#9a6a00", "#3f88bc", "#000000", "#757575")
DARK_SERIES = ("#56b4e9", "#f28e4b", "#2dbe94", "#e29bc3", "#e9b44c", "#a5d4f2", "#ffffff", "#a3a9b2")
"""Lines and bars: Okabe and Ito's hues, which colour-blind readers tell apart, each at least 3:1 against its paper."""


def _declared(colours: Mapping[str, str], series: tuple[str, ...]) -> str:
    """Return CSS variables for the colours of a page and its charts."""
    named = {**colours, **{f"series-{number}": colour for number, colour in enumerate(series)}}
    return " ".join(f"--{name}: {colour};" for name, colour in named.items())


def _series_rules() -> str:
    """Return the CSS rules that colour the series of charts."""
    return "\n".join(
        f"svg .stroke-{number} {{ stroke: var(--series-{number}); }} svg .fill-{number} "
        f"{{ fill: var(--series-{number}); }}"
        for number in range(len(SERIES))
    )


_COLOURS = f"""
:root {{ color-scheme: light dark; {_declared(LIGHT, SERIES)} }}
@media screen and (prefers-color-scheme: dark) {{ :root {{ {_declared(DARK, DARK_SERIES)} }} }}
svg .paper {{ fill: none; }}
svg .ink {{ fill: var(--ink); }}
svg .soft {{ fill: var(--soft); }}
svg .ink-line {{ stroke: var(--ink); }}
svg .soft-line {{ stroke: var(--soft); }}
svg .grid {{ stroke: var(--grid); }}
{_series_rules()}
"""

STYLE = _COLOURS + Path(__file__).with_name("style.css").read_text(encoding="utf-8")
