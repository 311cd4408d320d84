"""The documentation's site: it builds strictly and needs nobody, and the reference has every public name."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import ringfence
from tests.docs.blocks import ROOT
from tools.api_reference import page


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    return folder


def test_every_page_is_on_the_site_and_in_its_navigation(site: Path) -> None:
    navigation = (site / "index.html").read_text()
    for source in (ROOT / "docs").rglob("*.md"):
        built = source.relative_to(ROOT / "docs").with_suffix(".html").as_posix()
        assert (site / built).is_file(), built
        assert f'href="{built}"' in navigation, built


def test_pages_load_nothing_from_other_machines(site: Path) -> None:
    loading = re.compile(
        r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"(?:https?:)?//|<link\b[^>]*\bhref=\"(?:https?:)?//"
    )
    for html in site.rglob("*.html"):
        assert not loading.search(html.read_text()), html.relative_to(site)
    for style in site.rglob("*.css"):
        assert not re.search(r"@import|url\(\s*[\"']?(?:https?:)?//", style.read_text()), style.relative_to(site)


def test_links_from_the_readme_lead_somewhere() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    targets = {target.partition("#")[0] for target in re.findall(r"\]\(([^)]+)\)", text)}
    assert targets, "the README has no links"
    assert not [target for target in targets if not target.startswith("https://") and not (ROOT / target).exists()]


def test_the_reference_has_every_public_name_and_is_what_the_docstrings_say() -> None:
    written = page()
    assert written == (ROOT / "docs/api.md").read_text(encoding="utf-8"), "run: python tools/api_reference.py"
    for name in set(ringfence.__all__) - {"__version__"}:
        assert f"### `{name}`" in written
