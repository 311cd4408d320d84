"""`make licences`: the licence of every package that the base install or `.[all]` brings, and whether we allow it.

It reads what packages declare about themselves, in the environment that runs it; it does not read their files. A
package that declares nothing we know is refused, like one under a licence that `pyproject.toml` does not allow:
somebody has to look. What only tests, documentation and releases need is handed to nobody, and is not checked.
"""

import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from importlib import metadata
from importlib.metadata import PackageMetadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

ROOT = Path(__file__).parents[1]
EXTRAS = ("", "all")

# What older metadata say instead of an SPDX identifier.
_SPELLINGS = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Public Domain": "LicenseRef-Public-Domain",
    "Python Software Foundation License": "PSF-2.0",
}


def declared(package: PackageMetadata) -> str:
    """Return the licence in a package's metadata as an SPDX expression as far as we know it; empty if there is none.

    The expression counts first, then classifiers, then the free field, where some put a licence's whole text. Several
    classifiers are read as if all of them held.
    """
    if expression := package.get_all("License-Expression", []):
        return str(expression[0])
    classifiers = [
        line.rpartition(" :: ")[2] for line in package.get_all("Classifier", []) if line.startswith("License :: ")
    ]
    free = [line.strip() for line in package.get_all("License", [])]
    return " AND ".join(_SPELLINGS.get(name, name) for name in classifiers or free)


def is_allowed(expression: str, allowed: Sequence[str]) -> bool:
    """Tell whether an SPDX expression leaves us a way that is allowed: one side of an OR, both sides of an AND."""
    words = re.findall(r"[()]|[^\s()]+", expression)
    try:
        answer = _either(words, allowed)
    except IndexError:
        return False
    return answer and not words


def _either(words: list[str], allowed: Sequence[str]) -> bool:
    answer = _both(words, allowed)
    while words and words[0] == "OR":
        del words[0]
        answer = _both(words, allowed) or answer
    return answer


def _both(words: list[str], allowed: Sequence[str]) -> bool:
    answer = _one(words, allowed)
    while words and words[0] == "AND":
        del words[0]
        answer = _one(words, allowed) and answer
    return answer


def _one(words: list[str], allowed: Sequence[str]) -> bool:
    word = words.pop(0)
    if word != "(":
        return word in allowed
    answer = _either(words, allowed)
    return words.pop(0) == ")" and answer


def brought(package: str, extras: Sequence[str], path: Sequence[str]) -> dict[str, PackageMetadata]:
    """Return the metadata of a package and of all that it brings with these extras ("" is none), by name."""
    found: dict[str, PackageMetadata] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [(canonicalize_name(package), extra) for extra in extras]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        distribution = next(iter(metadata.distributions(name=name, path=list(path))), None)
        if distribution is None:
            raise SystemExit(f"{name} is not installed here: run this where '.[all]' is, as `make licences` does.")
        found[name] = distribution.metadata
        waiting.extend(_needed(distribution.requires or [], extra))
    return found


def _needed(requirements: Sequence[str], extra: str) -> Iterator[tuple[NormalizedName, str]]:
    for requirement in map(Requirement, requirements):
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield from ((canonicalize_name(requirement.name), wanted) for wanted in ("", *requirement.extras))


def main() -> None:
    """Print every package's licence; end with status 1 if one is not allowed."""
    allowed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["licences"]["allowed"]
    licences = {name: declared(package) for name, package in sorted(brought("ringfence", EXTRAS, sys.path).items())}
    refused = [name for name, licence in licences.items() if not is_allowed(licence, allowed)]
    for name, licence in licences.items():
        sys.stdout.write(f"{name:28} {licence or 'declares none'}{'   NOT ALLOWED' if name in refused else ''}\n")
    if refused:
        raise SystemExit(
            f"Not under a licence that pyproject.toml allows: {', '.join(refused)}. Read the package's licence; "
            "allow it in [tool.licences] if it may be used with ours, or do without the package."
        )


if __name__ == "__main__":
    main()
