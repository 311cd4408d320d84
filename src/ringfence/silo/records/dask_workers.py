"""Dask workers inside the silo, started and supervised by Dask's own commands.

Dask sends functions and results as pickles, so anyone who reaches the scheduler can do what the agent can: its address
must be on this machine, or `tls://` with the silo's own certificates (Dask's settings under `distributed.comm.tls`).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from distributed import Client

from ringfence.errors import RecordsError, RingfenceError

_HERE = ("tcp://127.0.0.1:", "tcp://localhost:", "tcp://[::1]:", "inproc://")


class DaskWorkers:
    """Dask workers behind a scheduler (`silo.records.divided.Workers`), with a timeout in seconds."""

    def __init__(self, address: str, seconds: float = 600.0) -> None:
        """Connect to the Dask scheduler at the address, which must be encrypted or on this machine."""
        if not address.startswith((*_HERE, "tls://")):
            raise RecordsError(
                "The address of the silo's workers must begin with tls://, or be on this machine (tcp://127.0.0.1:…): "
                "sums without noise travel over it."
            )
        self._seconds = seconds
        try:
            self._client: Any = Client(  # type: ignore[no-untyped-call]
                address, timeout=min(seconds, 30.0), set_as_default=False
            )
        except (OSError, RuntimeError, ValueError):
            raise RecordsError(
                f"Dask's scheduler does not answer at {address}: start it and its workers, and try again."
            ) from None
        self._places: dict[Any, str] = {}

    def each(self, function: Callable[..., Any], jobs: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
        """Yield the function's result for each job, in order, computed by Dask workers."""
        living = list(self._client.scheduler_info(n_workers=-1)["workers"])
        for number, job in enumerate(jobs):
            if living and self._places.get(job[0]) not in living:
                self._places[job[0]] = living[number % len(living)]
        futures = [
            self._client.submit(
                function,
                *job,
                pure=False,
                workers=[self._places[job[0]]] if job[0] in self._places else None,
                allow_other_workers=job[0] in self._places,
            )
            for job in jobs
        ]
        try:
            for future in futures:
                yield future.result(timeout=self._seconds)
        except RingfenceError:
            raise
        except Exception as problem:  # of a worker: its text might show a value
            raise RecordsError(
                f"The silo's workers could not add up a part of the table ({type(problem).__name__}): check their "
                "logs, and that they are running."
            ) from None
        finally:
            self._client.cancel(futures, force=True)

    def close(self) -> None:
        """Close the connection to the Dask scheduler."""
        self._client.close()
