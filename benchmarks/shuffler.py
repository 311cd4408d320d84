"""What a shuffled round costs, beside bare seals of the same messages in the same run: python -m benchmarks.shuffler"""

import base64
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ringfence.deployment.shuffler_client import ShufflerClient
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import Batch, Plan, PublicKeys, SealedUpdate, ShufflerChannel, parse_schema
from ringfence.protocol.channels.shuffler import SEALED_EXTRA
from ringfence.shuffler import sealing
from ringfence.shuffler.sealing import verifying_key
from ringfence.shuffler.shuffler import Shuffler
from ringfence.shuffler.store import Store

ROUNDS = 5


@dataclass(frozen=True)
class Federation:
    """A plan through a shuffler, and everybody's private keys."""

    plan: Plan
    channel: ShufflerChannel
    silos: dict[str, bytes]
    server: bytes

    @property
    def messages(self) -> int:
        """How many messages a silo sends in a round."""
        return self.channel.messages(self.channel.numbers(self.plan, self.plan.stages[0]))

    def seal(self, round: int, silo: str, messages: Sequence[bytes]) -> bytes:
        """Return a silo's update, as its gate makes it of messages."""
        digest = self.plan.digest()
        content = b"".join(sealing.seal_messages(self.channel.server_key, digest, round, messages))
        envelope = sealing.seal_envelope(self.channel.shuffler_key, digest, round, silo, content)
        text = base64.b64encode(envelope).decode()
        signature = sealing.sign(self.silos[silo], SealedUpdate.signed_bytes(digest, round, silo, text))
        return SealedUpdate(plan=digest, round=round, silo=silo, envelope=text, signature=signature).to_bytes()

    def open(self, round: int, batch: bytes) -> list[bytes]:
        """Return a batch's messages, as the server reads them."""
        joined = base64.b64decode(Batch.from_bytes(batch).messages)
        sealed = sealing.split_messages(joined, self.channel.message_bytes + SEALED_EXTRA)
        return sealing.open_messages(self.server, self.plan.digest(), round, sealed)


def federation(shuffler: str, silos: int, features: int) -> Federation:
    """Make a plan for so many silos of a thousand records."""
    number = {"type": "numeric", "lower": -1, "upper": 1}
    columns = {**{f"x{i}": number for i in range(features - 1)}, "y": {"type": "categorical", "categories": ["a", "b"]}}
    schema = parse_schema({"columns": columns}, target="y")
    server = sealing.new_key()
    private = {f"silo {index}": sealing.new_key() for index in range(silos)}
    keys = PublicKeys(
        server=sealing.public_key(server),
        shuffler=shuffler,
        silos={name: verifying_key(key) for name, key in private.items()},
    )
    members = [Member(name, 1000, 1.0, 1e-6) for name in private]
    plan = make_plan(schema, members, PlanRequest(rounds=ROUNDS, survey=False, trust="shuffler", keys=keys))
    (stage,) = plan.stages
    assert isinstance(stage.channel, ShufflerChannel)
    return Federation(plan, stage.channel, private, server)


@contextmanager
def serving(folder: Path) -> Iterator[ShufflerClient]:
    """Serve the folder in another process."""
    command = [sys.executable, "-m", "ringfence", "shuffler", "serve", str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().decode().split()[-1]
            yield ShufflerClient.read(address, folder / "shuffler.token")
        finally:
            process.send_signal(signal.SIGTERM)


def one_round(made: Federation, client: ShufflerClient, round: int) -> list[float]:
    """Return the seconds for bare seals, for the silos' part, for the shuffler's, and for the server's."""
    digest, count = made.plan.digest(), made.messages
    plain = {silo: [os.urandom(made.channel.message_bytes) for _ in range(count)] for silo in made.silos}
    everything = [message for messages in plain.values() for message in messages]
    times = [time.perf_counter()]
    sealed = sealing.seal_messages(made.channel.server_key, digest, round, everything)
    sealing.open_messages(made.server, digest, round, sealed)
    times.append(time.perf_counter())
    updates = [made.seal(round, silo, messages) for silo, messages in plain.items()]
    times.append(time.perf_counter())
    for update in updates:
        client.deposit(update)
    batch = client.batch(digest, round)
    assert batch is not None
    times.append(time.perf_counter())
    opened = made.open(round, batch)
    times.append(time.perf_counter())
    assert sorted(opened) == sorted(everything)
    return [float(spent) for spent in np.diff(times)]


def main(silos: int = 25, features: int = 50) -> dict[str, object]:
    """Time rounds through the service, and their parts alone."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        folder = Path(name) / "shuffler"
        with Shuffler(Store.create(folder)) as shuffler:
            made = federation(shuffler.public_key, silos, features)
            shuffler.add(made.plan)
        with serving(folder) as client:
            spent = [one_round(made, client, round) for round in range(ROUNDS)]
    bare, seal, mix, read = (float(median) for median in np.median(spent, axis=0))
    messages = silos * made.messages
    return {
        "silos": silos,
        "messages of all silos": messages,
        "bytes of a message": made.channel.message_bytes,
        "bare seal and open, seconds": bare,
        "bare seal and open, microseconds per message": 1e6 * bare / messages,
        "silos seal, seconds": seal,
        "deposits and release through the service, seconds": mix,
        "messages per second through the service": messages / mix,
        "service / bare seal and open": mix / bare,
        "server opens, seconds": read,
        "whole round / bare seal and open": (seal + mix + read) / bare,
    }


if __name__ == "__main__":
    print(json.dumps(main(), indent=2))
