"""The documentation's site: it builds strictly and needs nobody, and the reference has every public name."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import ringfence
from tests.docs.blocks import ROOT
from tools import api_reference


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
    pages = [source.relative_to(ROOT / "docs") for source in (ROOT / "docs").rglob("*.md")]
    for page in [*pages, Path("index.md"), Path("api.md"), Path("command-line.md")]:
        built = page.with_suffix(".html").as_posix()
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


def test_the_reference_has_every_public_name_and_module() -> None:
    written = api_reference.page()
    for name in set(ringfence.__all__) - {"__version__"}:
        assert f"### `{name}`" in written
    for name in set(ringfence._NAMESPACES) - {"errors"}:
        assert f"`ringfence.{name}`" in written


def test_pages_of_the_repository_link_to_files_that_are_in_it() -> None:
    """The references exist on the site only: who reads the repository must not be sent there."""
    broken = [
        f"{page.relative_to(ROOT)}: {link}"
        for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
        if not re.match(r"https?:|mailto:", link) and not (page.parent / link).exists()
    ]
    assert not broken
