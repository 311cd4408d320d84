"""Sweeps: a grid of parameters × trials through a task, block by block, into one file that survives anything.

Guarantee: however often a sweep is killed and started again, the file ends up with every cell exactly once.
Rows are appended and synced block by block; what a kill leaves half-written is the file's last line, which
has no end and is cut off by the next start. A cell is known by its values, so a resumed sweep may list its
parameters or values in another order, have more of them, or use another block size.

The file is JSON lines: first `{"ringfence_sweep": 1, "label": …, "parameters": […]}`, then one flat row per
cell with its parameters, its trial and its results. Rows stand in the order in which they finished. Infinity
and NaN are written as Python's json does; an ε of infinity is a fair parameter.

Blocks run wherever joblib runs them, so a cluster takes two lines around the call and no change in it; the
cluster's machines need Ringfence installed, and only this one writes the file:

    ray.util.joblib.register_ray()
    with joblib.parallel_config(backend="ray", n_jobs=-1):
        sweep(...)

    client = distributed.Client("scheduler:8786")
    with joblib.parallel_config(backend="dask"):
        sweep(...)
"""

import functools
import itertools
import traceback
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import joblib  # type: ignore[import-untyped]
from threadpoolctl import threadpool_limits

from ringfence.errors import SweepError
from ringfence.simulation.cells import TRIAL, Cell, CellGrid, Row, describe, plain_value, quoted
from ringfence.simulation.table import KIND, Log, SweepHeader
from ringfence.storage.lines import Lines

MOST_WAITING_BLOCKS = 1024
"""How many incomplete blocks' worth of cells may wait for others of their group before a short block runs."""
MOST_BLOCKS_PER_WORKER = 8
"""How many blocks per worker may be under way or wait to be written."""


SweepTask: TypeAlias = Callable[[list[Cell]], Sequence[Mapping[str, Any]]]
"""One mapping of results per cell, in the cells' order, all with the same names.

Results are numbers, strings and truth values, also NumPy's and JAX's scalars. In workers, the task is sent
along with every block: let it load large data itself, once per process.
"""


def sweep(
    task: SweepTask,
    cells: Iterable[Cell],
    *,
    out: Path,
    label: str | None = None,
    block: int = 64,
    workers: int | None = None,
    group: Sequence[str] | Callable[[Cell], Hashable] = (),
    watch: Callable[[int, int | None], None] = lambda done, total: None,
) -> Path:
    """Run the cells that `out` does not hold yet, in blocks of up to `block`, and return `out`.

    All cells of a block agree on `group`: names of parameters (or "trial"), or a function of the cell.
    `workers` is joblib's n_jobs: 1 runs in this process, -1 on all cores, None as `joblib.parallel_config`
    says, and in this process without one. `watch(done, total)` is called after each block and at the end;
    `total` is None for cells without a length. `label` (default: the task's name) stands for everything that
    the results depend on beside the cells: a file with another label, or other parameters, is refused.

    A cell given twice runs once. Memory holds at most 8 blocks per worker, cells that wait for others of their
    group (1024 blocks' worth), and the ids of cells in the file or not from `cells()`. If the task fails, the
    blocks under way are still finished and kept, and then SweepError names the cells; the next call goes on.
    """
    if block < 1:
        raise SweepError(f"A block of {block} cells has nothing to run: ask for at least 1.")
    total = len(cells) if isinstance(cells, Sized) else None
    stream = iter(cells)
    first = next(stream, None)
    if first is None:
        raise SweepError("There are no cells to run: give the sweep at least one.")
    header = SweepHeader(_name(task) if label is None else label, tuple(sorted(first.keys() - {TRIAL})))
    group_of = group if callable(group) else _agreement(group, first)
    with Lines(Path(out), KIND) as lines:
        log = Log(lines, header)
        # The cells of a grid are different by construction: only others need remembering.
        pending = _pending(itertools.chain([first], stream), log, remember=not isinstance(cells, CellGrid))
        _run_all(task, _blocks(pending, block, group_of), workers, log, lambda: watch(log.done, total))
        watch(log.done, total)  # cells that were skipped after the last block count too
    return Path(out)


def _run_all(
    task: SweepTask, blocks: Iterator[list[Cell]], workers: int | None, log: Log, report: Callable[[], None]
) -> None:
    """Run the blocks and log what they return; after a failure start no more, and raise it when all are in.

    Joblib takes blocks as workers become free, however slowly results are written. So one call of it is a wave that
    ends when too many results wait: blocking instead would hold the lock that handing them over needs.
    """
    waiting, is_last, failure = 0, False, None
    most = MOST_BLOCKS_PER_WORKER * joblib.effective_n_jobs(workers)

    def wave() -> Iterator[Any]:
        """Yield a sweep's blocks as joblib's calls, until too many results wait, one failed, or none is left."""
        nonlocal waiting, is_last
        while failure is None and waiting < most:
            block = next(blocks, None)
            if block is None:
                is_last = True
                return
            waiting += 1
            yield joblib.delayed(_run)(task, block)

    with _parallel(workers) as parallel:
        while not is_last:
            with _taken(parallel(wave())) as results:
                for result in results:
                    if isinstance(result, SweepError):
                        failure = failure or result
                    else:
                        log.append(result)
                        report()
                    waiting -= 1
            if failure:
                raise failure


def _parallel(workers: int | None) -> Any:
    """Return joblib's runner of a sweep, which gives results as they arrive, with two blocks per worker under way."""
    try:
        return joblib.Parallel(workers, return_as="generator_unordered", pre_dispatch="2*n_jobs", batch_size=1)
    except ValueError:  # Ray's backend, like joblib's multiprocessing, returns whole lists only: a wave at a time
        return joblib.Parallel(workers, batch_size=1)


@contextmanager
def _taken(results: Any) -> Iterator[Iterable[list[Row] | SweepError]]:
    """End the workers' blocks if an error keeps their results from being taken."""
    try:
        yield results
    finally:
        if not isinstance(results, list):
            with warnings.catch_warnings():  # joblib warns of lost results: the error on its way says enough
                warnings.simplefilter("ignore")
                results.close()


def _run(task: SweepTask, cells: list[Cell]) -> list[Row] | SweepError:
    """Run one block of a sweep, with one thread for NumPy's products: several of a small one wait for each other.

    A failure is returned: raised, joblib would drop the blocks beside it.
    """
    try:
        with threadpool_limits(limits=1, user_api="blas"):
            return _rows(task, cells)
    except Exception as error:
        failure = SweepError(
            f"The task failed ({type(error).__name__}: {error}) on {describe(cells)}: finished cells are kept, so "
            "correct it and run the sweep again (with block=1 to learn which of several cells it is)."
        )
        failure.add_note(traceback.format_exc())  # a note, unlike a cause, comes back from a worker
        return failure


def _rows(task: SweepTask, cells: list[Cell]) -> list[Row]:
    """Run a sweep's task on a block of cells, check its results, and join them with the cells' parameters."""
    results = list(task(list(cells)))
    if len(results) != len(cells):
        raise ValueError(f"it returned {len(results)} rows for {len(cells)} cells")
    for cell, result in zip(cells, results, strict=True):
        if result.keys() != results[0].keys():
            raise ValueError("its rows have different names")
        if taken := result.keys() & cell.keys():
            raise ValueError(f"its result {quoted(taken)} is named like a parameter")
    plain = [{str(name): plain_value(value) for name, value in result.items()} for result in results]
    return [dict(cell) | result for cell, result in zip(cells, plain, strict=True)]


def _pending(cells: Iterable[Cell], log: Log, *, remember: bool) -> Iterator[Cell]:
    """Pass on the cells that are still to run, and have the log count the others."""
    names = {*log.header.parameters, TRIAL}
    for cell in cells:
        if cell.keys() != names:
            raise SweepError(f"The cell {cell} has other parameters than the first: sweep it into another file.")
        if cell.id in log.finished:
            log.skipped += 1
            continue
        if remember:
            log.finished.add(cell.id)
        yield cell


def _blocks(cells: Iterable[Cell], size: int, group_of: Callable[[Cell], Hashable]) -> Iterator[list[Cell]]:
    """Collect cells of one group into blocks. Every block is full but for each group's last, unless very many wait."""
    waiting: dict[Hashable, list[Cell]] = {}
    count = 0
    for cell in cells:
        key = group_of(cell)
        waiting.setdefault(key, []).append(cell)
        count += 1
        if len(waiting[key]) < size:
            if count <= MOST_WAITING_BLOCKS * size:
                continue
            key = next(iter(waiting))  # the one that has waited longest
        count -= len(waiting[key])
        yield waiting.pop(key)
    yield from waiting.values()


def _agreement(names: Sequence[str], cell: Cell) -> Callable[[Cell], Hashable]:
    """Return a function that groups a sweep's cells by these parameters; SweepError for an unknown one."""
    names = (names,) if isinstance(names, str) else tuple(names)
    if unknown := set(names) - cell.keys():
        raise SweepError(f"There is no parameter {quoted(unknown)} to group by: choose among {quoted(cell)}.")
    return lambda cell: tuple(cell[name] for name in names)


def _name(task: object) -> str:
    """Return the name of a sweep's task, as the label of its file."""
    while isinstance(task, functools.partial):
        task = task.func
    return getattr(task, "__qualname__", type(task).__qualname__)
