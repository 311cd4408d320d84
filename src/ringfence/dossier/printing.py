"""Printing a page to PDF with the browser that is there: Chromium or one of its kind, without a window."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from ringfence.errors import OutputError

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "microsoft-edge", "brave-browser")
_SECONDS = 120


def find_browser() -> str | None:
    """Return a browser that can print, or None."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


def print_page(page: Path, pdf: Path, browser: str) -> None:
    """Print a page of ours, which loads and runs nothing, to a PDF file; OutputError if that fails."""
    with tempfile.TemporaryDirectory() as profile:
        command = [
            browser, "--headless", "--disable-gpu", "--no-first-run", "--no-pdf-header-footer",
            # As root, in a container most often, Chromium has no sandbox of its own; the page has no script.
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
            f"--user-data-dir={profile}", f"--print-to-pdf={pdf.absolute()}", page.absolute().as_uri(),
        ]  # fmt: skip
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=_SECONDS)  # noqa: S603 (a browser's own path)
        except (OSError, subprocess.SubprocessError) as problem:
            raise OutputError(
                f"{browser} could not print {page} ({type(problem).__name__}): open it in a browser and print it to "
                f"{pdf}, or use --no-pdf."
            ) from None
    if not pdf.exists():
        raise OutputError(
            f"{browser} printed nothing: open {page} in a browser and print it to {pdf}, or use --no-pdf."
        )
