"""What the command line prints: all of it by one module, and nothing in it means more than its characters."""

import ast
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from ringfence.cli import output

CLI = Path(output.__file__).parent


def printing(tree: ast.AST) -> list[int]:
    """Return the lines that print without `cli.output`."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and node.attr in ("echo", "secho", "print", "stdout", "stderr"))
        or (isinstance(node, ast.Name) and node.id in ("print", "Console"))
    ]


def test_nothing_of_the_command_line_prints_but_by_the_one_module() -> None:
    others = [path for path in sorted(CLI.glob("*.py")) if path.name != "output.py"]
    found = [f"{path.name}:{line}" for path in others for line in printing(ast.parse(path.read_text()))]
    assert not found, f"return an Output, or use say or warn: {', '.join(found)}"
    assert printing(ast.parse("typer.echo('x')\nprint('x')\nsys.stdout.write('x')")) == [1, 2, 3]


def test_a_table_s_cells_and_headings_are_no_markup_and_no_code_of_an_emoji(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(["[red]a[/red]", "b"], [["[bold]x[/bold] :warning:", "y\n\x1b[2J"], [1.25, ":smiley:"]])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["[red]a[/red]", "[bold]x[/bold] :warning:", "1.25"]
    assert r"y\u000a\u001b[2J" in lines[1]
    assert ":smiley:" in lines[2]


def test_a_warning_is_one_line_and_a_text_keeps_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    output.warn("a\nb\x9b")
    output.say("a\nb\x9b")
    printed = capsys.readouterr()
    assert printed.err == "a\\u000ab\\u009b\n"
    assert printed.out == "a\nb\\u009b\n"


BAR = """
from ringfence.cli.output import remark
from ringfence.federation.progress import progress
with progress() as bar:
    task = bar.add_task("rounds", total=2)
    bar.advance(task)
    remark(bar, "A remark.")
    bar.advance(task)
"""
"""A command that shows its progress."""

NOTEBOOK = {**os.environ, "FORCE_COLOR": "1", "TERM": "xterm-256color"}
"""What Jupyter sets for the commands it runs."""


def test_no_bar_is_drawn_into_a_pipe_even_where_colour_is_forced() -> None:
    done = subprocess.run([sys.executable, "-c", BAR], env=NOTEBOOK, capture_output=True, text=True, check=True)
    assert done.stderr == "A remark.\n"
    assert done.stdout == ""


def test_a_bar_is_drawn_on_a_terminal() -> None:
    screen, terminal = pty.openpty()
    subprocess.run([sys.executable, "-c", BAR], env=NOTEBOOK, stderr=terminal, check=True)
    os.close(terminal)
    shown = b""
    try:
        while part := os.read(screen, 1 << 16):
            shown += part
    except OSError:  # how Linux says that the other end is closed
        pass
    os.close(screen)
    assert b"rounds" in shown
    assert b"2/2" in shown
    assert b"A remark." in shown
