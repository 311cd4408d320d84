"""The reference of the command line, from the commands' own `--help`: `python -m tools.command_reference` prints it.

`tools/site.py` adds the page to the documentation's site. It is not part of the repository: `--help` says the same.
"""

import sys
from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from ringfence.cli.help import COMMAND_SECTIONS, SECTIONS
from ringfence.cli.main import app

INTRODUCTION = """\
# Command line

Every command, its arguments, options and examples, as `ringfence COMMAND --help` shows them.

- Tables and JSON go to standard output. The progress bar goes to standard error, and only to a terminal.
- `--json` prints one JSON object and nothing else, with numbers in full precision. An epsilon that cannot be bounded is
  `null`. A cost, a claim or a budget is a list with one object per observer (`epsilon`, `delta`, `against`).
  `against` is `"anyone"` or, with a shuffler, also `"server"`: the server and as many other silos as the plan names.
- An error is one line on standard error that begins with `ringfence: `. It never contains a record's value: a cell is
  named by file, row and column, with the header as row 1.
- The exit status is 0 if the command succeeded, 1 if it was refused or failed, 2 for a usage error, 130 after Ctrl-C.
"""


def page() -> str:
    """Return the page: a table of all commands, then one section per command."""
    root: Any = get_command(app)
    lines = [INTRODUCTION]
    for section in COMMAND_SECTIONS:
        lines += [f"**{section}**\n", "| command | what it does |", "|---|---|"]
        for name, command in root.commands.items():
            if getattr(command, "rich_help_panel", None) == section:
                for path, inner in _commands(name, command):
                    lines.append(f"| [`{path}`](#{anchor(path)}) | {_first(inner)} |")
        lines.append("")
    for name, command in root.commands.items():
        for path, inner in _commands(name, command):
            lines += _entry(path, inner)
    return "\n".join(lines) + "\n"


def anchor(path: str) -> str:
    """Return the anchor of a command's section."""
    return "ringfence-" + path.replace(" ", "-")


def _commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Yield a command, or all commands of a group, with their names as one types them."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield name, command
    else:
        for each, found in inner.items():
            yield from _commands(f"{name} {each}", found)


def _first(command: Any) -> str:
    return _cell((command.help or "").split("\n\n", maxsplit=1)[0])


def _entry(path: str, command: Any) -> Iterator[str]:
    """Describe one command: what it does, its usage, its arguments and options by section, its examples."""
    text, _, examples = (command.help or "").partition("\n\nExamples:\n")
    context = command.make_context(path, [], resilient_parsing=True)
    usage = " ".join(["ringfence", path, *command.collect_usage_pieces(context)])
    yield f"## `ringfence {path}`\n\n{text}\n\n```text\n{usage}\n```\n"
    rows: dict[str, list[str]] = {}
    for parameter in command.get_params(context):
        shown = parameter.get_help_record(context)
        if shown is None or parameter.name == "help":
            continue
        is_argument = parameter.param_type_name == "argument"
        section = "Arguments" if is_argument else (getattr(parameter, "rich_help_panel", None) or "Other")
        name = (parameter.metavar or parameter.name.upper()) if is_argument else shown[0]
        rows.setdefault(section, []).append(f"| `{_cell(name)}` | {_cell(shown[1])} |")
    if rows:
        yield "| argument or option | meaning |\n|---|---|"
        yield "\n".join(row for section in ("Arguments", *SECTIONS) for row in rows.get(section, [])) + "\n"
    if examples:
        yield "```text\n" + "\n".join(line.strip() for line in examples.splitlines()) + "\n```\n"


def _cell(text: str) -> str:
    """Return a text as one cell of a table."""
    return " ".join(text.replace("\\[", "[").split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(page())
