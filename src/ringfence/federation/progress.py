"""The progress of rounds for people who wait: on a terminal or in a notebook, and nowhere else."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

# rich is imported where it is needed: `--help` needs none of it.
if TYPE_CHECKING:
    from rich.progress import Progress


def progress(*, transient: bool = False) -> "Progress":
    """Return a progress bar on standard error, shown only if that is a terminal; a transient one disappears at the end.

    FORCE_COLOR, which notebooks set, makes rich take a file or a pipe for a terminal, and fill it with every frame.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
        transient=transient,
    )


@contextmanager
def rounds_shown(total: int) -> Iterator[Callable[[], None]]:
    """Show how many of the rounds are done until all are, on a terminal or in a notebook; yield what counts one."""
    if _in_notebook():
        with _shown_in_notebook(total) as count:
            yield count
    elif sys.stderr.isatty():
        with progress(transient=True) as bar:
            task = bar.add_task("rounds", total=total)
            yield lambda: bar.advance(task)
    else:
        yield lambda: None


def _in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    ipython: Any = sys.modules.get("IPython")
    return ipython is not None and getattr(ipython.get_ipython(), "kernel", None) is not None


@contextmanager
def _shown_in_notebook(total: int) -> Iterator[Callable[[], None]]:
    """Show the rounds in a notebook's cell, without widgets; the bar is empty in the end."""
    from IPython.display import display

    show: Any = display  # IPython's function has no types
    done = 0

    def content() -> dict[str, str]:
        """Return the bar in the forms that a notebook's frontend chooses from."""
        text = f"{done} of {total} rounds"
        return {"text/plain": text, "text/html": f'<progress max="{total}" value="{done}"></progress> {text}'}

    def count() -> None:
        """Count a round of the fit, and show it in the notebook."""
        nonlocal done
        done += 1
        shown.update(content(), raw=True)

    shown = show(content(), raw=True, display_id=True)
    try:
        yield count
    finally:
        shown.update({"text/plain": ""}, raw=True)
