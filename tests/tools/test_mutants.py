"""Mutants are small mistakes with lasting names; a test that notices one kills it, and the original survives."""

from dataclasses import asdict, replace
from typing import Any

import pytest

from tools.mutants.__main__ import SOURCE, core, equivalents, interval, work
from tools.mutants.operators import Mutant, mutants

SECTIONS = "protocol/plan/sections.py"
TESTS = "tests/silo/gate/test_sections.py"
RULE = f"{TESTS}::test_the_public_rule_never_changes"

PROGRAM = b'''"""Text."""
LEAST: int = 3

@decorated(7)
def chosen(a: "list[1]", b=0.5):
    """Say 1 < 2."""
    if a < b and not a.empty:
        raise ValueError(f"{a + 1} is too small")
    a.used = True
    return max(a - b,
               -1)
'''


def test_a_program_has_a_mutant_for_every_small_mistake_and_none_in_its_text() -> None:
    found = [(mutant.function, mutant.change) for mutant in mutants("program.py", PROGRAM)]
    assert found == [
        ("module", "LEAST: int = «3 → 4»"),
        ("module", "LEAST: int = «3 → 2»"),
        ("chosen", 'def chosen(a: "list[1]", b= «0.5 → 1.0» ):'),
        ("chosen", 'def chosen(a: "list[1]", b= «0.5 → 0.25» ):'),
        ("chosen", "if a «< → <=» b and not a.empty:"),
        ("chosen", "if a «< → >=» b and not a.empty:"),
        ("chosen", "if a < b «and → or» not a.empty:"),
        ("chosen", "if a < b and «not → » a.empty:"),
        ("chosen", '«raise ValueError(f"{a + 1} is too small") → pass»'),
        ("chosen", "«a.used = True → pass»"),
        ("chosen", "a.used = «True → False»"),
        ("chosen", "return «max(a - b, -1) → (None)»"),
        ("chosen", "return «max → min» (a - b, -1)"),
        ("chosen", "return max(a «- → +» b, -1)"),
        ("chosen", "return max(a - b, «- → » 1)"),
        ("chosen", "return max(a - b, - «1 → 2» )"),
        ("chosen", "return max(a - b, - «1 → 0» )"),
    ]


def test_a_mutant_keeps_its_name_when_lines_move() -> None:
    moved = PROGRAM.replace(b"LEAST: int", b"\n\nMORE = 2\nLEAST: int")
    before, after = ({mutant.name for mutant in mutants("program.py", text)} for text in (PROGRAM, moved))
    assert after - before == {"program.py module: MORE = «2 → 3»", "program.py module: MORE = «2 → 1»"}
    assert not before - after


def test_every_mutant_of_the_core_has_its_own_name_and_as_many_lines_as_the_original() -> None:
    for file in [file for group in ("sections", "mechanism", "gate") for file in core([group])[group]]:
        source = (SOURCE / file).read_bytes()
        found = mutants(file, source)
        assert len({mutant.name for mutant in found}) == len(found) > 0
        assert all(mutant.applied(source).count(b"\n") == source.count(b"\n") for mutant in found)


def test_every_mutant_that_is_listed_as_equivalent_exists_and_has_a_reason() -> None:
    listed = equivalents()
    files = {name.split(" ")[0] for name in listed}
    assert listed.keys() <= {each.name for file in files for each in mutants(file, (SOURCE / file).read_bytes())}
    assert all(len(reason) > 20 for reason in listed.values())


def trial(mutant: Mutant, *, imported: bool) -> dict[str, Any]:
    return {"mutant": asdict(mutant), "tests": {RULE: 1.0}, "imported": imported}


def test_a_mistake_is_noticed_wherever_it_takes_effect_and_the_original_never_is() -> None:
    found = mutants(SECTIONS, (SOURCE / SECTIONS).read_bytes())
    inside = next(mutant for mutant in found if mutant.change.startswith("mixed = (numbers «+"))
    at_import = next(mutant for mutant in found if mutant.change == "_BLOCK = «20 → 21»")
    none = replace(inside, change="nothing", new="+ np.uint64(0) +")
    trials = [trial(inside, imported=False), trial(none, imported=False), trial(none, imported=True)]
    trials += [trial(at_import, imported=True), trial(inside, imported=False)]
    results = list(work([{"trials": trials}], [[TESTS]]))
    assert [result["by"] for result in results] == [RULE, None, None, RULE, RULE]
    assert [result["fresh"] for result in results] == [False, False, True, True, False]


def test_the_tests_that_execute_a_line_are_known_and_what_imports_execute_is_known_apart() -> None:
    job = {"measured": True, "files": [SECTIONS], "modules": ["ringfence.protocol.plan.sections"]}
    imports, result = work([job], [["tests/protocol/test_sections.py"]])
    lines = result["lines"][SECTIONS]
    imported = imports["lines"][SECTIONS]
    text = (SOURCE / SECTIONS).read_text(encoding="utf-8").splitlines()
    at_import, inside = (
        next(str(n) for n, line in enumerate(text, 1) if part in line) for part in ("_BLOCK = ", "mixed =")
    )
    assert imported[at_import] == ["while modules are imported"]
    assert lines[inside]
    assert inside not in imported
    assert at_import not in lines
    assert all(name.startswith("tests/protocol/test_sections.py::") for name in lines[inside])


@pytest.mark.parametrize(
    ("killed", "of", "low", "high"), [(38, 40, 0.8308, 0.9939), (0, 10, 0.0, 0.3085), (10, 10, 0.6915, 1)]
)
def test_a_sample_s_interval_is_exact(killed: int, of: int, low: float, high: float) -> None:
    assert interval(killed, of) == pytest.approx((low, high), abs=1e-4)
