"""Run the notebooks of `docs/notebooks` and store what they print: `python -m tools.notebooks`. Needs the `test` extra.

The outputs are part of the repository, so that a reader sees them where the code is; a test runs the cells again, and
compares.
"""

import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "notebooks"
SECONDS = 600
"""A cell that takes longer hangs."""


def notebooks() -> list[Path]:
    """Return every notebook of the documentation."""
    return sorted(FOLDER.glob("*.ipynb"))


def executed(notebook: Path, folder: Path) -> nbformat.NotebookNode:
    """Run a notebook's cells in an empty folder, with this environment's `python` and `ringfence`; return it.

    A cell that raises raises here.
    """
    document = nbformat.read(notebook, as_version=4)
    settings = folder / ".ipython"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "IPYTHONDIR": str(settings), "XDG_STATE_HOME": str(settings)}
    with tempfile.TemporaryDirectory() as sockets:  # not in the folder: the names of sockets must be short
        client = NotebookClient(
            document,
            timeout=SECONDS,
            startup_timeout=SECONDS,
            coalesce_streams=True,
            resources={"metadata": {"path": str(folder)}},
            config=Config(KernelManager={"transport": "ipc", "ip": f"{sockets}/kernel"}),  # no port of the machine
        )
        return client.execute(env=environment)


def printed(cell: nbformat.NotebookNode) -> str:
    """Return what a cell shows as text, in order; a progress bar is empty in the end."""
    shown = (output.get("text") or output["data"]["text/plain"] for output in cell.get("outputs", []))
    return "\n".join(filter(None, shown))


def errors(document: nbformat.NotebookNode) -> list[str]:
    """Return what went to standard error, where warnings go: a notebook shows none."""
    outputs = [output for cell in document.cells for output in cell.get("outputs", [])]
    return [output["text"] for output in outputs if output.get("name") == "stderr"]


def store(document: nbformat.NotebookNode, notebook: Path) -> None:
    """Write a notebook without what only this run and this machine had: times, versions, identities."""
    document.metadata = {"kernelspec": document.metadata["kernelspec"], "language_info": {"name": "python"}}
    for number, cell in enumerate(document.cells, start=1):
        cell.id, cell.metadata = f"cell-{number}", {}
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("data") != {"text/plain": ""}]
    nbformat.write(document, notebook)


def main() -> None:
    """Run all of them."""
    for notebook in notebooks():
        with tempfile.TemporaryDirectory() as folder:
            document = executed(notebook, Path(folder))
        if found := errors(document):
            raise SystemExit(f"{notebook.name} prints to standard error:\n{''.join(found)}")
        store(document, notebook)
        print(f"wrote {notebook}")  # noqa: T201 (a tool's result)


if __name__ == "__main__":
    main()
