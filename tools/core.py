"""The trusted core, and its section of docs/audit.md: `python -m tools.core` writes it anew.

The core is whatever a silo's agent imports, directly or not, early or late, but for the edges: packages that only hand
it cells and bytes. Nobody lists it: a module that the core begins to import is part of it, and shows in the page's
diff. What it may not import at all is a contract in pyproject.toml.
"""

import ast
from collections import defaultdict
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
PAGE = ROOT / "docs" / "audit.md"
AGENT = "ringfence.silo.agent"

EDGES = {
    "ringfence.sources": "reads the table's cells, before the first request",
    "ringfence.transport": "carries requests and answers at the door",
}

MOST_LINES = 10_000
"""The most code lines that the core may have."""

BEGIN, END = "<!-- written by `python -m tools.core`, from here -->", "<!-- to here -->"


def imported() -> set[str]:
    """Return every module of ours that a running agent may load, packages' own files included."""
    graph = grimp.build_graph("ringfence", exclude_type_checking_imports=True)
    found, new = set[str](), {AGENT}
    while new:
        found |= new
        further = (graph.find_modules_directly_imported_by(module) | _packages(module) for module in new)
        new = set[str]().union(*further) - found
    return found


def core() -> list[str]:
    """Return the core's modules."""
    return sorted(module for module in imported() if edge_of(module) is None)


def edge_of(module: str) -> str | None:
    """Return the edge that a module is part of, if it is not part of the core."""
    return next((edge for edge in EDGES if f"{module}.".startswith(f"{edge}.")), None)


def code_lines(module: str) -> int:
    """Return how many lines of a module are neither blank, nor comment, nor docstring."""
    text = path_of(module).read_text(encoding="utf-8")
    words = {
        number
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines = enumerate(map(str.strip, text.splitlines()), 1)
    return sum(1 for number, line in lines if line and line[0] != "#" and number not in words)


def path_of(module: str) -> Path:
    """Return the file of a module or package."""
    path = SOURCE.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def section() -> str:
    """Return the page's section about the core: every module with its code lines, by folder."""
    folders: defaultdict[str, dict[str, int]] = defaultdict(dict)
    edges = dict.fromkeys(EDGES, 0)
    for module in sorted(imported()):
        lines, edge = code_lines(module), edge_of(module)
        if edge is not None:
            edges[edge] += lines
        elif lines:
            path = path_of(module)
            folders[f"{path.parent.relative_to(SOURCE / 'ringfence')}/"][path.stem] = lines
    total = sum(lines for modules in folders.values() for lines in modules.values())
    table = ["| folder | code lines | modules |", "|---|---|---|"]
    for folder, modules in sorted(folders.items()):
        listed = ", ".join(f"`{name}` {lines}" for name, lines in sorted(modules.items()))
        table.append(f"| `{folder.removeprefix('./') or 'ringfence/'}` | {sum(modules.values())} | {listed} |")
    table.append(f"| **the core** | **{total:,}** | of at most {MOST_LINES:,} |")
    table += [f"| `{edge.rpartition('.')[2]}/` | {edges[edge]} | an edge: {what} |" for edge, what in EDGES.items()]
    return "\n".join([BEGIN, "", *table, "", END])


def renewed(page: str) -> str:
    """Return the page with its section about the core as it is today."""
    before, _, rest = page.partition(BEGIN)
    return before + section() + rest.partition(END)[2]


def _packages(module: str) -> set[str]:
    """Return the packages that are loaded before a module."""
    parts = module.split(".")
    return {".".join(parts[:length]) for length in range(1, len(parts))}


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
