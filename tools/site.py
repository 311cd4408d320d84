"""Hooks of the documentation's site: the order of its pages, and the pages that are not in `docs/`.

The README is the site's first page. The references of Python and of the command line are made from docstrings and
`--help`. Pages that `PAGES` names and that do not exist are left out; pages that it does not name come last.
"""

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # mkdocs runs this file, not the package

from tools import api_reference, command_reference

PAGES: dict[str, list[str]] = {
    "Start": ["index.md", "tutorial.md", "estimators.md", "tables.md", "statistics.md", "choosing.md"],
    "Run": ["deploy.md", "operations.md", "shuffle.md", "audit.md", "command-line.md"],
    "Trust": [
        "for-those-who-decide.md",
        "threat-model.md",
        "accounting.md",
        "proofs.md",
        "comparison.md",
        "security.md",
    ],
    "Understand": [
        "architecture.md",
        "algorithms.md",
        "extending.md",
        "api.md",
        "glossary.md",
    ],
    "Results": ["results/index.md"],
    "Project": ["changelog.md", "contributing.md"],
}
FROM_THE_ROOT = {
    "index.md": "README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
}
ELSEWHERE = {f"../{file}": page for page, file in FROM_THE_ROOT.items()}
GENERATED = {"api.md": api_reference.page, "command-line.md": command_reference.page}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Order the pages that there are."""
    docs = Path(config.docs_dir)
    there = {page.relative_to(docs).as_posix() for page in docs.rglob("*.md")} | {*FROM_THE_ROOT, *GENERATED}
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
    """Add the pages of the root, with links as seen from `docs/`, and those that are made from the code."""
    root = Path(config.config_file_path).parent
    for page, source in FROM_THE_ROOT.items():
        content = (root / source).read_text(encoding="utf-8").replace("](docs/", "](")
        for name, file in FROM_THE_ROOT.items():
            content = content.replace(f"]({file}", f"]({name}")
        content = content.replace("[Apache 2.0](LICENSE)", "Apache 2.0")  # the licence is not a page
        files.append(File.generated(config, page, content=content))
    for page, write in GENERATED.items():
        files.append(File.generated(config, page, content=write()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Let links to the repository's root lead to its pages on the site."""
    return re.sub(r"\]\((\.\./[A-Z]+\.md)(#[^)]*)?\)", lambda link: f"]({ELSEWHERE[link[1]]})", markdown)
