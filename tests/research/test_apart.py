"""Research stays apart: the command line loads it on first use, and its theory needs no more than a silo does."""

import subprocess
import sys

import pytest


def loaded_by(*modules: str) -> set[str]:
    code = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split())


def test_the_command_line_does_not_load_research_before_it_is_asked_to() -> None:
    assert "ringfence.research" not in loaded_by("ringfence.cli.main")


@pytest.mark.parametrize("module", ["bound_report", "correlation", "queries"])
def test_the_theory_loads_nothing_that_the_base_install_lacks(module: str) -> None:
    roots = {name.split(".")[0] for name in loaded_by(f"ringfence.research.theory.{module}")}
    assert not roots & {"jax", "joblib", "matplotlib", "markdown_it", "mlxtend", "sklearn"}
