"""A real browser for tests: Debian's Chromium, without a window and without any network but this machine's.

`Visit.faults` says what is wrong with a page for anybody who reads it on a phone, in the dark, by keyboard or through a
screen reader.
"""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

DESK, PHONE, NARROWEST = 1000, 390, 320
"""Widths in pixels; the last is the one at which WCAG (1.4.10) still asks for text that needs no scrolling sideways."""

SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")

_OFF_SCREEN = """
[...document.querySelectorAll('button, input:not([type=hidden]), textarea, a, summary')].filter(element => {
  const box = element.getBoundingClientRect();
  return box.width > 0 && (box.left < 0 || box.right > window.innerWidth);
}).map(element => element.innerText || element.id)
"""


def chromium() -> str:
    """Return where Chromium is; a missing one fails the test, with what to do."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.fail("There is no Chromium on this machine, which these tests need: run .ci/packages as root.")
    return path


@dataclass
class Visit:
    """A page that is open in the browser, what its console said and what it asked for."""

    page: Page
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def elsewhere(self, *allowed: str) -> list[str]:
        """What was asked for beside the addresses that begin like this, and what is part of the page itself."""
        return [url for url in self.requests if not url.startswith((*allowed, "data:"))]

    def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth"))

    def faults(self) -> list[str]:
        """What axe-core finds in light and dark, wide and narrow, and what does not fit the screen."""
        found = []
        for width in (DESK, PHONE, NARROWEST):
            self.resize(width)
            if (overflow := self.overflow()) > 0:
                found.append(f"{width} px: the page is {overflow} px too wide")
            found += [f"{width} px: '{name}' is off screen" for name in self.page.evaluate(_OFF_SCREEN)]
        for scheme in SCHEMES:
            self.page.emulate_media(color_scheme=scheme)
            for width in (DESK, PHONE):
                self.resize(width)
                response = Axe().run(self.page).response
                found += [
                    f"{scheme}, {width} px: {violation['id']}: {node['html'][:120]}"
                    for violation in response["violations"]
                    for node in violation["nodes"]
                ]
        self.page.emulate_media(color_scheme="light")
        self.resize(DESK)
        return found

    def resize(self, width: int) -> None:
        self.page.set_viewport_size({"width": width, "height": 800})


class Window:
    """Opens pages."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser

    def open(self, address: str, *, width: int = DESK, **context: Any) -> Visit:
        page = self._browser.new_context(viewport={"width": width, "height": 800}, **context).new_page()
        visit = Visit(page)
        page.on("console", lambda message: visit.console.append(message.text))
        page.on("pageerror", lambda error: visit.console.append(str(error)))
        page.on("request", lambda request: visit.requests.append(request.url))
        page.set_default_timeout(120_000)
        page.goto(address)
        return visit


@pytest.fixture(scope="module")  # not longer: while it lives, its thread can run no other event loop
def window() -> Iterator[Window]:
    """A browser."""
    with sync_playwright() as driver:
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium refuses to have one as root
        browser = driver.chromium.launch(executable_path=chromium(), args=sandbox)
        try:
            yield Window(browser)
        finally:
            browser.close()
