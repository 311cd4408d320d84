"""A request for a plan: every option declared once, checked where it is made, and offered by the command line."""

import dataclasses
import math
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, get_args

import pytest
import typer
from pydantic import Field, TypeAdapter
from typer.main import get_command
from typer.testing import CliRunner

from ringfence.cli.main import app
from ringfence.cli.options import as_typer_command
from ringfence.errors import PlanError
from ringfence.planning.options import Option
from ringfence.planning.request import Member, PlanRequest, Risk, Trust, Weights, clear_refusals
from ringfence.protocol import Average, OnePass, Participation, Phased, PublicKeys
from ringfence.protocol.plan.plan import EVERYBODY
from ringfence.protocol.plan.sampling import SAMPLING_NAMES

FIELDS = {field.name: field for field in dataclasses.fields(PlanRequest)}
OPTIONS: dict[str, Option] = {
    name: field.metadata["option"] for name, field in FIELDS.items() if "option" in field.metadata
}
CHOICES: dict[str, tuple[str, ...]] = {
    "risk": get_args(Risk),
    "sampling": SAMPLING_NAMES,
    "average": get_args(Average),
    "weights": get_args(Weights),
    "trust": get_args(Trust),
}


def refusal(**fields: Any) -> str:
    with pytest.raises(PlanError) as refused:
        PlanRequest(**fields)
    sentence = str(refused.value)
    assert sentence.endswith(".")
    assert sentence.count(". ") == 0
    return sentence


# What may be asked


def test_asking_for_nothing_is_a_request_to_choose_everything() -> None:
    request = PlanRequest()
    assert {name for name in FIELDS if getattr(request, name)} == {"risk", "quantile", "dispersion", "trust"}
    assert (request.risk, request.quantile, request.weights, request.trust) == ("empirical", 0.5, None, "nobody")


@pytest.mark.parametrize("name", CHOICES)
def test_a_choice_is_one_of_those_that_there_are(name: str) -> None:
    for value in CHOICES[name]:
        chosen: dict[str, Any] = {name: value}
        assert getattr(PlanRequest(**chosen), name) == value
    for value in ("some", "", CHOICES[name][0].upper()):
        assert f"one of {', '.join(CHOICES[name])}, not '{value}'" in refusal(**{name: value})


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        *[({which: count}, "at least one round") for which in ("rounds", "most_rounds") for count in (0, -3)],
        ({"batch": 0}, "at least 1"),
        ({"rounds": 3, "most_rounds": 5}, "Give either the exact number of rounds"),
        *[
            ({"clip": bad}, "The clip must be a positive number")
            for bad in (0.0, -1.0, math.nan, math.inf, 1e-320, 1e300)
        ],
        *[({"distance": bad}, "The distance must be a positive") for bad in (0.0, -1.0, math.nan, math.inf, 1e300)],
        *[({"ridge": bad}, "The ridge must be 0 or a positive number") for bad in (-1.0, math.nan, math.inf)],
        *[({"lasso": bad}, "The lasso must be 0 or a positive number") for bad in (-1.0, math.nan, math.inf)],
    ],
    ids=str,
)
def test_numbers_that_no_plan_can_have_are_refused_where_they_are_given(fields: dict[str, Any], says: str) -> None:
    assert says in refusal(**fields)


# Who takes part


def test_members_have_the_budgets_that_were_asked_for() -> None:
    request = PlanRequest(epsilon=1.0, delta=1e-6, batch=7, budgets={"b": (0.5, 1e-9)})
    assert request.members({"a": 100, "b": 200}) == [
        Member("a", 80, 1.0, 1e-6, 7, None, held_out=20),
        Member("b", 160, 0.5, 1e-9, 7, None, held_out=40),
    ]


def test_without_an_epsilon_nobody_knows_what_members_allow() -> None:
    with pytest.raises(PlanError, match="give the request an epsilon"):
        PlanRequest().members({"a": 100})


def test_without_a_delta_it_is_the_default_for_the_silo_s_size() -> None:
    assert [Member("a", records, 1.0).allowed_delta for records in (10, 10_000)] == [1e-5, 1e-8]
    assert Member("a", 10, 1.0, 0.1).allowed_delta == 0.1


def test_a_member_s_batch_is_the_rule_s_or_is_refused() -> None:
    assert Member("a", 100, 1.0).batch_under(OnePass(), 10) == 10
    assert Member("a", 100, 1.0, batch=3).batch_under(OnePass(), 10) == 3
    with pytest.raises(PlanError, match="leave the batch out"):
        Member("a", 100, 1.0, batch=3).batch_under(Phased(), 10)


def test_how_many_silos_are_asked_is_said_by_number_or_by_a_rule() -> None:
    assert PlanRequest().silos_per_round() == EVERYBODY
    assert PlanRequest(available=2).silos_per_round() == Participation(silos=2)
    assert PlanRequest(participation=Participation(probability=0.5)).silos_per_round() == Participation(probability=0.5)
    with pytest.raises(PlanError, match="No plan can be made from this: silos: "):
        PlanRequest(available=0).silos_per_round()


def test_a_document_s_own_refusal_becomes_one_sentence_and_other_errors_pass() -> None:
    adapter: TypeAdapter[int] = TypeAdapter(Annotated[int, Field(ge=1)])
    with (
        pytest.raises(PlanError, match=r"^No plan can be made from this: .* greater than or equal to 1\.$"),
        clear_refusals(),
    ):
        adapter.validate_python(0)
    with pytest.raises(ZeroDivisionError), clear_refusals():
        raise ZeroDivisionError


# On the command line


def parameters(command: str) -> list[Any]:
    root: Any = get_command(app)
    found: list[Any] = root.commands[command].params
    return found


@pytest.mark.parametrize("command", ["plan", "train"])
def test_the_command_line_offers_every_option_of_a_request_once_under_its_own_name(command: str) -> None:
    offered = Counter(spelling for parameter in parameters(command) for spelling in parameter.opts)
    by_name = {parameter.name: parameter for parameter in parameters(command)}
    for name, option in OPTIONS.items():
        flag = f"--{(option.flag or name.replace('_', '-')).split('/')[0]}"
        assert offered[flag] == 1
        assert by_name[name].opts == [flag]
        assert by_name[name].help == option.help
    assert max(offered.values()) == 1
    helps = Counter(parameter.help for parameter in parameters(command))
    assert all(helps[option.help] == 1 for option in OPTIONS.values())


@pytest.mark.parametrize("command", ["plan", "train"])
def test_what_is_left_out_on_the_command_line_is_what_a_request_leaves_out(command: str) -> None:
    by_name = {parameter.name: parameter for parameter in parameters(command)}
    for name in OPTIONS.keys() - {"epsilon", "budgets"}:
        assert by_name[name].default == FIELDS[name].default
        assert not by_name[name].required
    assert by_name["epsilon"].required, "there are no members to say it"


def test_only_what_no_text_can_say_is_not_offered() -> None:
    assert FIELDS.keys() - OPTIONS.keys() == {"domain", "participation", "run"}


KEYS = PublicKeys(server="5e" * 32, shuffler="5f" * 32, silos={"a": "a0" * 32})
SAID: dict[str, tuple[list[str], Any]] = {
    "epsilon": (["--epsilon", "2.5"], 2.5),
    "delta": (["--delta", "1e-7"], 1e-7),
    "budgets": (["--budget", "a=1,1e-6", "--budget", "b=2,1e-7"], {"a": (1.0, 1e-6), "b": (2.0, 1e-7)}),
    "algorithm": (["--algorithm", "accelerated"], "accelerated"),
    "risk": (["--risk", "population"], "population"),
    "rounds": (["--rounds", "7"], 7),
    "most_rounds": (["--max-rounds", "8"], 8),
    "loss": (["--loss", "hinge"], "hinge"),
    "quantile": (["--quantile", "0.9"], 0.9),
    "dispersion": (["--dispersion", "0.5"], 0.5),
    "cuts": (["--cuts", "1,2.5"], (1.0, 2.5)),
    "margin": (["--margin", "0.2"], 0.2),
    "figures": (["--figures", "accuracy, recall"], ("accuracy", "recall")),
    "sampling": (["--sampling", "one-pass"], "one-pass"),
    "batch": (["--batch", "9"], 9),
    "unit": (["--unit", "person"], "person"),
    "person_rule": (["--person-rule", "sum"], "sum"),
    "rows_per_person": (["--rows-per-person", "3"], 3),
    "held_out": (["--held-out", "0.3"], 0.3),
    "clip": (["--clip", "0.5"], 0.5),
    "distance": (["--distance", "3"], 3.0),
    "step": (["--step", "0.1"], 0.1),
    "average": (["--average", "tail"], "tail"),
    "correlation": (["--correlation", "0.4"], 0.4),
    "survey": (["--no-survey"], False),
    "curves": (["--curves", "none"], 0),
    "ridge": (["--ridge", "0.01"], 0.01),
    "lasso": (["--lasso", "0.02"], 0.02),
    "weights": (["--weights", "equal"], "equal"),
    "available": (["--available", "2"], 2),
    "trust": (["--trust", "shuffler"], "shuffler"),
    "keys": (["--keys", "keys.toml"], KEYS),
    "quorum": (["--quorum", "3"], 3),
    "colluders": (["--colluders", "2"], 2),
    "bits": (["--bits", "500"], 500),
    "purpose": (["--purpose", "research into falls"], "research into falls"),
    "controller": (["--controller", "A Clinic"], "A Clinic"),
    "contact": (["--contact", "dpo@clinic.example"], "dpo@clinic.example"),
}


def test_what_is_said_on_the_command_line_is_asked_for_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("keys.toml").write_text(
        f'server = "{KEYS.server}"\nshuffler = "{KEYS.shuffler}"\n[silos]\na = "{"a0" * 32}"\n'
    )
    asked: list[PlanRequest] = []
    commands = typer.Typer()

    @commands.command()
    @as_typer_command
    def ask(request: PlanRequest) -> None:
        asked.append(request)

    assert SAID.keys() == OPTIONS.keys()
    for name, (words, value) in SAID.items():
        done = CliRunner().invoke(commands, words if name == "epsilon" else ["--epsilon", "1", *words])
        assert done.exit_code == 0, done.output
        assert asked.pop() == PlanRequest(**{"epsilon": 1.0, name: value})
        assert value != FIELDS[name].default


def test_a_budget_for_a_silo_that_there_is_not_is_refused() -> None:
    """Misspelt, it would leave the silo with the others' larger epsilon."""
    request = PlanRequest(epsilon=1.0, budgets={"nort": (0.5, 1e-6)})
    with pytest.raises(PlanError, match="There is a budget for silo 'nort', but the silos are north, south"):
        request.members({"north": 10, "south": 10})
