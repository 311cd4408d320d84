"""`ringfence silo loss`: an operator reads the program of a plan's loss, and installs what was read alone."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence.federation.custom_loss import install_loss
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import Custom, load_schema
from ringfence.protocol.losses.custom import FOLDERS, INSTALLED, digest_of, examined
from tests.cli.conftest import SiloCommands
from tests.silo.agents import SCHEMA, make_silo_folder

SOURCE = "def log_cosh(score, target):\n    return jnp.logaddexp(score - target, target - score)\n"
DIGEST = digest_of(SOURCE)


class Operator(SiloCommands):
    """A silo's folder, and a plan that brings a loss of its own."""

    def __init__(self, place: Path) -> None:
        super().__init__(make_silo_folder(place).path)
        (place / "numbers.toml").write_text(SCHEMA)
        schema = load_schema(place / "numbers.toml", target="a")
        members = [Member("clinic", 40, epsilon=1.0, delta=1e-6)]
        (place / "log_cosh.py").write_text(SOURCE)
        install_loss(place / "log_cosh.py")
        lipschitz, smoothness = examined(SOURCE, 9.0, 1.0)
        own = Custom(
            title="log_cosh", source=SOURCE, digest=DIGEST, largest_score=9.0, largest_target=1.0, lipschitz=lipschitz,
            smoothness=smoothness,
        )  # fmt: skip
        self.plans = {}
        for name, loss in (("own", own), ("squared", None)):
            plan = make_plan(schema, members, PlanRequest(loss=loss, rounds=3, held_out=0.0, survey=False))
            (place / f"{name}.json").write_bytes(plan.content)
            self.plans[name] = plan
        INSTALLED.clear()  # the author had it, and the operator does not
        self.own, self.squared = place / "own.json", place / "squared.json"


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    before, folders = set(INSTALLED), set(FOLDERS)
    yield Operator(tmp_path)
    INSTALLED.intersection_update(before)
    INSTALLED.update(before)
    FOLDERS.intersection_update(folders)


def test_a_program_is_read_then_installed_and_only_then_approved(operator: Operator) -> None:
    assert "is not installed here" in operator.run("review", operator.own).stdout
    shown = operator.run("loss", operator.own)
    assert shown.stdout == SOURCE
    assert f"--install {DIGEST[:12]}" in shown.stderr
    assert not (operator.folder / "losses").exists()
    operator.run("loss", operator.own, "--install", DIGEST[:12])
    (installed,) = (operator.folder / "losses").iterdir()
    assert installed.read_text() == SOURCE
    review = operator.run("review", operator.own).stdout
    assert f"custom 'log_cosh' (a program of sha256 {DIGEST[:12]}…) loss" in review
    digest = operator.plans["own"].digest()
    operator.run("approve", operator.own, "--digest", digest)
    text = operator.json("loss", operator.own)
    assert text == {"title": "log_cosh", "sha256": DIGEST, "source": SOURCE, "installed": str(installed)}


@pytest.mark.parametrize("digest", ["0" * 64, DIGEST[:11], ""])
def test_another_digest_installs_nothing(operator: Operator, digest: str) -> None:
    operator.refuses("does not have that SHA-256", "loss", operator.own, "--install", digest)
    assert not (operator.folder / "losses").exists()


def test_a_plan_of_a_known_loss_brings_nothing_to_install(operator: Operator) -> None:
    operator.refuses("has no loss of its own", "loss", operator.squared)


@pytest.fixture
def installed(operator: Operator) -> Path:
    """The file of an installed loss."""
    operator.run("loss", operator.own, "--install", DIGEST[:12])
    (file,) = (operator.folder / "losses").iterdir()
    return file


def require_refused(operator: Operator, says: str) -> None:
    assert says in " ".join(operator.run("review", operator.own).stdout.split())
    operator.refuses(says, "approve", operator.own, "--digest", operator.plans["own"].digest())


def test_what_others_may_change_is_not_computed(
    operator: Operator, installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed.chmod(0o622)
    require_refused(operator, "can be changed by other users")
    installed.chmod(0o600)
    installed.parent.chmod(0o777)
    require_refused(operator, "can be changed by other users")
    installed.parent.chmod(0o700)
    if os.geteuid() == 0:
        os.chown(installed, 1, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 1)
    require_refused(operator, "can be changed by other users")


@pytest.mark.parametrize("content", [SOURCE.replace("score - target", "score + target"), SOURCE * 2, "", "x" * 10_000])
def test_a_loss_that_was_swapped_under_its_name_is_refused(operator: Operator, installed: Path, content: str) -> None:
    """A plan with the digest in the file's name would otherwise be computed by another program, or not at all."""
    installed.write_text(content)
    require_refused(operator, "does not hold the loss with the SHA-256 in its name")
    operator.run("loss", operator.own, "--install", DIGEST[:12])
    operator.run("approve", operator.own, "--digest", operator.plans["own"].digest())


def test_a_link_to_a_loss_installs_nothing(operator: Operator, installed: Path, tmp_path: Path) -> None:
    elsewhere = installed.rename(tmp_path / "elsewhere.py")
    installed.symlink_to(elsewhere)
    require_refused(operator, "is a link or no file")
    installed.unlink()
    elsewhere.rename(installed)
    folder = installed.parent.rename(tmp_path / "folder")
    installed.parent.symlink_to(folder)
    require_refused(operator, "is a link or no file")


def test_no_command_opens_a_file_of_a_loss_that_no_plan_names(operator: Operator, installed: Path) -> None:
    """Whatever lies there: a program, something that is none, or a pipe that nobody writes to."""
    (operator.folder / "losses" / "run.py").write_text(f"open({str(operator.folder / 'ran')!r}, 'w')\n")
    (operator.folder / "losses" / "bytes.py").write_bytes(b"\xff")
    os.mkfifo(operator.folder / "losses" / "pipe.py")
    installed.unlink()
    os.mkfifo(installed)
    operator.run("status")
    operator.run("review", operator.squared)
    operator.run("approve", operator.squared, "--digest", operator.plans["squared"].digest())
    require_refused(operator, "is a link or no file")
    assert not (operator.folder / "ran").exists()
