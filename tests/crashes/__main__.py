"""Crash every life at its numbered points: python -m tests.crashes [LIFE ...] [--cuts EVERY] [--pairs EVERY] [--json]

A point is a call that changes or syncs a file. Every life is killed at each; of what a loss of power leaves there
(`disk`), and of pairs of kills, every so many are tried, by default none, and 1 is all of them. After each crash a new
process goes on, which must come to a good end (`lives`). Prints how many points there are, by store, as a table.
"""

import argparse
import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.crashes.crashes import Crashes
from tests.crashes.lives import LIVES
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
    options.add_argument("lives", nargs="*", default=[*LIVES])
    options.add_argument("--cuts", type=int, default=0)
    options.add_argument("--pairs", type=int, default=0)
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    points: Counter[tuple[str, str]] = Counter()
    done: Counter[str] = Counter()
    for name in given.lives:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["XDG_STATE_HOME"] = f"{folder}/here/state"
            crashes = Crashes(LIVES[name](Path(folder)))
            found = crashes.numbered()
            points.update(zip(stores(found), (stop.does for stop in found), strict=True))
            done["points"] += len(found)
            done["cuts"] += crashes.cut(given.cuts)
            kills, pairs = crashes.kill(given.pairs)
            done["kills"] += kills
            done["pairs"] += pairs
    if given.json:
        print(json.dumps({**done, "stores": sorted({store for store, _ in points})}))
        return
    rows = [["store", "points", *KINDS], ["---"] * (2 + len(KINDS))]
    for store in sorted({store for store, _ in points}):
        counts = [points[store, kind] for kind in KINDS]
        rows.append([store, *map(str, [sum(counts), *counts])])
    print("\n".join(f"| {' | '.join(row)} |" for row in rows))
    print("\n{points} points; tried: {kills} kills, {cuts} losses of power, {pairs} pairs.".format_map(done))


if __name__ == "__main__":
    main()
