"""No document changes its shape unnoticed: whoever changes one adds golden files of it."""

import json
from pathlib import Path

from tests.golden import shapes
from tests.golden.shapes import SHAPES

HERE = Path(__file__).parent
GOLDEN = HERE / "v1_0_0"

ADVICE = (
    "The shape of documents has changed: {changes}. What was written before must stay readable. Add golden files of "
    "the new format (README.md says how)."
)


def current(work: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads(json.dumps(shapes.shapes(GOLDEN, work)))
    return found


def changes(old: dict[str, list[str]], new: dict[str, list[str]]) -> list[str]:
    return [
        f"{document} {'has' if field in new.get(document, []) else 'has no longer'} {field}"
        for document in sorted(old.keys() | new.keys())
        for field in sorted(set(old.get(document, [])) ^ set(new.get(document, [])))
    ]


def test_no_document_changes_its_shape_without_golden_files_of_the_new_one(tmp_path: Path) -> None:
    changed = changes(json.loads(SHAPES.read_text()), current(tmp_path))
    assert not changed, ADVICE.format(changes="; ".join(changed))


def test_there_are_golden_files_of_every_kind_of_entry_event_and_message() -> None:
    written: set[str] = set()
    for path in HERE.glob("v*/expected.json"):
        expected = json.loads(path.read_text())
        for silo in expected["silos"].values():
            written |= {f"ledger {kind}" for _, kind, _ in silo["account"]["entries"]}
        for run in expected["runs"].values():
            written |= {"transcript run", *(f"transcript {kind}" for kind in run["transcript"]["entries"])}
        written |= {f"event {event['event']['kind']}" for event in expected["events"].values()}
        written |= {f"message {message['kind']}" for message in expected["messages"].values()}
    for path in HERE.glob("v*/memory/state/ringfence/registry.sqlite"):
        written |= {f"registry {kind}" for kind, _ in shapes.ledger_formats(path)}
    kinds = {
        name
        for name in json.loads(SHAPES.read_text())
        if name.split()[0] in ("event", "ledger", "message", "registry", "transcript")
    }
    assert kinds - written == {"ledger tables", "registry tables", "transcript line"}


def test_there_are_golden_files_of_every_format() -> None:
    found: dict[str, set[int]] = {}
    for path in HERE.glob("v*/expected.json"):
        for document, formats in shapes.formats(path.parent).items():
            found.setdefault(document, set()).update(formats)
    assert found == {document: set(range(1, newest + 1)) for document, newest in shapes.newest_formats().items()}
