"""Licences and known vulnerabilities of what an installation brings: what is unknown is never taken for well."""

import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tools.audit_dependencies import NOT_LOOKED_UP, judge
from tools.licences import EXTRAS, ROOT, brought, declared, is_allowed

ALLOWED: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["licences"]["allowed"]


def test_every_package_that_an_installation_brings_has_a_licence_that_is_allowed() -> None:
    packages = brought("ringfence", EXTRAS, sys.path)
    assert {"numpy", "jax", "nvflare", "pydantic-core"} <= set(packages)  # both extras, and what packages bring
    assert "pytest" not in packages
    assert [name for name, package in packages.items() if not is_allowed(declared(package), ALLOWED)] == []


@pytest.mark.parametrize("expression", ["MIT", "MIT AND ISC", "MIT OR GPL-3.0-only", "(GPL-3.0-only OR MIT) AND ISC"])
def test_an_expression_that_leaves_an_allowed_way_is_allowed(expression: str) -> None:
    assert is_allowed(expression, ["MIT", "ISC"])


@pytest.mark.parametrize(
    "expression",
    [
        "", "GPL-3.0-only", "MIT AND GPL-3.0-only", "MIT OR", "(MIT", "MIT)", "MIT ISC",
        "ISC AND (MIT AND GPL-3.0-only)", "ISC WITH GCC-exception-3.1",
        "GPL-3.0-only OR AGPL-3.0-only", "Copyright (c) 2001 Somebody",
    ],
)  # fmt: skip
def test_what_is_not_allowed_or_not_understood_is_refused(expression: str) -> None:
    assert not is_allowed(expression, ["MIT", "ISC"])


def install(site: Path, name: str, *lines: str) -> None:
    folder = site / f"{name}-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("\n".join(["Metadata-Version: 2.4", f"Name: {name}", "Version: 1.0", *lines, ""]))


def test_a_licence_is_read_from_the_expression_then_classifiers_then_the_free_field(tmp_path: Path) -> None:
    mit, gpl = "Classifier: License :: OSI Approved :: MIT License", "License: GPL-3.0-only"
    install(tmp_path, "top", "License-Expression: ISC", mit, gpl, "Requires-Dist: middle", "Requires-Dist: bare[more]")
    install(tmp_path, "middle", mit, "Classifier: License :: Public Domain", gpl)
    install(tmp_path, "bare", gpl, "Provides-Extra: more", "Requires-Dist: silent; extra == 'more'")
    install(tmp_path, "silent", "Requires-Dist: elsewhere; python_version < '3'")
    install(tmp_path, "stranger", gpl)
    found = {name: declared(package) for name, package in brought("top", [""], [str(tmp_path)]).items()}
    assert found == {"top": "ISC", "middle": "MIT AND LicenseRef-Public-Domain", "bare": "GPL-3.0-only", "silent": ""}


def test_a_package_that_is_not_installed_is_no_package_without_a_licence(tmp_path: Path) -> None:
    install(tmp_path, "top", "Requires-Dist: absent")
    with pytest.raises(SystemExit, match="absent is not installed"):
        brought("top", [""], [str(tmp_path)])


FINE = {"name": "fine", "version": "1", "vulns": []}
HOLED = {"name": "holed", "version": "1", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2"]}]}
SKIPPED = {"name": "skipped", "skip_reason": "Dependency not found on PyPI and could not be audited"}


@pytest.mark.parametrize(
    ("packages", "status", "text"),
    [
        ([FINE], 0, "1 packages looked up, none with a known vulnerability"),
        ([FINE, HOLED], 1, "VULNERABLE: holed 1: PYSEC-1, mended in 2"),
        ([FINE, SKIPPED], NOT_LOOKED_UP, "NOT AUDITED: 1 of 2 packages: skipped"),
        ([HOLED, SKIPPED], 1, "NOT AUDITED: 1 of 2 packages: skipped"),
    ],
)
def test_packages_that_could_not_be_looked_up_are_not_taken_for_sound(
    packages: list[dict[str, Any]], status: int, text: str
) -> None:
    report, ended = judge({"dependencies": packages})
    assert ended == status
    assert text in report
    assert ("none with a known" in report) == (status == 0)
