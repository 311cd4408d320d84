"""The page that `benchmarks.scale` writes."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.growth import growth

Row = dict[str, Any]

_HEAD = """# Scale: what a round costs, and how cost grows

    python -m benchmarks.scale --out docs/results

measured this on a machine with {cores} cores that was also doing other work ([when, and with how much](#measured)).
Both sides of a ratio take turns within the same minute, so that other work slows both alike, and the fastest turn of
each counts; single-threaded computations are measured in processor time, including the kernel's, which other work
affects least. Look at the ratios: seconds are this machine's. *Growth* is the slope of log cost against log size,
fitted over the sizes of a table: 1 is in proportion. A command's start, about a second, makes its growth look smaller,
so the slope between the two largest sizes stands beside it.

![Seconds by records, features and silos](scale.png)

## Against the goals

{goals}

## A round at a silo

*Bare* is two products with the features as they are stored, `X @ w` and `r @ X`, by NumPy; *round* is the exact sum of
all records' clipped logistic gradients, from the same array. Both use one thread.

{rounds}

With {cores} threads, in wall-clock time, which other work affects: a rough figure.

{threaded}

A round of 10⁷ records costs about as much per number in both precisions: {per_number}.
Its sums are exact in doubles, so in *single precision* every number is first converted to a double, the products with
weights and with residuals are taken of two limbs each, and the rest (residuals, clipping, limbs) is computed in doubles
for every record either way. The bare products fetch half the bytes in single precision and are bound by memory. So the
ratio is larger, and single precision saves memory but little time. BLAS multiplies by the two limbs fastest one at a
time, so a round does that for rows of 16 numbers or more. *Small tables* fit into a processor's cache, where products
are fast and per-record work weighs more; so it does with 10 features. With 40,000 features only a thousand records
share the work that is done once per feature at the end, with integers of any size.

## A large table

A gate answers a round from 10⁷ records × 30 features in single precision: cells, encoded features, sampling, noise,
ledger and process, not counting the reading of the file. In files, the table is in unnamed files and is read through
once per round; *in no file* is memory that a table larger than memory would also need.

{large}

## Silos

A plan for silos of 1,000 records and 30 features, in processor seconds: *making* it, with a survey and an evaluation;
*rehearsing* it for its quote; *writing and reading* its file. Beyond 80 silos, a rehearsal's silos take turns with the
same simulated records, and each adds noise of its own.

{plans}

{plans_growth}

The whole command `ringfence plan`, from its start to its last line, with the plan written to a file:

{plan_commands}

{plan_commands_growth}

A simulated round of silos of 20 records × 30 features, and the peak memory of the process, including data and plan:

{simulated}

A round of `server run` over loopback: {agents_words}

{agents}

The seconds are wall-clock time of agents that share {cores} cores with each other and with all other work on this
machine. Ledgers are synced before anything is released, twice per agent and round.

## Statistics of many columns

`ringfence statistics` of two silos of 1,000 rows each, from its start to its last line: reading, plan, quote, ledgers,
gates, answers, and estimates of every column for both silos and for all together. All columns but one are numbers, with
64 bins.

{statistics}

{statistics_growth}

## Checking large tables

`ringfence schema check` of tables of 30 columns, from its start to its last line, beside a Python process that reads
the same file with pyarrow. The check reads chunk by chunk and keeps only the cells that its advice rests on: its memory
is that of a chunk, while pyarrow holds the whole table.

{checks}

{checks_growth}

## Reading

`pyarrow` is that library's own reader of the same file. A *data set* is what an agent holds when it starts: every cell
read, scaled and kept as a double, every row marked. *Records* are that plus one model's features, with sums prepared,
so every number is kept twice. Each reading is in a new process, which is how tables are read; *again* is the fastest
of three in one process, which reuses memory. Processor seconds; *speed* is pyarrow's seconds over ours. *Memory* is
the process's peak beyond what it had before it read, over the encoded table (records × {width} features as doubles).

{reading}

In a new process most of the time goes into touching memory for the first time, and pyarrow takes twice as much of it as
a data set: so pyarrow itself is slower on large Parquet files. Once memory can be reused, scaling, marking and keeping
a number cost more than decoding it, and the goal of half the speed is missed for Parquet. Records keep every number
twice, as a cell and as a feature, and therefore miss 1.3 times the encoded table; small tables miss it by the memory
that pyarrow and this library keep in reserve.

## Measured

Every section is one part of a run of the command above; `--only SECTION` renews one of them. *Load* is the machine's
average load when the section ended, *code* the title of the last commit.

{measured}
"""


def table(rows: Sequence[Row], columns: dict[str, Callable[[Row], object]]) -> str:
    """Return a table in Markdown."""
    lines = [f"| {' | '.join(columns)} |", f"|{'---:|' * len(columns)}"]
    lines += [f"| {' | '.join(str(cell(row)) for cell in columns.values())} |" for row in rows]
    return "\n".join(lines)


def number(value: float) -> str:
    """Write a number with three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


_ROUNDS: dict[str, Callable[[Row], object]] = {
    "records": lambda row: f"{row['records']:,}",
    "features": lambda row: f"{row['features']:,}",
    "kept as": lambda row: row["precision"],
    "bare, ms": lambda row: number(1e3 * row["bare"]),
    "round, ms": lambda row: number(1e3 * row["round"]),
    "ratio": lambda row: f"{row['round'] / row['bare']:.2f}",
    "round, ns per number": lambda row: f"{1e9 * row['round'] / row['records'] / row['features']:.2f}",
}


_FORMATS = {"csv": "CSV", "parquet": "Parquet"}


def _beside(found: Row, row: Row) -> Row:
    """Return what pyarrow took of the same file."""
    same = ("format", "records")
    return next(
        other
        for other in found["reading"]
        if other["reader"] == "pyarrow" and all(other[name] == row[name] for name in same)
    )


def _share(row: Row) -> float:
    """Return the memory over that of the encoded table."""
    return float(row["memory"] / (8 * row["records"] * row["columns"]))


def _grown(rows: Sequence[Row], size: str, cost: str = "seconds") -> str:
    """Return the growth over all sizes, and between the two largest."""
    return f"{growth(rows, size, cost):.2f}; {growth(rows[-2:], size, cost):.2f} between the two largest"


def _of(found: Row, format: str) -> list[Row]:
    """Return the schema checks of files of a format."""
    return [row for row in found["schema checks"] if row["format"] == format]


def _over_pyarrow(row: Row) -> float:
    """Return a check's seconds over pyarrow's."""
    return float(row["seconds"] / row["pyarrow, seconds"])


def _goals(found: Row) -> str:
    def ratios(rows: Sequence[Row], precision: str) -> list[float]:
        return [row["round"] / row["bare"] for row in rows if row["precision"] == precision]

    at = [row for row in found["rounds"] if row["records"] == 10**7 and row["features"] == 30]
    large = {row["kept in"]: row for row in found["large silo"]}
    said = {
        precision: ratios(at, precision) + ratios(found["threaded"], precision) for precision in ("double", "single")
    }
    plan = next(row["seconds"] for row in found["plans"] if row["silos"] == 10_000)
    simulated = next(row["MB"] for row in found["simulated"] if row["silos"] == 100_000)
    crowd = next(row for row in found["agents"] if row["agents"] == 200)
    cores = found["measured"]["threaded"]["cores"]
    rows = [
        ("10⁷ records × 30 columns in one silo", "4 GB", f"{large['memory']['MB, all'] / 1000:.2f} GB"),
        (
            "the same, the table in files: memory in no file",
            "4 GB",
            f"{large['files']['MB, in no file'] / 1000:.2f} GB",
        ),
        *(
            (
                f"a round of them, {kept} precision",
                "2 × bare products",
                f"{one:.2f} with 1 thread, {many:.2f} with {cores}",
            )
            for kept, (one, many) in said.items()
        ),
        ("making a plan for 10,000 silos", "5 s", f"{plan:.2f} s"),
        (
            "growth of `ringfence plan`, 10 to 10,000 silos",
            "1.1",
            f"{_grown(found['plan commands'], 'silos')} ({found['plan commands'][-1]['seconds']:.1f} s)",
        ),
        (
            "growth of `ringfence statistics`, 10 to 1,000 columns",
            "1.1",
            f"{_grown(found['statistics'], 'columns')} ({found['statistics'][-1]['seconds']:.1f} s)",
        ),
        *(
            (
                f"growth of `ringfence schema check`, {name}, 10⁴ to 10⁷ rows",
                "1.1",
                f"{_grown(_of(found, format), 'rows')} ({_over_pyarrow(_of(found, format)[-1]):.2f} × pyarrow's read)",
            )
            for format, name in _FORMATS.items()
        ),
        ("a simulated round of 100,000 silos of 20 records", "4 GB", f"{simulated / 1000:.2f} GB"),
        ("a round of 200 agents on loopback", "3 s", f"{max(crowd['seconds per round']):.2f} s, the slowest"),
        *(
            (
                f"reading {_FORMATS[row['format']]}, {row['records']:,} rows, into a data set",
                "2 × pyarrow's time; 1.3 × the encoded table",
                f"{row['seconds'] / _beside(found, row)['seconds']:.2f} in a new process, "
                f"{row['again'] / _beside(found, row)['again']:.2f} again; {_share(row):.2f}",
            )
            for row in found["reading"]
            if row["reader"] == "data set"
        ),
    ]
    lines = ["| | goal, at most | measured |", "|---|---|---|"]
    return "\n".join(lines + [f"| {' | '.join(row)} |" for row in rows])


def write(found: Row, out: Path) -> None:
    """Write the page and its figure."""
    draw(found, out / "scale.png")
    large = {
        "kept in": lambda row: row["kept in"],
        "most memory, MB": lambda row: number(row["MB, all"]),
        "of that, in no file, MB": lambda row: number(row["MB, in no file"]),
        "a round's own, by the review's estimate, MB": lambda row: number(row["MB, a round's estimate"]),
        "seconds per round": lambda row: number(row["seconds per round"]),
    }
    silos: dict[str, Callable[[Row], object]] = {"silos": lambda row: f"{row['silos']:,}"}
    memory: dict[str, Callable[[Row], object]] = {
        "processor seconds": lambda row: number(row["seconds"]),
        "MB": lambda row: number(row["MB"]),
    }
    plans: dict[str, Callable[[Row], object]] = {
        "making": lambda row: number(row["seconds"]),
        "rehearsing": lambda row: number(row["quote"]),
        "writing and reading": lambda row: number(row["file"]),
    }
    checks: dict[str, Callable[[Row], object]] = {
        "format": lambda row: _FORMATS[row["format"]],
        "rows": lambda row: f"{row['rows']:,}",
        **memory,
        "pyarrow's seconds": lambda row: number(row["pyarrow, seconds"]),
        "ratio": lambda row: f"{_over_pyarrow(row):.2f}",
        "pyarrow's MB": lambda row: number(row["pyarrow, MB"]),
    }
    measured: dict[str, Callable[[Row], object]] = {
        "section": lambda row: row["section"],
        "when, UTC": lambda row: row["when"],
        "load": lambda row: f"{row['load']:.0f}",
        "code": lambda row: row["code"],
    }
    simulated: dict[str, Callable[[Row], object]] = {
        "processor seconds per round": lambda row: number(row["seconds per round"]),
        "MB": lambda row: number(row["MB"]),
    }
    key = "processor seconds per round, of server and agents"
    agents: dict[str, Callable[[Row], object]] = {
        "agents": lambda row: row["agents"],
        "slowest of five rounds, s": lambda row: number(max(row["seconds per round"])),
        "processor seconds per round": lambda row: number(max(row[key])),
        "of these, the server's": lambda row: number(max(row["of these, the server's"])),
    }
    read: dict[str, Callable[[Row], object]] = {
        "format": lambda row: _FORMATS[row["format"]],
        "records": lambda row: f"{row['records']:,}",
        "reader": lambda row: row["reader"],
        "seconds": lambda row: number(row["seconds"]),
        "speed": lambda row: f"{_beside(found, row)['seconds'] / row['seconds']:.2f}",
        "seconds again": lambda row: number(row["again"]),
        "speed again": lambda row: f"{_beside(found, row)['again'] / row['again']:.2f}",
        "memory": lambda row: f"{_share(row):.2f}",
    }
    largest = {row["precision"]: row for row in found["rounds"] if (row["records"], row["features"]) == (10**7, 30)}
    nanoseconds = {kept: 1e9 * row["round"] / 3e8 for kept, row in largest.items()}
    parts = (("making", "seconds"), ("rehearsing", "quote"), ("writing and reading", "file"))
    page = _HEAD.format(
        cores=found["measured"]["rounds"]["cores"],
        goals=_goals(found),
        rounds=table(found["rounds"], _ROUNDS),
        threaded=table(found["threaded"], _ROUNDS),
        per_number=" and ".join(f"{nanoseconds[kept]:.2f} ns in {kept}" for kept in ("double", "single")),
        large=table(found["large silo"], large),
        plans=table(found["plans"], {**silos, **plans}),
        plans_growth="Growth: "
        + "; ".join(f"{name} {_grown(found['plans'], 'silos', key)}" for name, key in parts)
        + ". Python's garbage collector looks through a large plan's silos again and again while it is made or read.",
        plan_commands=table(found["plan commands"], {**silos, **memory}),
        plan_commands_growth=f"Growth: {_grown(found['plan commands'], 'silos')}.",
        statistics=table(found["statistics"], {"columns": lambda row: f"{row['columns']:,}", **memory}),
        statistics_growth=f"Growth: {_grown(found['statistics'], 'columns')}.",
        checks=table(found["schema checks"], checks),
        checks_growth="Growth: "
        + "; ".join(f"{name}, {_grown(_of(found, format), 'rows')}" for format, name in _FORMATS.items())
        + ".",
        simulated=table(found["simulated"], {**silos, **simulated}),
        agents_words="real gates, ledgers and doors of 100 records × 10 features, served by four processes.",
        agents=table(found["agents"], agents),
        reading=table(found["reading"], read),
        width=found["reading"][0]["columns"],
        measured=table([{"section": name, **row} for name, row in found["measured"].items()], measured),
    )
    (out / "scale.md").write_text(page)


def draw(found: Row, path: Path) -> None:
    """Draw how seconds grow, on logarithmic axes; dashed lines grow in proportion."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
    for precision in ("double", "single"):
        own = [row for row in found["rounds"] if row["precision"] == precision]
        by_count = [row for row in own if row["features"] == 30 and row["records"] in {10**k for k in range(4, 8)}]
        by_width = [row for row in own if row not in by_count or row["records"] * 30 == 4 * 10**7]
        for name, style in (("round", "o-"), ("bare", "x:")):
            label = f"{name}, {precision}"
            panels[0].plot([row["records"] for row in by_count], [row[name] for row in by_count], style, label=label)
            panels[1].plot(
                [row["features"] for row in by_width],
                [1e9 * row[name] / row["records"] / row["features"] for row in by_width],
                style,
                label=label,
            )
    for rows, name, label in (
        (found["plans"], "seconds", "making a plan"),
        (found["plan commands"], "seconds", "ringfence plan, the command"),
        (found["simulated"], "seconds per round", "a simulated round"),
    ):
        panels[2].plot([row["silos"] for row in rows], [row[name] for row in rows], "o-", label=label)
    crowd = [(row["agents"], min(row["seconds per round"])) for row in found["agents"]]
    panels[2].plot(*zip(*crowd, strict=True), "s-", label="a round over loopback")
    begin = found["rounds"][0]
    panels[0].plot([10**4, 10**7], [begin["round"], 1000 * begin["round"]], "--", color="grey", linewidth=0.8)
    panels[2].plot([100, 10**5], [0.01, 10], "--", color="grey", linewidth=0.8)
    titles = ("records (30 features)", "features", "silos")
    for panel, title in zip(panels, titles, strict=True):
        panel.set(xscale="log", yscale="log", xlabel=title, ylabel="seconds")
        panel.legend(fontsize=7)
    panels[1].set_ylabel("nanoseconds per record and feature")
    figure.savefig(path, dpi=110)
    plt.close(figure)
