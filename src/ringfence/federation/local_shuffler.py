"""A shuffler and all parties' keys in one process."""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ringfence.protocol import Plan, PublicKeys, SealedUpdate
from ringfence.server.channels import Collect, Totals
from ringfence.server.channels.shuffler import read_batch
from ringfence.shuffler import sealing
from ringfence.shuffler.shuffler import Shuffler
from ringfence.shuffler.store import Store


@dataclass(frozen=True, repr=False)
class LocalShuffler:
    """A real shuffler, and the private keys of server and silos."""

    shuffler: Shuffler
    server: bytes
    silos: dict[str, bytes]

    @property
    def keys(self) -> PublicKeys:
        """The public keys of this process's shuffler that a plan pins."""
        return PublicKeys(
            server=sealing.public_key(self.server),
            shuffler=self.shuffler.public_key,
            silos={name: sealing.verifying_key(key) for name, key in self.silos.items()},
        )

    def collect(self, plan: Plan) -> Collect:
        """Return the function with which a server in this process collects the plan's rounds."""
        self.shuffler.add(plan)

        def collect(round: int, updates: Sequence[SealedUpdate]) -> Totals | None:
            """Deposit the silos' sealed updates at this process's shuffler, and open the batch that it releases."""
            for update in updates:
                self.shuffler.deposit(update.to_bytes())
            batch = self.shuffler.release(plan.digest(), round)
            return read_batch(plan, self.server, round, batch) if isinstance(batch, bytes) else None

        return collect


@contextmanager
def local_shuffler(silos: Iterable[str]) -> Iterator[LocalShuffler]:
    """Make new keys and a shuffler in a temporary folder, which is removed at the end."""
    with (
        tempfile.TemporaryDirectory(prefix="ringfence-") as folder,
        # No deadline: in one process all messages have arrived when the server collects.
        Shuffler(Store.create(Path(folder) / "shuffler"), seconds=0.0) as shuffler,
    ):
        yield LocalShuffler(shuffler, sealing.new_key(), {name: sealing.new_key() for name in silos})
