"""`make docs` keeps a folder of pages for every version; this lists them for readers, and leads them to the newest.

`versions.json` is what the pages' theme reads to let readers choose; `index.html` goes on to the newest release, or, as
long as there is none, to the newest version under development.
"""

import json
import sys
from pathlib import Path

from packaging.version import InvalidVersion, Version


def versions(site: Path) -> list[str]:
    """Return the versions that have pages in the site, the newest first."""
    found = [page.parent.name for page in site.glob("*/index.html") if _parsed(page.parent.name) is not None]
    return sorted(found, key=Version, reverse=True)


def _parsed(name: str) -> Version | None:
    try:
        return Version(name)
    except InvalidVersion:
        return None


def write(site: Path) -> str:
    """Write the list and the way to the newest version, and return that."""
    found = versions(site)
    newest = next((name for name in found if not Version(name).is_prerelease), found[0])
    listed = [{"version": name, "title": name, "aliases": ["latest"] if name == newest else []} for name in found]
    (site / "versions.json").write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")
    (site / "index.html").write_text(
        f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={newest}/index.html">'
        f'<title>Ringfence</title><a href="{newest}/index.html">Ringfence {newest}</a>\n',
        encoding="utf-8",
    )
    return newest


if __name__ == "__main__":
    sys.stdout.write(f"{sys.argv[1]}/index.html leads to {write(Path(sys.argv[1]))}\n")
