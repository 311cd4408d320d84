"""`--help`: every command and option explains itself, and the defaults it names are the ones that hold.

What was mistyped is answered with a suggestion, and the reference leaves nothing out.
"""

import re
import shlex
from typing import Any

import pytest
from typer.main import get_command

from ringfence.cli.help import SECTIONS
from ringfence.cli.main import app
from tests.cli.conftest import Federation, ringfence, ringfence_json
from tools import command_reference

ROOT: Any = get_command(app)
COMMANDS: dict[str, Any] = {
    "": ROOT,
    **ROOT.commands,
    **{
        f"{group} {name}": command
        for group, inner in ROOT.commands.items()
        for name, command in getattr(inner, "commands", {}).items()
    },
}


def words(text: str) -> str:
    """The text without line breaks, and without the break after a hyphen."""
    return re.sub(r"\s+", " ", re.sub(r"-\n\s+", "-", text))


def test_all_commands_are_there() -> None:
    assert set(COMMANDS) == {
        "", "account", "plan", "bounds", "statistics", "train", "evaluate", "predict", "ledger", "demo", "reproduce",
        "audit", "verify", "dossier", "dossier key", "dossier write", "dossier verify",
        "tour", "doctor", "schema", "schema check", "schema draft", "server", "server run",
        "server start", "server key", "server request", "server join", "server service", "federation",
        "federation init", "federation sign",
        "shuffler", "shuffler init", "shuffler add", "shuffler end", "shuffler restore", "shuffler serve",
        "shuffler service", "shuffler status", "silo request", "silo service",
        "silo", "silo init", "silo serve", "silo page", "silo review", "silo approve", "silo revoke", "silo end",
        "silo budget", "silo status", "silo ledger", "silo certificate", "silo join", "silo courier", "silo backup",
        "silo restore", "silo update", "silo register", "silo personalise", "silo compare", "silo loss", "model",
        "model export", "model show", "model card", "model statement", "model summary",
        "example",
    }  # fmt: skip


def examples(command: str) -> list[str]:
    """The examples at the end of a command's help, each on one line."""
    text = (COMMANDS[command].help or "").partition("\n\nExamples:\n")[2]
    return [line.strip() for line in text.splitlines()]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_explains_every_option_in_its_section_with_examples_at_the_end(command: str) -> None:
    done = ringfence(*command.split(), "--help")
    assert done.stderr == ""
    arguments = [p for p in COMMANDS[command].params if p.param_type_name == "argument"]
    assert done.stdout.startswith(" ".join(["Usage: ringfence", *command.split(), "[OPTIONS]"]))
    assert all(p.metavar is None or p.metavar in done.stdout.splitlines()[0] for p in arguments)
    assert not re.search(r"\\\[|<\w|RANGE", done.stdout)
    shown = words(done.stdout)
    for parameter in COMMANDS[command].params:
        assert parameter.help, parameter.name
        assert words(parameter.help) in shown
        for spelling in [*parameter.opts, *parameter.secondary_opts] if parameter.param_type_name == "option" else []:
            assert spelling in shown
    assert {getattr(p, "rich_help_panel", None) or "Other" for p in COMMANDS[command].params} <= {*SECTIONS}
    options = [p for p in COMMANDS[command].params if p.param_type_name == "option"]
    assert len(options) < 7 or all(p.rich_help_panel for p in options)
    sections = re.findall(r"^(\S.*):$", done.stdout, re.MULTILINE)
    assert [title for title in sections if title.removesuffix(" options") in SECTIONS] == [
        f"{section} options" for section in SECTIONS if f"{section} options" in sections
    ]
    for example in examples(command):
        assert words(example) in words(done.stdout.partition("\nExamples:\n")[2].replace(" \\\n", " "))


@pytest.mark.parametrize("command", [name for name in COMMANDS if examples(name)])
def test_every_example_is_a_command_that_can_be_parsed(command: str) -> None:
    for example in examples(command):
        program, *arguments = shlex.split(example)
        assert program == "ringfence"
        assert example.startswith(f"ringfence {command}".rstrip())
        found, context = ROOT, ROOT.make_context("ringfence", [], resilient_parsing=True)
        while hasattr(found, "commands"):
            name, found, arguments = found.resolve_command(context, arguments)
            context = found.make_context(name, list(arguments), parent=context) if arguments != ["--help"] else context


def test_commands_that_people_meet_first_have_examples() -> None:
    groups = {name for name, command in COMMANDS.items() if hasattr(command, "commands")}
    assert {name for name in COMMANDS if not examples(name)} - groups == {
        "silo ledger", "shuffler end", "shuffler restore", "shuffler status",
    }  # fmt: skip


@pytest.mark.parametrize("command", [name for name, command in COMMANDS.items() if hasattr(command, "commands")])
def test_a_list_of_commands_shows_one_whole_sentence_in_one_line_for_each(command: str) -> None:
    shown = ringfence(*command.split(), "--help").stdout.splitlines()
    assert "..." not in "".join(shown).partition("Show this message and exit.")[2].partition("Examples:")[0]
    for name, inner in COMMANDS[command].commands.items():
        [line] = [line for line in shown if line.startswith(f"  {name} ")]
        assert len(line) <= 78
        assert line.endswith(inner.help.splitlines()[0])
        assert line.endswith(".")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["tran"], "No such command 'tran'. Did you mean 'train'?"),
        (["silo", "aprove"], "No such command 'aprove'. Did you mean 'approve'?"),
        (["xyzzy"], "No such command 'xyzzy'."),
        (["train", "--epsilo", "1"], "No such option '--epsilo'. Did you mean '--epsilon'?"),
        (["silo", "status", "--jso"], "No such option '--jso'. Did you mean '--json'?"),
        (["--vresion"], "No such option '--vresion'. Did you mean '--version'?"),
        (["train", "--xyzzy"], "No such option '--xyzzy'."),
        (
            ["plan"],
            "Missing option '--schema'. The public schema (TOML). `ringfence schema draft` writes a first one, "
            "`ringfence example` one to try. Also required: '--target', '--silo', '--epsilon'.",
        ),
        (
            ["train", "--epsilon", "1"],
            "Missing argument 'SILO.csv...'. One table per silo, named after it: north.csv is silo 'north'. `ringfence "
            "example` writes three to try. Also required: '--schema', '--target'.",
        ),
    ],
)
def test_a_mistyped_or_missing_word_is_named_with_one_suggestion_or_an_explanation(given: list[str], says: str) -> None:
    done = ringfence(*given, status=2)
    assert done.stderr.splitlines()[-1] == f"Error: {says}"


@pytest.mark.parametrize(
    "command", [name for name, command in COMMANDS.items() if any(parameter.required for parameter in command.params)]
)
def test_every_command_names_all_that_it_requires(command: str) -> None:
    required = [parameter for parameter in COMMANDS[command].params if parameter.required]
    report = ringfence(*command.split(), status=2).stderr.splitlines()[-1]
    context = COMMANDS[command].make_context(command, [], resilient_parsing=True)
    assert all(parameter.get_error_hint(context) in report for parameter in required)
    assert any(parameter.help in report for parameter in required)


def test_missing_options_are_named_without_the_function_that_differs_between_versions_of_typer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        type(COMMANDS["plan"].params[0]), "get_error_hint", lambda self: "", raising=False
    )  # as in 0.29
    with pytest.raises(Exception, match="Also required") as missing:
        COMMANDS["plan"].make_context("plan", [])
    assert getattr(missing.value, "param_hint", None) == "'--schema'"
    assert str(getattr(missing.value, "message", "")).endswith("Also required: '--target', '--silo', '--epsilon'.")


REFERENCE = command_reference.page()


@pytest.mark.parametrize(
    "command", [name for name, found in COMMANDS.items() if name and not hasattr(found, "commands")]
)
def test_the_reference_has_every_command_with_all_its_options(command: str) -> None:
    section = re.search(rf"^## `ringfence {command}`\n(.*?)(?=^## |\Z)", REFERENCE, re.DOTALL | re.MULTILINE)
    assert section
    for parameter in COMMANDS[command].params:
        for option in parameter.opts if parameter.param_type_name == "option" else []:
            assert option in section[1], f"{command} {option}"
    assert all(example in section[1] for example in examples(command))


def same_but_for_its_name(plan: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in plan.items() if key != "run"}


@pytest.mark.parametrize(
    ("given", "default"),
    [
        (
            ["--risk", "empirical", "--max-rounds", "100", "--quantile", "0.5", "--correlation", "0", "--ridge", "0",
             "--weights", "records", "--average", "weighted", "--delta", "1e-6", "--trust", "nobody",
             "--budget", f"south=1,{1 / 3000**2!r}", "--algorithm", "accelerated"],
            ["--algorithm", "accelerated"],
        ),
        (["--algorithm", "minibatch-sgd", "--average", "weighted"], ["--algorithm", "minibatch-sgd"]),
        (["--step", "0.1", "--average", "tail", "--rounds", "100", "--sampling", "full"], ["--step", "0.1"]),
        (["--available", "2"], []),
    ],
)  # fmt: skip
def test_the_defaults_that_help_names_are_the_ones_that_hold(
    federation: Federation, given: list[str], default: list[str]
) -> None:
    said, silent = (
        same_but_for_its_name(ringfence_json(*federation.plan(*options))["plan"]) for options in (given, default)
    )
    for plan in (said, silent):
        for stage in plan["stages"]:
            stage["participation"].setdefault("silos", 2)  # of 2: all
    assert said == silent


@pytest.mark.parametrize("loss", ["huber", "epsilon-insensitive"])
def test_the_margin_is_a_tenth_of_the_target_s_bound(federation: Federation, loss: str) -> None:
    said, silent = (
        ringfence_json(*federation.plan("--loss", loss, *given, target="cost"))["plan"]["training"]["loss"]
        for given in (["--margin", "0.1"], [])
    )
    assert said == silent
