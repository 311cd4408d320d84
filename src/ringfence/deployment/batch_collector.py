"""The server's key and its way through the shuffler: hand in what silos sealed, fetch the batch, open it."""

import time
from collections.abc import Sequence
from pathlib import Path

from ringfence.deployment.shuffler_client import ShufflerClient
from ringfence.errors import DeploymentError, DoorError
from ringfence.protocol import Plan, SealedUpdate, ShufflerChannel
from ringfence.server.channels import Collect, Totals
from ringfence.server.channels.shuffler import read_batch
from ringfence.shuffler import sealing
from ringfence.storage.files import read_key, write_key

_PAUSE = 0.05


def make_key(path: Path) -> str:
    """Write the server's new key for the shuffler's batches, and return its public key; that of an old one again."""
    if path.exists():
        return sealing.public_key(read_key(path, DeploymentError))
    private = sealing.new_key()
    write_key(path, private)
    return sealing.public_key(private)


def collector(plan: Plan, client: ShufflerClient, key_file: Path, seconds: float) -> Collect:
    """Return the function with which the server collects the plan's rounds, waiting at most `seconds` for the shuffler.

    What it hands in twice counts once, and what it fetches twice is the same, so a restart only repeats.
    """
    key = read_key(key_file, DeploymentError)
    channels = [stage.channel for stage in plan.stages if isinstance(stage.channel, ShufflerChannel)]
    if {channel.server_key for channel in channels} != {sealing.public_key(key)}:
        raise DeploymentError(
            f"{key_file} is not the key that this plan's silos seal to, so their messages could not be read: give the "
            "server's key that the plan names."
        )

    def collect(round: int, updates: Sequence[SealedUpdate]) -> Totals | None:
        """Deposit a round's sealed updates at the shuffler, wait for its batch, and open it."""
        batch = client.batch(plan.digest(), round)
        if batch is None:
            refused = []
            for update in updates:
                try:
                    client.deposit(update.to_bytes())
                except DoorError as problem:  # must not keep out the rest, which may be enough
                    refused.append(problem)
            deadline = time.monotonic() + seconds
            while (batch := client.batch(plan.digest(), round)) is None and time.monotonic() < deadline:
                time.sleep(_PAUSE)
            if batch is None and refused:
                raise refused[0]
        return None if batch is None else read_batch(plan, key, round, batch)

    return collect
