"""Crash every scenario at its numbered points: python -m tests.crashes [SCENARIO ...] [--kills] ...

A point is a call that changes or syncs a file. `--kills` kills at each. `--power-failures` tries what a power failure
may leave there (`disk`), and `--pairs` pairs of kills: all, or with a number every so many. What goes on after a crash
must come to a good end (`scenarios`). Prints how many points there are, by store, as a table.
"""

import argparse
import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.crashes.crashes import Crashes
from tests.crashes.scenarios import SCENARIOS
from tests.crashes.stops import Stop

STORES = {
    ".ledger": "ledger, restored ledger, backup",
    "backup-": "ledger, restored ledger, backup",
    "/heads/": "watermark",
    "/registry.": "registry",
    "fingerprint.key": "registry",
    "transcript.jsonl": "transcript",
    "/shuffler.db": "shuffler's database",
    "/shufflers/": "shuffler's witness",
}
KINDS = ("create", "write", "truncate", "sync", "rename", "link", "remove", "mkdir")


def stores(points: Sequence[Stop]) -> Iterator[str]:
    """Yield the store that each point belongs to: by its file, or, if it syncs a folder, by the file changed there."""
    changed = ""
    for stop in points:
        is_its_folder = stop.does == "sync" and (os.path.dirname(changed) or ".") == stop.path
        changed = changed if is_its_folder else stop.path
        yield next((name for part, name in STORES.items() if part in f"/{changed}"), "settings, keys, locks, folders")


def main() -> None:
    """Crash, count and print."""
    options = argparse.ArgumentParser()
    options.add_argument("scenarios", nargs="*", default=[*SCENARIOS])
    options.add_argument("--kills", action="store_true")
    options.add_argument("--power-failures", type=int, nargs="?", const=1, default=0, metavar="EVERY")
    options.add_argument("--pairs", type=int, nargs="?", const=1, default=0, metavar="EVERY")
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    points: Counter[tuple[str, str]] = Counter()
    done: Counter[str] = Counter()
    for name in given.scenarios:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["XDG_STATE_HOME"] = f"{folder}/here/state"
            crashes = Crashes(SCENARIOS[name](Path(folder)))
            points.update(zip(stores(crashes.points), (stop.does for stop in crashes.points), strict=True))
            done["points"] += len(crashes.points)
            done["kills"] += crashes.kill() if given.kills else 0
            done["power_failures"] += crashes.fail_power(given.power_failures) if given.power_failures else 0
            pairs, different = crashes.kill_twice(given.pairs) if given.pairs else (0, 0)
            done["pairs"] += pairs
            done["different"] += different
    if given.json:
        print(json.dumps({**done, "stores": sorted({store for store, _ in points})}))
        return
    rows = [["store", "points", *KINDS], ["---"] * (2 + len(KINDS))]
    for store in sorted({store for store, _ in points}):
        counts = [points[store, kind] for kind in KINDS]
        rows.append([store, *map(str, [sum(counts), *counts])])
    rows.append(
        [
            "together",
            *map(str, [done["points"], *(sum(n for (_, k), n in points.items() if k == kind) for kind in KINDS)]),
        ]
    )
    print("\n".join(f"| {' | '.join(row)} |" for row in rows))
    print(
        "\n{points:,} points; tried: {kills:,} kills, {power_failures:,} power failures, {pairs:,} pairs of kills, "
        "which leave {different:,} different sets of files.".format_map(done)
    )


if __name__ == "__main__":
    main()
