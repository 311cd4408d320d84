"""The reference of Python, from the docstrings of the public names: `python -m tools.api_reference` prints it.

`tools/site.py` adds the page to the documentation's site. It is not part of the repository, where `help(ringfence)` and
the docstrings say the same.
"""

import dataclasses
import inspect
import re
import sys
from collections.abc import Iterator
from functools import cached_property
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from pydantic import BaseModel

import ringfence
from ringfence import errors
from ringfence.estimators.base import FederatedLinearModel
from ringfence.estimators.parameters import docstring_of, docstring_sections, section_entries

SECTIONS = {
    "Estimators": [
        "FederatedLogisticRegression",
        "FederatedLinearSVC",
        "FederatedLinearRegression",
        "FederatedHuberRegressor",
        "FederatedQuantileRegressor",
        "FederatedPoissonRegressor",
        "FederatedNegativeBinomialRegressor",
        "FederatedGammaRegressor",
        "FederatedOrdinalClassifier",
        "FederatedSurvivalRegressor",
    ],
    "Schema and records": ["load_schema", "Schema", "load_records", "Records"],
    "Plan": ["make_plan", "propose", "PlanRequest", "Member", "Proposal", "load_plan", "Plan", "Guarantee"],
    "Your own loss": ["custom_loss"],
    "Train": ["train", "Silo", "TrainingResult", "Recorder", "TensorBoard", "Model"],
    "The silo's own": ["Gate", "Ledger", "Budget"],
    "Errors": ["RingfenceError"],
}
INTRODUCTION = """\
# Python

The public names of `ringfence`, from their docstrings. They are loaded on first use, so that importing the server's
side never loads the silo's. Public beside them are the [modules](#modules) below. Others may change without notice.
"""
MODULES = [name for name in ringfence._NAMESPACES if name != "errors"]


def page() -> str:
    """Return the page; every public name must have its place."""
    missing = set(ringfence.__all__) - {name for names in SECTIONS.values() for name in names} - {"__version__"}
    if missing:
        raise SystemExit(f"Public names without a section in tools/api_reference.py: {', '.join(sorted(missing))}.")
    lines = [INTRODUCTION]
    for section, names in SECTIONS.items():
        if section == "Errors":
            lines += ["## Modules\n", "| module | what it has | names |", "|---|---|---|", *_modules(), ""]
        lines += [f"## {section}\n"]
        if section == "Estimators":
            lines += [f"Common to all:\n\n{_prose(inspect.getdoc(FederatedLinearModel) or '')}\n"]
        for name in names:
            lines += list(_entry(name, getattr(ringfence, name)))
    lines += ["| error | what to do |", "|---|---|"]
    return "\n".join([*lines, *_errors()]) + "\n"


def _entry(name: str, thing: Any) -> Iterator[str]:
    """Describe a function, or a class with its own public methods and properties."""
    yield f"### `{name}`\n"
    if not (isinstance(thing, type) and issubclass(thing, Exception)):
        yield f"```text\n{name}{_signature(thing)}\n```\n"
    yield f"{_prose(_own_words(thing))}\n"
    if isinstance(thing, type):
        for header, rows in (("field | what it asks for", _options(thing)), ("member | what it does", _members(thing))):
            table = list(rows)
            if table:
                yield "\n".join([f"| {header} |", "|---|---|", *table]) + "\n"


def _own_words(thing: Any) -> str:
    """Return the docstring; an estimator's without what it has from the base of all."""
    described = inspect.getdoc(thing) or ""
    if not (isinstance(thing, type) and issubclass(thing, FederatedLinearModel)):
        return described
    common, own = docstring_sections(inspect.getdoc(FederatedLinearModel) or ""), docstring_sections(described)
    for heading in ("Parameters", "Attributes"):
        shared = section_entries(common[heading]).values()
        own[heading] = "\n".join(entry for entry in section_entries(own[heading]).values() if entry not in shared)
    return docstring_of(own | {"Notes": own["Notes"].replace(common["Notes"], "").strip()})


def _prose(text: str) -> str:
    """Return a docstring as Markdown: its underlined sections become lists."""
    text, _, examples = text.partition("\n\nExamples\n--------\n")
    lines: list[str] = []
    in_section = False
    for line, below in zip(text.split("\n"), [*text.split("\n")[1:], ""], strict=True):
        if re.fullmatch(r"-{4,}", line):
            continue
        if re.fullmatch(r"-{4,}", below):
            lines += [f"**{line}**", ""]
            in_section = True
        elif in_section and not line.startswith(" ") and " : " in line:
            names, _, meaning = line.partition(" : ")
            lines.append(f"- `{names}`: {meaning}.")
        else:
            in_section = in_section and bool(line)
            lines.append(f"  {line.strip()}" if in_section else line)
    if examples:
        lines += ["", "**Examples**", "", "```text", examples.strip("\n"), "```"]
    return "\n".join(lines)


def _options(owner: type) -> Iterator[str]:
    """Describe the fields that the command line offers as options: both say the same of them."""
    for field in dataclasses.fields(owner) if dataclasses.is_dataclass(owner) else ():
        if option := field.metadata.get("option"):
            yield f"| `{field.name}` | {_first(option.help)} |"


def _modules() -> Iterator[str]:
    """Describe the public modules by the names that they export, or by the modules in them."""
    for name in MODULES:
        module = import_module(f"ringfence.{name}")
        exported = getattr(module, "__all__", None) or [inner.name for inner in iter_modules(module.__path__)]
        yield f"| `ringfence.{name}` | {_first(module.__doc__ or '')} | {', '.join(f'`{each}`' for each in exported)} |"


def _members(owner: type) -> Iterator[str]:
    for name, member in inspect.getmembers_static(owner):
        ours = any(
            name in vars(base)
            for base in owner.__mro__
            if base.__module__.startswith("ringfence") and name in vars(base)
        )
        if name.startswith("_") or not ours:
            continue
        function = getattr(member, "__func__", member)
        is_read = isinstance(member, property | cached_property)
        described = inspect.getdoc(member) if is_read or inspect.isfunction(function) else None
        if described is None:
            continue
        call = "" if is_read else "(" + ", ".join(_arguments(function)) + ")"
        yield f"| `{name}{call}` | {_first(described)} |"


def _arguments(function: Any) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name not in {"self", "cls"}]


def _signature(thing: Any) -> str:
    """Return what a call takes, one parameter a line where it is long; of a public document its fields."""
    if isinstance(thing, type) and issubclass(thing, BaseModel):
        parameters = [f"{name}: {_kind(field.annotation)}" for name, field in thing.model_fields.items()]
        returns = ""
    else:
        taken = inspect.signature(thing).parameters
        parameters = [_parameter(parameter) for parameter in taken.values()]
        returns = "" if isinstance(thing, type) else f" -> {_kind(inspect.signature(thing).return_annotation)}"
    short = f"({', '.join(parameters)}){returns}"
    return short if len(short) < 100 else "(\n    " + ",\n    ".join(parameters) + f",\n){returns}"


def _parameter(parameter: inspect.Parameter) -> str:
    default = repr(parameter.default)
    if callable(parameter.default) or default.startswith("<"):
        default = "..."
    given = "" if parameter.default is inspect.Parameter.empty else f" = {default}"
    return f"{parameter.name}: {_kind(parameter.annotation)}{given}"


def _kind(annotation: Any) -> str:
    """Return a type as one writes it: without modules, without pydantic's notes, unions by `|`."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(r"\b(?:\w+\.)+(?=\w)", "", text)
    text = re.sub(r"Annotated\[([^\[\]]*), FieldInfo\([^()]*\)\]", r"\1", text)
    text = re.sub(r"Annotated\[(\w+), FieldInfo\(.*AfterValidator\(func=<function \w+ at \w+>\)\]", r"\1", text)
    if union := re.fullmatch(r"Union\[(.*)\]", text):
        return union[1].replace(", ", " | ").replace("NoneType", "None")
    optional = re.fullmatch(r"Optional\[(.*)\]", text)
    return f"{optional[1]} | None" if optional else text


def _errors() -> Iterator[str]:
    for name, error in inspect.getmembers(errors, inspect.isclass):
        if issubclass(error, errors.RingfenceError) and error is not errors.RingfenceError:
            yield f"| `errors.{name}` | {_first(inspect.getdoc(error) or '')} |"


def _first(text: str) -> str:
    """Return the first paragraph as one table cell."""
    return " ".join(text.split("\n\n", maxsplit=1)[0].split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(page())
