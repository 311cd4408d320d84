"""Sums over parts of the records, on as many threads as products of matrices have.

Sums are exact, so that neither their division nor their order changes a byte.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import lru_cache

from threadpoolctl import ThreadpoolController

from ringfence.protocol.effort import MOST_THREADS
from ringfence.silo.exact_sums import Counts


@lru_cache(maxsize=1)
def _libraries() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


def threads() -> int:
    """Return how many threads products of matrices have now (OMP_NUM_THREADS and its like), up to MOST_THREADS."""
    return min(MOST_THREADS, max((library["num_threads"] for library in _libraries().info()), default=1))


def added(tasks: Sequence[Callable[[], Counts]]) -> Counts:
    """Return the sum of what the tasks return."""
    workers = 1 if len(tasks) == 1 else min(threads(), len(tasks))
    if workers == 1:
        return summed(task() for task in tasks)
    with _libraries().limit(limits=1), ThreadPoolExecutor(workers) as pool:
        return summed(pool.map(lambda task: copy_context().run(task), tasks))


def summed(totals: Iterable[Counts]) -> Counts:
    """Return the sum of totals, each taken when it is there."""
    rest = iter(totals)
    total = next(rest)
    for other in rest:
        total = total + other
    return total
