"""A real browser for tests: Debian's Chromium, without a window and without any network but this machine's."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

PHONE = 375


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
        return int(self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))

    def resize(self, width: int) -> None:
        self.page.set_viewport_size({"width": width, "height": 800})


class Window:
    """Opens pages."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser

    def open(self, address: str, *, width: int = 1000, **context: Any) -> Visit:
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
