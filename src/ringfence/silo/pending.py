"""Plans that wait for the operator's decision: files in the folder `plans` of the silo's folder.

Whoever brings a plan, by whatever way, puts it there as a file or pastes it into the operator's page. That decides
nothing: only an approval does, and it names a plan by its digest, so that a file which is changed after it was read
approves nothing else. A refused plan's file is renamed, not deleted.
"""

from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

from ringfence.errors import PlanError, SiloError
from ringfence.protocol.plan import Plan, load_plan
from ringfence.silo.folder import SiloFolder
from ringfence.storage.private_files import write_private

MOST_FILES = 100
"""More files than this are not looked at: an operator decides on a few."""


@dataclass(frozen=True)
class Pending:
    """The plans that wait, by digest, and the files that hold none, with the reason."""

    plans: dict[str, Plan]
    files: dict[str, Path]
    unreadable: dict[str, str]


def plans_folder(folder: SiloFolder) -> Path:
    """Return the folder of waiting plans; make it, closed to other users, if it is not there."""
    path = folder.path / "plans"
    try:
        path.mkdir(mode=0o700, exist_ok=True)
    except OSError as problem:
        raise SiloError(f"The folder {path} cannot be made: {problem.strerror}.") from None
    return path


def pending(folder: SiloFolder, decided: Container[str]) -> Pending:
    """Return the plans that wait; those whose digest is among the `decided` do not."""
    found = Pending({}, {}, {})
    for path in sorted(plans_folder(folder).glob("*.json"))[:MOST_FILES]:
        try:
            plan = load_plan(path)
        except PlanError as problem:
            found.unreadable[path.name] = str(problem)
            continue
        if plan.digest() not in decided:
            found.plans[plan.digest()] = plan
            found.files[plan.digest()] = path
    return found


def add(folder: SiloFolder, content: bytes) -> Plan:
    """Let a plan wait for a decision; one that waits already stays as it is."""
    plan = Plan.parse(content, error=PlanError)
    path = plans_folder(folder) / f"{plan.digest()}.json"
    try:
        write_private(path, plan.content, end=b"")  # named by its very bytes
    except FileExistsError:
        pass
    except OSError as problem:
        raise SiloError(f"The plan could not be saved at {path}: {problem.strerror}.") from None
    return plan


def refuse(path: Path) -> None:
    """Put a waiting plan's file aside."""
    try:
        path.rename(path.with_name(path.name + ".refused"))
    except OSError as problem:
        raise SiloError(f"{path} could not be renamed: {problem.strerror}.") from None
