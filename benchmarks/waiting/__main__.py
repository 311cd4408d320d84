"""Prints the table of what people wait for, part by part."""

import argparse
import importlib

from benchmarks.waiting import Row

PARTS = ("commands", "doors", "engines", "simulator", "scale")
"""Modules of this package with a function `rows`."""


def line(row: Row) -> str:
    """Return a row of the table."""
    return f"| {row.what} | {row.measured:.2f} {row.unit} | {row.reach:g} {row.unit} | {row.beside} |"


def main() -> None:
    """Measure the parts that were asked for, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.waiting")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all of them if none is given")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}: choose from {', '.join(PARTS)}")
    print("| | measured | reach | beside |\n|---|---:|---:|---|", flush=True)
    for part in options.parts or PARTS:
        for row in importlib.import_module(f"benchmarks.waiting.{part}").rows():
            print(line(row), flush=True)


if __name__ == "__main__":
    main()
