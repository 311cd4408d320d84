"""Hooks of the documentation's site: the order of its pages, and the pages that live in the repository's root.

Pages that `PAGES` names and that do not exist are left out; pages that exist and that it does not name come last. So
a new page appears by itself, and here is only said where it belongs.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

PAGES: dict[str, list[str]] = {
    "Start": [
        "index.md",
        "install.md",
        "tutorial.md",
        "estimators.md",
        "statistics.md",
        "choosing.md",
        "personal.md",
        "pitfalls.md",
    ],
    "Run": ["deploy.md", "recipes.md", "operations.md", "shuffle.md", "reports.md", "audit.md", "command-line.md"],
    "Trust": [
        "for-those-who-decide.md",
        "threat-model.md",
        "accounting.md",
        "compatibility.md",
        "comparison.md",
        "security.md",
    ],
    "Understand": [
        "architecture.md",
        "algorithms.md",
        "preconditioned.md",
        "simulation.md",
        "extending.md",
        "api.md",
        "glossary.md",
        "notation.md",
    ],
    "Results": ["results.md"],
    "Project": ["changelog.md", "contributing.md"],
}
FROM_THE_ROOT = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md", "security.md": "SECURITY.md"}
ELSEWHERE = {f"../{file}": page for page, file in FROM_THE_ROOT.items()} | {"../README.md": "index.md"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Order the pages that there are."""
    docs = Path(config.docs_dir)
    there = {page.relative_to(docs).as_posix() for page in docs.rglob("*.md")} | set(FROM_THE_ROOT)
    sections: dict[str, list[Any]] = {
        section: [page for page in pages if page in there] for section, pages in PAGES.items()
    }
    named = {page for pages in PAGES.values() for page in pages}
    unnamed = sorted(there - named)
    sections["Results"] += [page for page in unnamed if page.startswith("results/")]
    more = [page for page in unnamed if not page.startswith("results/")]
    config.nav = [{section: pages} for section, pages in (sections | {"More": more}).items() if pages]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the root, with links as seen from `docs/`."""
    root = Path(config.config_file_path).parent
    for page, source in FROM_THE_ROOT.items():
        content = (root / source).read_text(encoding="utf-8").replace("](docs/", "](")
        for name, file in FROM_THE_ROOT.items():
            content = content.replace(f"]({file}", f"]({name}")
        files.append(File.generated(config, page, content=content))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Let links to the repository's root lead to its pages on the site."""
    return re.sub(r"\]\((\.\./[A-Z]+\.md)(#[^)]*)?\)", lambda link: f"]({ELSEWHERE[link[1]]})", markdown)
