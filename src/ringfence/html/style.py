"""The one style of all pages: one column of text, at home on a phone, on a screen, in the dark and on paper.

Each colour has one name and two values, for light and for dark. Charts carry the light values in their files, and
classes that a page's style colours (`ringfence.html.charts`).
"""

from collections.abc import Mapping

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
    named = {**colours, **{f"series-{number}": colour for number, colour in enumerate(series)}}
    return " ".join(f"--{name}: {colour};" for name, colour in named.items())


def _series_rules() -> str:
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

_LAYOUT = """
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 1.0625rem/1.6 "Source Serif 4", Charter, "Bitstream Charter", Georgia, "DejaVu Serif", serif; }
main { max-width: 44rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; overflow-wrap: break-word; }
h1, h2, h3, th, td, caption, figcaption, button, input, textarea, label, summary, .note, .facts, .kicker, .hint {
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.9rem; line-height: 1.2; letter-spacing: -0.01em; margin: 0 0 0.75rem; }
h2 { font-size: 1.25rem; line-height: 1.3; margin: 3rem 0 0.75rem; padding-top: 0.9rem;
  border-top: 1px solid var(--line); }
h3 { font-size: 1.02rem; margin: 1.5rem 0 0.4rem; }
p, ul { margin: 0 0 1rem; }
ul { padding-left: 1.2rem; }
li { margin-bottom: 0.3rem; }
code { font-size: 0.85em; overflow-wrap: anywhere; }
.kicker { color: var(--soft); font-size: 0.85rem; margin-bottom: 0.35rem; }
.lead { font-size: 1.15rem; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: 0.75rem; padding: 0;
  margin: 1.75rem 0; }
.facts div { background: var(--wash); border-radius: 6px; padding: 0.7rem 0.9rem; }
.facts dt { color: var(--soft); font-size: 0.8rem; line-height: 1.3; }
.facts dd { margin: 0.15rem 0 0; font-size: 1.3rem; line-height: 1.3; font-variant-numeric: tabular-nums; }
.note { font-size: 0.95rem; line-height: 1.5; border-left: 4px solid var(--blue); background: var(--wash);
  border-radius: 0 6px 6px 0; padding: 0.7rem 0.95rem; margin: 0 0 1.25rem; }
.warning { border-color: var(--warn); }
.warning strong { color: var(--warn); }
.scroll { overflow-x: auto; margin: 0 0 1.5rem; }
table { border-collapse: collapse; width: 100%; font-size: 0.9rem; line-height: 1.4; }
caption { text-align: left; color: var(--soft); font-size: 0.85rem; padding: 0 0 0.4rem; }
th, td { text-align: left; padding: 0.4rem 0.9rem 0.4rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
thead th { color: var(--soft); font-weight: 600; }
tbody th { font-weight: 500; }
td { font-variant-numeric: tabular-nums; }
td.number, time { white-space: nowrap; }
img { display: block; max-width: 100%; height: auto; background: #fff; }
pre { overflow-x: auto; background: var(--wash); border-radius: 6px; padding: 0.8rem 1rem; }
figure { margin: 0 0 1.75rem; }
figure svg, figure img { display: block; width: 100%; height: auto; max-width: 36rem; }
figcaption { color: var(--soft); font-size: 0.88rem; line-height: 1.5; margin-top: 0.5rem; max-width: 36rem; }
svg text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif; }
footer { margin-top: 3.5rem; padding-top: 0.9rem; border-top: 1px solid var(--line); color: var(--soft);
  font-size: 0.9rem; }
a { color: var(--blue); }
:focus-visible { outline: 3px solid var(--focus); outline-offset: 2px; }
form { margin: 0 0 1rem; }
.actions { display: flex; flex-wrap: wrap; gap: 0.6rem; align-items: center; }
.actions form, td form { margin: 0; }
nav.actions { margin-bottom: 1.25rem; }
form.decision { flex-basis: 100%; }
.fields { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); column-gap: 1rem;
  align-items: end; }
.hint { color: var(--soft); font-size: 0.88rem; line-height: 1.45; margin: 0 0 0.8rem; }
details { margin: 0 0 1rem; border: 1px solid var(--line); border-radius: 6px; padding: 0.65rem 0.95rem; }
details[open] > summary { margin-bottom: 0.8rem; }
summary { cursor: pointer; font-weight: 600; font-size: 0.95rem; padding: 0.2rem 0; }

label { display: block; font-size: 0.9rem; font-weight: 600; margin-bottom: 0.3rem; }
input, textarea { width: 100%; font-size: 1rem; padding: 0.55rem 0.65rem; border: 1px solid var(--edge);
  border-radius: 5px; margin-bottom: 0.7rem; background: var(--paper); color: var(--ink); }
textarea { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: 0.85rem; min-height: 7rem; }
button { font-size: 0.95rem; font-weight: 600; padding: 0.55rem 1rem; border-radius: 5px; border: 1px solid var(--edge);
  background: var(--paper); color: var(--ink); cursor: pointer; min-height: 2.5rem; }
button.main { background: var(--blue); border-color: var(--blue); color: var(--on-blue); }
button.danger { background: var(--danger); border-color: var(--danger); color: var(--on-danger); }
span.scroll { display: block; }
"""

_NARROW = """
@media screen and (max-width: 40rem) {
  .picture img { max-width: none; width: 40rem; }
  .fold { overflow-x: visible; }
  .fold table, .fold caption, .fold tbody, .fold tr, .fold th, .fold td { display: block; }
  .fold thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  .fold tr { border-top: 1px solid var(--line); padding: 0.55rem 0; }
  .fold tbody th, .fold tbody td { border: 0; padding: 0.12rem 0; }
  .fold tbody th { font-weight: 600; overflow-wrap: anywhere; }
  .fold tbody td { overflow-wrap: anywhere; white-space: normal; }
  .fold td[data-label] { display: grid; grid-template-columns: minmax(0, 2fr) minmax(0, 3fr); column-gap: 0.9rem; }
  .fold td[data-label]::before { content: attr(data-label); content: attr(data-label) / ""; color: var(--soft); }
  .fold td:empty { display: none; }
}
@media (max-width: 30rem) {
  main { padding: 1.5rem 1rem 3rem; }
  h1 { font-size: 1.55rem; }
  th, td { padding-right: 0.65rem; }
}
"""

_PRINT = """
@media print {
  @page { margin: 18mm 16mm; }
  body { font-size: 10.5pt; }
  main { max-width: none; padding: 0; }
  h2, h3, caption { break-after: avoid; }
  figure, tr, .note, .facts { break-inside: avoid; }
  .scroll { overflow: visible; }
  button, form, details { display: none; }
  .facts div, .note { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""

STYLE = _COLOURS + _LAYOUT + _NARROW + _PRINT
