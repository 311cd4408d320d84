"""The one style of all pages: one column of text, at home on a phone, on a screen and on paper."""

STYLE = """
:root { --ink: #1c2430; --soft: #55606e; --line: #d5dae1; --wash: #f5f7fa; --blue: #00588a; --warn: #8a3b00; }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: #fff; color: var(--ink);
  font: 1.0625rem/1.6 "Source Serif 4", Charter, "Bitstream Charter", Georgia, "DejaVu Serif", serif; }
main { max-width: 44rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; overflow-wrap: break-word; }
h1, h2, h3, th, td, caption, figcaption, button, input, textarea, label, .note, .facts, .kicker {
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
img { display: block; max-width: 100%; height: auto; }
pre { overflow-x: auto; background: var(--wash); border-radius: 6px; padding: 0.8rem 1rem; }
figure { margin: 0 0 1.75rem; }
figure svg, figure img { display: block; width: 100%; height: auto; max-width: 36rem; }
figcaption { color: var(--soft); font-size: 0.88rem; line-height: 1.5; margin-top: 0.5rem; max-width: 36rem; }
svg text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif; }
footer { margin-top: 3.5rem; padding-top: 0.9rem; border-top: 1px solid var(--line); color: var(--soft);
  font-size: 0.9rem; }
a { color: var(--blue); }
:focus-visible { outline: 3px solid #2f81c7; outline-offset: 2px; }
form { margin: 0 0 1rem; }
.actions { display: flex; flex-wrap: wrap; gap: 0.6rem; align-items: center; }
.actions form, td form { margin: 0; }

label { display: block; font-size: 0.9rem; font-weight: 600; margin-bottom: 0.3rem; }
input, textarea { width: 100%; font-size: 1rem; padding: 0.55rem 0.65rem; border: 1px solid #7b8694; border-radius: 5px;
  margin-bottom: 0.7rem; }
textarea { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: 0.85rem; min-height: 7rem; }
button { font-size: 0.95rem; font-weight: 600; padding: 0.55rem 1rem; border-radius: 5px; border: 1px solid #7b8694;
  background: #fff; color: var(--ink); cursor: pointer; }
button.main { background: var(--blue); border-color: var(--blue); color: #fff; }
button.danger { background: #a3260f; border-color: #a3260f; color: #fff; }
span.scroll { display: block; }
@media (max-width: 40rem) { .picture img { max-width: none; width: 40rem; } }
@media (max-width: 30rem) {
  main { padding-top: 1.5rem; }
  h1 { font-size: 1.55rem; }
  th, td { padding-right: 0.65rem; }
}
@media print {
  @page { margin: 18mm 16mm; }
  body { font-size: 10.5pt; }
  main { max-width: none; padding: 0; }
  h2, h3, caption { break-after: avoid; }
  figure, tr, .note, .facts { break-inside: avoid; }
  .scroll { overflow: visible; }
  button, form { display: none; }
  .facts div, .note { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""
