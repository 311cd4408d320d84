"""The pages of `ringfence reproduce` as one file each: the same words and tables, with the figures inside."""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token

from ringfence.evidence.report.page import ReportPage
from ringfence.html.markup import Html, tag

_KINDS = {".svg": "image/svg+xml", ".png": "image/png"}


def write_single_page(page: Path) -> Path:
    """Write beside a Markdown page of ours the same page as one HTML file, and return its path."""
    tokens = _parser().parse(page.read_text(encoding="utf-8"))
    title = "Ringfence"
    if tokens and tokens[0].type == "heading_open":
        title, tokens = tokens[1].content, tokens[3:]
    body = _parser().renderer.render(_with_images(tokens, page.parent), _parser().options, {})
    path = page.with_suffix(".html")
    ReportPage(title, "Experiment", (Html(body),)).write(path)
    return path


def _parser() -> MarkdownIt:
    """Return a reader of Markdown that lets no HTML through."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    parser.add_render_rule("table_open", _open_table)
    parser.add_render_rule("table_close", _close_table)
    parser.add_render_rule("image", _image)
    return parser


def _image(renderer: RendererHTML, tokens: Sequence[Token], place: int, options: Any, environment: Any) -> str:
    """Write a picture that keeps a readable size on a phone, and scrolls there by itself."""
    image = tokens[place]
    shown = tag("img", src=str(image.attrs["src"]), alt=image.content)
    return tag("span", shown, class_="scroll picture", tabindex=0, role="group", aria_label=image.content)


def _open_table(renderer: RendererHTML, tokens: Sequence[Token], place: int, options: Any, environment: Any) -> str:
    return '<div class="scroll" tabindex="0" role="group" aria-label="Table"><table>'


def _close_table(renderer: RendererHTML, tokens: Sequence[Token], place: int, options: Any, environment: Any) -> str:
    return "</table></div>"


def _with_images(tokens: list[Token], folder: Path) -> list[Token]:
    for token in tokens:
        token.attrs.pop("style", None)  # a column's alignment; the page's policy allows no style but its own
        if token.type == "image":
            image = folder / str(token.attrs["src"])
            data = base64.b64encode(image.read_bytes()).decode()
            token.attrs["src"] = f"data:{_KINDS[image.suffix]};base64,{data}"
        if token.children:
            _with_images(token.children, folder)
    return tokens
