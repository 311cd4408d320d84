"""Certificates and transcripts of one ledger fit together, or prove that it was put back."""

import shutil
from pathlib import Path

import pytest

from ringfence.errors import CertificateError, TranscriptError
from ringfence.evidence.forks import require_one_history, require_transcript_heads
from ringfence.protocol import NoisyUpdate, Plan
from ringfence.server.transcript import NAME, Answered, RunHeader, to_line
from ringfence.silo.folder import SiloFolder
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.certificate import export
from ringfence.silo.operator.decisions import set_budget
from tests.silo.agents import approved, make_silo_folder
from tests.support import MakePlan, ask


@pytest.fixture
def silo_folder(tmp_path: Path) -> SiloFolder:
    return make_silo_folder(tmp_path)


@pytest.fixture
def plan(silo_folder: SiloFolder, plan_of: MakePlan) -> Plan:
    return approved(silo_folder, plan_of())


def certificate(silo_folder: SiloFolder, name: str) -> Path:
    out = silo_folder.path.parent / f"{name}.json"
    export(silo_folder, out)
    return out


def transcript(silo_folder: SiloFolder, plan: Plan, *rounds: int, silo: str = "clinic") -> Path:
    """Ask for rounds, and write a transcript of the answers."""
    folder = silo_folder.path.parent / f"run-{rounds}-{silo}"
    folder.mkdir()
    with silo_folder.ledger() as ledger:
        gate = Gate(silo_folder.records(), ledger, silo_folder.key())
        answers = [ask(gate, plan, round) for round in rounds]
    assert all(isinstance(answer, NoisyUpdate) for answer in answers)
    lines = [to_line(Answered.of(answer.round, silo, answer.to_bytes())) for answer in answers]
    lines.append(to_line(Answered.of(rounds[-1], silo, b"nothing of ours")))
    (folder / NAME).write_bytes(to_line(RunHeader(plan=plan, seed=1)) + b"".join(lines))
    return folder


def roll_back(silo_folder: SiloFolder, older: Path, state: Path) -> None:
    shutil.copyfile(older, silo_folder.ledger_path)
    shutil.rmtree(state / "ringfence")


def test_certificates_of_a_ledger_that_grew_are_of_one_history_in_any_order(
    silo_folder: SiloFolder, plan: Plan
) -> None:
    files = [certificate(silo_folder, "0")]
    for round in range(3):
        transcript(silo_folder, plan, round)
        files.append(certificate(silo_folder, f"{round + 1}"))
    require_one_history(files)
    require_one_history(files[::-1])
    require_one_history(files[:1])


def test_a_fork_is_proved_and_its_first_entry_named(
    silo_folder: SiloFolder, plan: Plan, tmp_path: Path, own_state: Path
) -> None:
    older = tmp_path / "older.ledger"
    transcript(silo_folder, plan, 0)
    shutil.copyfile(silo_folder.ledger_path, older)
    common = certificate(silo_folder, "common")
    transcript(silo_folder, plan, 1, 2)
    first = certificate(silo_folder, "first")
    roll_back(silo_folder, older, own_state)
    set_budget(silo_folder, Budget(9.0, 1e-6), note="a test")
    second = certificate(silo_folder, "second")
    require_one_history([common, first])
    require_one_history([common, second])
    for files in ([first, second], [second, first], [common, second, first]):
        with pytest.raises(
            CertificateError, match=r"'clinic' prove a fork: .* differ from entry 6 on \((budget|charged)"
        ):
            require_one_history(files)


def test_certificates_of_two_ledgers_are_not_compared(silo_folder: SiloFolder, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = make_silo_folder(tmp_path / "other", seed=8)
    with pytest.raises(CertificateError, match="are not of the same ledger"):
        require_one_history([certificate(silo_folder, "one"), certificate(other, "two")])


def test_a_transcript_s_heads_lie_on_the_certificate(silo_folder: SiloFolder, plan: Plan) -> None:
    run = transcript(silo_folder, plan, 0, 1, 1, 2)
    found = require_transcript_heads(certificate(silo_folder, "after"), run)
    assert (found.heads, found.elsewhere, found.unsigned) == (4, 0, 0)
    assert "4 heads of this ledger, and each matches an entry." in found.text()


def test_a_certificate_that_lacks_what_a_silo_signed_is_refused(silo_folder: SiloFolder, plan: Plan) -> None:
    before = certificate(silo_folder, "before")
    run = transcript(silo_folder, plan, 0, 1)
    with pytest.raises(CertificateError, match=r"had entry 4, but this certificate ends with entry 3.*lost it"):
        require_transcript_heads(before, run)


def test_a_certificate_of_a_ledger_that_went_another_way_is_refuted(
    silo_folder: SiloFolder, plan: Plan, tmp_path: Path, own_state: Path
) -> None:
    older = tmp_path / "older.ledger"
    shutil.copyfile(silo_folder.ledger_path, older)
    run = transcript(silo_folder, plan, 0)
    roll_back(silo_folder, older, own_state)
    transcript(silo_folder, plan, 1, 2)
    with pytest.raises(CertificateError, match=r"signed a different entry 4 .* proves a fork"):
        require_transcript_heads(certificate(silo_folder, "other"), run)


def test_other_silos_heads_and_those_of_other_ledgers_are_counted_and_prove_nothing(
    silo_folder: SiloFolder, plan: Plan, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    other = make_silo_folder(tmp_path / "other", seed=8)
    approved(other, plan)
    mine = certificate(silo_folder, "mine")
    assert require_transcript_heads(mine, transcript(other, plan, 0, 1)).unsigned == 2
    shutil.copyfile(silo_folder.key_path, other.key_path)
    found = require_transcript_heads(mine, transcript(other, plan, 2, 3))
    assert (found.heads, found.elsewhere, found.unsigned) == (0, 2, 0)
    assert "no head of this ledger" in found.text()
    found = require_transcript_heads(mine, transcript(silo_folder, plan, 0, silo="north"))
    assert (found.heads, found.elsewhere, found.unsigned) == (0, 0, 0)
    with pytest.raises(TranscriptError, match="holds no run"):
        require_transcript_heads(mine, tmp_path)
