"""Writing a dossier: the page and its signature."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringfence.errors import WHY, OutputError, os_error_as
from ringfence.evidence.dossier.evidence import Inputs, gather_evidence
from ringfence.evidence.dossier.page import dossier_page
from ringfence.evidence.dossier.signing import sign, signature_path
from ringfence.evidence.report.page import write_whole
from ringfence.shuffler.sealing import verifying_key
from ringfence.storage.files import read_key


@dataclass(frozen=True)
class WrittenDossier:
    """The files of a dossier, and what is missing from it."""

    page: Path
    signature: Path
    public_key: str
    missing: tuple[str, ...]

    def text(self) -> str:
        """Return in words which files of the dossier were written, and what is missing from it."""
        missing = ["What is missing", "", *(f"  - {line}" for line in self.missing), ""] if self.missing else []
        return "\n".join([*missing, f"dossier {self.page}", f"signature {self.signature}"])

    def data(self) -> dict[str, Any]:
        """Return the written dossier as plain data."""
        return {
            "dossier": str(self.page),
            "signature": str(self.signature),
            "public_key": self.public_key,
            "missing": list(self.missing),
        }


def write_dossier(inputs: Inputs, key_file: Path, out: Path) -> WrittenDossier:
    """Check all evidence, then write and sign; nothing is written if a check fails."""
    if out.suffix.lower() not in (".html", ".htm"):
        raise OutputError(f"The dossier is an HTML page: name a file that ends in .html, not {out}.")
    key = read_key(key_file, OutputError)
    evidence, public = gather_evidence(inputs), verifying_key(key)
    with os_error_as(OutputError, f"{out} could not be written: {WHY}. Name another file."):
        write_whole(out, dossier_page(evidence, public).html().encode())
        signature = sign(evidence.plan.digest(), out, evidence.digests, key)
        write_whole(signature_path(out), signature)
    return WrittenDossier(out, signature_path(out), public, tuple(evidence.missing()))
