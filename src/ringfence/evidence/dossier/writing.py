"""Writing a dossier: the page, its PDF if a browser is installed, and the signature of both."""

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringfence.errors import OutputError
from ringfence.evidence.dossier.evidence import Inputs, gather_evidence
from ringfence.evidence.dossier.page import dossier_page
from ringfence.evidence.dossier.signing import sign, signature_path
from ringfence.evidence.report.page import write_whole
from ringfence.shuffler.sealing import verifying_key
from ringfence.storage.files import read_key

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "microsoft-edge", "brave-browser")
_SECONDS = 120

NO_BROWSER = (
    "No PDF was made: this machine has no Chromium, Chrome or Edge to print it. Print the page from any browser, or "
    "run this again where there is one. The signature covers the page; a PDF printed later is not signed."
)


@dataclass(frozen=True)
class WrittenDossier:
    """The files of a dossier, and what is missing from it."""

    page: Path
    pdf: Path | None
    signature: Path
    public_key: str
    missing: tuple[str, ...]
    remark: str = ""

    def text(self) -> str:
        """Return in words which files of the dossier were written, and what is missing from it."""
        files = [f"dossier {self.page}", *([f"print {self.pdf}"] if self.pdf else []), f"signature {self.signature}"]
        missing = ["What is missing", "", *(f"  - {line}" for line in self.missing)] if self.missing else []
        return "\n".join([*missing, *([""] if missing else []), *files, *([self.remark] if self.remark else [])])

    def data(self) -> dict[str, Any]:
        """Return the written dossier as plain data."""
        return {
            "dossier": str(self.page),
            "pdf": None if self.pdf is None else str(self.pdf),
            "signature": str(self.signature),
            "public_key": self.public_key,
            "missing": list(self.missing),
        }


def write_dossier(inputs: Inputs, key_file: Path, out: Path, *, with_pdf: bool = True) -> WrittenDossier:
    """Check all evidence, then write and sign; nothing is written if a check fails."""
    if out.suffix.lower() not in (".html", ".htm"):
        raise OutputError(f"The dossier is an HTML page: name a file that ends in .html, not {out}.")
    key = read_key(key_file, OutputError)
    evidence, public = gather_evidence(inputs), verifying_key(key)
    browser = find_browser() if with_pdf else None
    pdf = out.with_suffix(".pdf") if browser else None
    try:
        write_whole(out, dossier_page(evidence, public).html().encode())
        if browser and pdf:
            print_page(out, pdf, browser)
        signature = sign(evidence.plan.digest(), [out, *([pdf] if pdf else [])], evidence.digests, key)
        write_whole(signature_path(out), signature)
    except OSError as problem:
        raise OutputError(f"{out} could not be written: {problem.strerror}. Name another file.") from None
    remark = NO_BROWSER if with_pdf and pdf is None else ""
    return WrittenDossier(out, pdf, signature_path(out), public, tuple(evidence.missing()), remark)


def find_browser() -> str | None:
    """Return a browser that can print the dossier to PDF, or None."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


def print_page(page: Path, pdf: Path, browser: str) -> None:
    """Print a dossier's page, which is self-contained, to a PDF file without a window; OutputError if that fails."""
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
