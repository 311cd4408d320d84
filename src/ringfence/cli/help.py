"""How `--help` looks: options and commands in sections, examples last; and one suggestion for a word mistyped.

It is written with the few parts of click that every version of typer has, those that carry click inside as well, and
looks the same with each of them.
"""

import difflib
import inspect
import re
import textwrap
from collections.abc import Iterable
from typing import Any

import typer
import typer.core

typer.core.HAS_RICH = False  # else plain help has rich's escapes in it: \\[required]

SECTIONS = (
    "Basic", "Privacy", "Model", "Algorithm", "Evaluation", "Statistics", "Shuffler", "Engine", "Deployment", "Ledger",
    "Documentation", "Output", "Other",
)  # fmt: skip
"""The sections that options are shown in, in this order."""

START, TRAIN, OPERATE, SERVE, CHECK = COMMAND_SECTIONS = (
    "Start here", "Train and use models", "Silos and their operators", "Servers and federations",
    "Verify, account and research",
)  # fmt: skip
"""The sections that the first commands are shown in, in this order."""

_FEW = 7
"""A command with no more options than this shows them in one list."""

_EXAMPLES = "\n\nExamples:\n"
"""What the last paragraph of a command's docstring begins with if it shows examples, one per line."""

_CLOSE = 0.7
"""How similar a word must be to be suggested."""

_VALUES = {"str": "TEXT", "int": "INTEGER", "float": "FLOAT", "path": "PATH"}
"""What stands for a value in help, by the type that later versions of typer show instead: <list[str]>."""

Rows = list[tuple[str, str]]


class _Sections:
    """What commands and groups have in common."""

    help: str | None

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return what follows the command's name in its usage: options, arguments, and a group's command."""
        arguments = [p for p in self.get_params(ctx) if p.param_type_name == "argument"]  # type: ignore[attr-defined]
        command = ["COMMAND [ARGS]..."] if hasattr(self, "commands") else []
        return ["[OPTIONS]", *map(_argument, arguments), *command]

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write what the command does to its help page, without its examples."""
        text = (self.help or "").partition(_EXAMPLES)[0]
        if text:
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(text)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options to the help page, in sections if there are many."""
        arguments: Rows = []
        options: dict[str, Rows] = {}
        for parameter in self.get_params(ctx):  # type: ignore[attr-defined]
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            text = record[1].replace("\\[", "[")
            if parameter.param_type_name == "argument":
                arguments.append((_argument(parameter), text))
            else:
                section = getattr(parameter, "rich_help_panel", None) or "Other"
                options.setdefault(section, []).append((_option(record[0]), text))
        _write(formatter, "Arguments", arguments)
        if sum(map(len, options.values())) <= _FEW or len(options) == 1:
            rows = [row for section in options.values() for row in section]
            _write(formatter, "Options", sorted(rows, key=lambda row: row[0] == "--help"))
        else:
            for section in SECTIONS:
                _write(formatter, f"{section} options", options.get(section, []))

    def format_arguments(self, ctx: Any, formatter: Any) -> None:
        """Leave out the section of click 8.5: `format_options` has written the arguments."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples to the help page, one per line, as a shell reads them."""
        examples = (self.help or "").partition(_EXAMPLES)[2]
        if examples:
            with formatter.section("Examples"):
                margin = " " * formatter.current_indent
                for line in examples.splitlines():
                    pairs = re.sub(r"( --\S+) (?!-)", "\\1\0", line.strip())  # an option and its value stay together
                    wrapped = textwrap.wrap(
                        pairs,
                        formatter.width - len(margin) - len(" \\"),
                        subsequent_indent="    ",
                        break_long_words=False,
                        break_on_hyphens=False,
                    )
                    formatter.write(margin + f" \\\n{margin}".join(wrapped).replace("\0", " ") + "\n")

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; explain an option that is missing, and suggest one for an option that does not exist."""
        try:
            return super().parse_args(ctx, args)  # type: ignore[misc, no-any-return]
        except Exception as problem:
            parameters = self.get_params(ctx)  # type: ignore[attr-defined]
            if hasattr(problem, "param_type"):  # click's MissingParameter
                problem.param_hint = f"'{_named(problem.param)}'"  # type: ignore[attr-defined]
                problem.message = _explained(problem.param, parameters, ctx)  # type: ignore[attr-defined]
            mistyped = getattr(problem, "option_name", None)
            if mistyped is None or not hasattr(problem, "possibilities"):  # click's NoSuchOption has both
                raise
            suggestion = _suggestion(mistyped, [name for parameter in parameters for name in parameter.opts])
        return ctx.fail(f"No such option '{mistyped}'.{suggestion}")  # type: ignore[no-any-return]


class Command(_Sections, typer.core.TyperCommand):
    """A command whose help has sections and examples."""

    def __init__(self, *given: Any, **settings: Any) -> None:
        """Make a command; give arguments back the help that typer before 0.26 loses to click 8.5."""
        super().__init__(*given, **settings)
        declared = inspect.signature(self.callback).parameters if self.callback else {}
        for parameter in self.params:
            if parameter.param_type_name == "argument" and parameter.help is None:  # type: ignore[attr-defined]
                [shown] = declared[str(parameter.name)].annotation.__metadata__
                parameter.help = shown.help  # type: ignore[attr-defined]


class Group(_Sections, typer.core.TyperGroup):
    """Commands in sections; a name that none of them has is answered with the most similar one, once."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the group's own options to its help page, then its commands."""
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write every command with the whole of its first sentence to the help page."""
        sections: dict[str, Rows] = {}
        width = max(map(len, self.list_commands(ctx)))
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            section = getattr(command, "rich_help_panel", None) or "Commands"
            sections.setdefault(section, []).append((name.ljust(width), command.get_short_help_str(limit=1000)))
        for section in (*COMMAND_SECTIONS, "Commands"):
            _write(formatter, section, sections.get(section, []))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command of the group that is asked for; suggest one if there is none."""
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None and not ctx.resilient_parsing:
            ctx.fail(f"No such command '{name}'.{_suggestion(name, self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)


def _argument(parameter: Any) -> str:
    """Return an argument as help shows it: in brackets if it may be left out."""
    shown: str = parameter.metavar or parameter.name.upper()
    return shown if parameter.required or shown.startswith("[") else f"[{shown}]"


def _option(shown: str) -> str:
    """Return an option's names and its value's placeholder for help, where typer may show the value's type."""
    return re.sub(r"<(?:list\[)?(\w+)\]?(?: range)?>", lambda found: _VALUES[found[1].lower()], shown).removesuffix(
        " RANGE"
    )


def _suggestion(mistyped: str, offered: Iterable[str]) -> str:
    """Return a question about the offered command or option that is closest to a mistyped one, if any is."""
    close = difflib.get_close_matches(mistyped, list(offered), n=1, cutoff=_CLOSE)
    return f" Did you mean '{close[0]}'?" if close else ""


def _explained(missing: Any, parameters: Iterable[Any], ctx: Any) -> str:
    """Return what a missing parameter is, and which others the command lacks: what was given is read first."""
    lacking = [each for each in parameters if each.required and each is not missing and each.name not in ctx.params]
    more = ", ".join(f"'{_named(parameter)}'" for parameter in lacking)
    return f"{missing.help} Also required: {more}." if more else str(missing.help)


def _named(parameter: Any) -> str:
    """Return an argument or an option as an error names it; typer's own function for it differs between versions."""
    return _argument(parameter) if parameter.param_type_name == "argument" else "' / '".join(parameter.opts)


def _write(formatter: Any, title: str, rows: Rows) -> None:
    """Write a section of a help page, if it has any rows."""
    if rows:
        with formatter.section(title):
            formatter.write_dl(rows)
