"""Print the tables of docs/comparison.md, all or some, as they stand there."""

import argparse
import logging
import platform
from importlib.metadata import PackageNotFoundError, version

from benchmarks.comparison import filters, hello_dp, localdpmod, task

PACKAGES = ("ringfence", "flwr", "nvflare", "torch", "opacus")
PARTS = {
    "localdpmod": (localdpmod.measured, localdpmod.costs),
    "filters": (filters.spent, filters.habits),
    "hello-dp": (hello_dp.costs,),
    "task": (task.accuracies,),
}


def versions() -> str:
    """Return what the tables were made with; a build's label (torch's `+cpu`) is left out."""
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name).partition('+')[0]}")
        except PackageNotFoundError:
            found.append(f"no {name}")
    return ", ".join([*found, f"Python {platform.python_version()}"])


def main() -> None:
    """Make the parts that are asked for, in the page's order."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.comparison", description=__doc__)
    parser.add_argument("--only", choices=PARTS, action="append", help="make this part; may be given several times")
    asked = parser.parse_args().only or list(PARTS)
    logging.disable(logging.INFO)
    print(versions())
    for part in asked:
        for make in PARTS[part]:
            print(f"\n{make()}", flush=True)


if __name__ == "__main__":
    main()
