"""`make audit-dependencies`: known vulnerabilities of what the base install and `.[all]` bring, by pip-audit.

pip-audit asks an index on the network. It skips a package that the index knows nothing of, and ends well even if it
skipped all; this does not. Status 0: every package was looked up, and none has a known vulnerability. 1: some have.
3: some, or all, could not be looked up, and nothing is known of them.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools.licences import EXTRAS, brought

NOT_LOOKED_UP = 3


def main() -> int:
    """Ask about every package in the environment that runs this, and print what is known."""
    packages = {name: package["Version"] for name, package in brought("ringfence", EXTRAS, sys.path).items()}
    del packages["ringfence"]  # whoever finds a hole in it follows SECURITY.md
    with tempfile.TemporaryDirectory() as folder:
        pinned = Path(folder) / "requirements.txt"
        pinned.write_text("".join(f"{name}=={version}\n" for name, version in sorted(packages.items())))
        asked = subprocess.run(  # noqa: S603
            [sys.executable, "-m", "pip_audit", "--requirement", pinned, "--no-deps", "--disable-pip",
             "--format", "json", "--progress-spinner", "off"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    try:
        answer = json.loads(asked.stdout)
    except ValueError:
        reason = (asked.stderr.strip().splitlines() or ["it gave no reason"])[-1]
        sys.stderr.write(f"NOT AUDITED: pip-audit could not ask ({reason}). Run this where PyPI can be reached.\n")
        return NOT_LOOKED_UP
    report, status = judge(answer)
    sys.stdout.write(report)
    return status


def judge(answer: Mapping[str, Any]) -> tuple[str, int]:
    """Return what to tell of pip-audit's answer, and the status to end with."""
    packages = answer["dependencies"]
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    lines = [
        f"VULNERABLE: {package['name']} {package['version']}: {hole['id']}, "
        f"mended in {', '.join(hole['fix_versions']) or 'no version yet'}"
        for package in packages
        for hole in package.get("vulns", [])
    ]
    status = 1 if lines else 0
    if skipped:
        lines.append(
            f"NOT AUDITED: {len(skipped)} of {len(packages)} packages: {', '.join(skipped)}. The index that this "
            "machine reaches has no answer for them. Run this where PyPI itself can be reached."
        )
        status = status or NOT_LOOKED_UP
    if not status:
        lines.append(f"{len(packages)} packages looked up, none with a known vulnerability")
    return "\n".join([*lines, ""]), status


if __name__ == "__main__":
    raise SystemExit(main())
