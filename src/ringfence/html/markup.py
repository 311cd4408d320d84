"""HTML from Python values, with everything escaped that is not HTML already.

`Html` is the only type whose text is taken as it is, and `tag` is the only way to make one from other text, so a name
that another party chose stays text wherever it is put, and text that can be seen (`errors.visible`). Pages
carry no script and no reference to anything outside themselves, and say so to the browser in a content security policy.
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TypeAlias

from ringfence.errors import visible_lines
from ringfence.html.style import STYLE

Value: TypeAlias = str | int | float | None


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


_VOID = frozenset({"br", "hr", "img", "input", "link", "meta"})


def tag(element: str, /, *children: Value, **attributes: Value | bool) -> Html:
    """Return an HTML element. Children that are not `Html` are escaped; None and False leave one out.

    An underscore in an attribute's name stands for a hyphen, and one at its end for nothing: `class_`, `aria_label`.
    """
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{_escaped(str(value))}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if element in _VOID:
        return Html(f"<{element}{written}>")
    return Html(f"<{element}{written}>{together(*children)}</{element}>")


def together(*children: Value) -> Html:
    """Return the children one after the other as HTML, escaped where they are not HTML."""
    return Html("".join(child if isinstance(child, Html) else _escaped(_value_text(child)) for child in children))


def table(caption: str, header: Sequence[str], rows: Iterable[Sequence[Value]]) -> Html:
    """Return an HTML table whose first column names the row; if its header is all empty, it has none.

    On a phone every row folds into a block, each cell beside its column's name. Elsewhere a table that is too wide
    scrolls by itself. Roles are spelt out because browsers take them away from tables that are not laid out as such.
    """
    body = [
        tag(
            "tr",
            tag("th", row[0], scope="row", role="rowheader"),
            *(
                tag("td", cell, class_=_cell_class(cell), role="cell", data_label=name or None)
                for name, cell in zip(header[1:], row[1:], strict=True)
            ),
            role="row",
        )
        for row in rows
    ]
    made = tag(
        "table",
        tag("caption", caption),
        _table_head(header) if any(header) else None,
        tag("tbody", *body, role="rowgroup"),
        role="table",
    )
    # What scrolls must be reachable by keyboard, and have a name.
    return tag("div", made, class_="scroll fold", tabindex=0, role="group", aria_label=caption)


def _table_head(header: Sequence[str]) -> Html:
    """Return the header row of an HTML table."""
    named = (
        tag("th", name, scope="col", role="columnheader") if name else tag("td", role="cell")  # no header is empty
        for name in header
    )
    return tag("thead", tag("tr", *named, role="row"), role="rowgroup")


def bullets(*lines: Value) -> Html:
    """Return an HTML list."""
    return tag("ul", *(tag("li", line) for line in lines))


def paragraph(*children: Value, **attributes: Value | bool) -> Html:
    """Return an HTML paragraph."""
    return tag("p", *children, **attributes)


def note(*children: Value, warning: bool = False) -> Html:
    """Return an HTML paragraph that stands out."""
    return paragraph(*children, class_="note warning" if warning else "note")


def not_private(*children: Value) -> Html:
    """Return the warning above anything that was measured on records without noise."""
    return note(tag("strong", "NOT PRIVATE: "), *children, warning=True)


def key_numbers(pairs: Mapping[str, Value]) -> Html:
    """Return the HTML of a page's few most important numbers, by their names."""
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs.items()), class_="facts")


def section(heading: str, *children: Value, class_: str | None = None) -> Html:
    """Return a part of an HTML page under its heading."""
    return tag("section", tag("h2", heading), *children, class_=class_)


def page_header(kicker: str, title: str) -> Html:
    """Return a page's title, below a line that says what kind of page it is."""
    return tag("header", paragraph(kicker, class_="kicker"), tag("h1", title))


def minute(time: str) -> Html:
    """Return a time in ISO format, to the minute, for an HTML page."""
    return tag("time", time[:16].replace("T", " "))


def outline(text: str) -> Html:
    """Return the HTML of a plain-text outline: headings at the margin, their content indented.

    Blocks are separated by empty lines. The first one under a heading is a list, an item per line; others are prose,
    with a list where lines begin with a dash. Lines that are indented further go on with the one before.
    """
    blocks = [block.split("\n") for block in readable(text).split("\n\n")]
    parts: list[Html] = []
    begins_list = False
    for place, block in enumerate(blocks):
        if len(block) == 1 and not block[0].startswith(" ") and place + 1 < len(blocks):
            parts.append(tag("h3", block[0]))
            begins_list = True
        else:
            parts += _outline_block(block, is_list=begins_list)
            begins_list = False
    return together(*parts)


def _outline_block(lines: Sequence[str], *, is_list: bool) -> list[Html]:
    """Return the HTML of an outline's block of indented lines: paragraphs and lists."""
    margin = len(lines[0]) - len(lines[0].lstrip())
    prose: list[str] = []
    items: list[str] = []
    for line in lines:
        words = line.strip()
        if words.startswith("- ") or (is_list and len(line) - len(line.lstrip()) <= margin):
            items.append(words.removeprefix("- "))
        elif items:
            items[-1] += f" {words}"
        else:
            prose.append(words)
    return [*([tag("p", " ".join(prose))] if prose else []), *([bullets(*items)] if items else [])]


STYLE_DIGEST = "sha256-" + base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = f"default-src 'none'; style-src '{STYLE_DIGEST}'; img-src data:; base-uri 'none'"
"""What a page may load: its own style, images that are part of it, nothing else. It runs nothing."""


def document(title: str, *children: Value, form_action: str = "'none'") -> str:
    """Return a whole HTML page. Forms may be sent to `form_action` only: a report has none."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=f"{POLICY}; form-action {form_action}"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="same-origin"),
        tag("link", rel="icon", href="data:,"),  # or the browser asks for one
        tag("title", title),
        tag("style", Html(STYLE)),
    )
    return f"<!doctype html>\n{tag('html', head, tag('body', tag('main', *children)), lang='en')}\n"


def readable(text: str) -> str:
    """Return text for HTML with numbers like 6.3e-06 written as 6.3 × 10⁻⁶, with non-breaking spaces."""

    def written(number: re.Match[str]) -> str:
        """Return a matched number as mantissa × power of ten, for HTML text."""
        mantissa, exponent = number.groups()
        return f"{mantissa}\u00a0×\u00a010{str(int(exponent)).translate(_RAISED)}"

    return _SCIENTIFIC.sub(written, text)


_SCIENTIFIC = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)e([+-]?\d+)(?!\w)")
_RAISED = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def _value_text(value: Value) -> str:
    """Return a value as the text of an HTML element."""
    if value is None:
        return ""
    return readable(f"{value:.4g}") if isinstance(value, float) else str(value)


def _escaped(text: str) -> str:
    """Return text that is not HTML yet, escaped as HTML."""
    return escape(visible_lines(text))


def _cell_class(cell: Value) -> str | None:
    """Return the CSS class of an HTML table's cell: numbers have one."""
    return "number" if isinstance(cell, int | float) else None
