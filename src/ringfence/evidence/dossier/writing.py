"""Writing a dossier: the page, its print where a browser is there, and the signature of both."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringfence.dossier.evidence import Inputs, gather
from ringfence.dossier.page import dossier_page
from ringfence.dossier.printing import find_browser, print_page
from ringfence.dossier.signing import sign, signature_path
from ringfence.errors import OutputError
from ringfence.report.page import write_whole
from ringfence.sealed_sums.sealing import verifying_key
from ringfence.storage.private_files import read_key

NO_BROWSER = (
    "No PDF was made: this machine has no Chromium, Chrome or Edge to print it. Print the page from any browser, or "
    "run this again where there is one. The signature covers the page; a PDF printed later is not signed."
)


@dataclass(frozen=True)
class Written:
    """Which files there are now, and what the dossier had to do without."""

    page: Path
    pdf: Path | None
    signature: Path
    public_key: str
    missing: tuple[str, ...]
    remark: str = ""

    def text(self) -> str:
        """Say so to a person."""
        files = [f"dossier {self.page}", *([f"print {self.pdf}"] if self.pdf else []), f"signature {self.signature}"]
        missing = ["What is missing", "", *(f"  - {line}" for line in self.missing)] if self.missing else []
        return "\n".join([*missing, *([""] if missing else []), *files, *([self.remark] if self.remark else [])])

    def data(self) -> dict[str, Any]:
        """Say so to a machine."""
        return {
            "dossier": str(self.page),
            "pdf": None if self.pdf is None else str(self.pdf),
            "signature": str(self.signature),
            "public_key": self.public_key,
            "missing": list(self.missing),
        }


def write_dossier(inputs: Inputs, key_file: Path, out: Path, *, with_pdf: bool = True) -> Written:
    """Check everything, then write and sign; nothing is written if anything does not fit."""
    if out.suffix.lower() not in (".html", ".htm"):
        raise OutputError(f"The dossier is an HTML page: name a file that ends in .html, not {out}.")
    key = read_key(key_file, OutputError)
    evidence, public = gather(inputs), verifying_key(key)
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
    return Written(out, pdf, signature_path(out), public, tuple(evidence.missing()), remark)
