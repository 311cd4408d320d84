"""What strangers can do at the doors of an agent, an operator's page and a shuffler: python -m benchmarks.doors

Real processes on ports of this machine's loopback interface. Strangers hold idle connections, and leave heads or TLS
handshakes unfinished by the ten thousand; one who may come in asks meanwhile. Every loop ends by its count, and every
wait by its deadline. (Who never reads an answer: `tests/attacks/test_doors.py`.)
"""

import contextlib
import http.client
import json
import os
import re
import resource
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlencode

from ringfence.shuffler.store import Store
from ringfence.silo.folder import SiloFolder, SiloSettings
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.operator.setup import create_folder

IDLE = (31, 1000)
CHURN = 41_000
UNFINISHED = b"POST /answer HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 60_000
HANDSHAKE = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 200
PATIENCE = 20.0

Ask = Callable[[], int]


@contextlib.contextmanager
def served(*command: str | Path) -> Iterator[tuple[int, int]]:
    """Run a command that serves, and tell its process and port."""
    ringfence = [sys.executable, "-m", "ringfence", *map(str, command)]
    with subprocess.Popen(ringfence, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            found = re.search(r"127\.0\.0\.1:(\d+)", process.stdout.readline())
            assert found
            yield process.pid, int(found[1])
        finally:
            process.send_signal(signal.SIGTERM)


def asked(
    port: int,
    method: str,
    path: str,
    body: str = "",
    headers: dict[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
) -> int:
    """Ask once, and return the status; 0 if there is no answer in time."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    if tls is not None:
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=PATIENCE, context=tls)
    try:
        connection.request(method, path, body, headers or {})
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def resident(pid: int) -> float:
    """Return a process's memory in MB."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return round(int(found[1]) / 1024, 1)


def beside_idle(port: int, ask: Ask, strangers: int) -> dict[str, float]:
    """Ask while so many connections are held open that say nothing."""
    with contextlib.ExitStack() as held:
        for _ in range(strangers):
            held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE))
        begun = time.perf_counter()
        return {"strangers": strangers, "status": ask(), "seconds": round(time.perf_counter() - begun, 3)}


def churn(pid: int, port: int, ask: Ask, count: int, begin: bytes = UNFINISHED) -> dict[str, float]:
    """Begin so many requests, or handshakes, each left before it is whole, and ask now and then."""
    before, answered = resident(pid), []
    begun = time.perf_counter()
    for number in range(count):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as stranger:
            stranger.sendall(begin)
        if number % (count // 10) == 0:
            answered.append(ask())
    return {
        "connections": count,
        "seconds": round(time.perf_counter() - begun, 1),
        "answered": sum(status == 200 for status in answered),
        "asked": len(answered),
        "mb_before": before,
        "mb_after": resident(pid),
    }


FLOOD = """
import collections, contextlib, socket, sys
held = collections.deque(maxlen=300)
for number in range(int(sys.argv[2])):
    with contextlib.suppress(OSError):
        held.append(socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=20))
        held[-1].sendall(b"POST /answer HTTP/1.1\\r\\nHost: loc")
"""


def flood(port: int, ask: Ask, count: int) -> dict[str, float]:
    """Ask all the time while two other processes open connections as fast as they can, and hold the last ones."""
    flooding = [subprocess.Popen([sys.executable, "-c", FLOOD, str(port), str(count // 2)]) for _ in range(2)]
    answered, times = [], []
    while any(process.poll() is None for process in flooding):
        begun = time.perf_counter()
        answered.append(ask())
        times.append(time.perf_counter() - begun)
    return {
        "connections": count,
        "answered": sum(status == 200 for status in answered),
        "asked": len(answered),
        "slowest_seconds": round(max(times), 3),
    }


def silo(folder: Path) -> SiloFolder:
    """Set up a silo of two records."""
    (folder / "schema.toml").write_text(
        '[columns.a]\ntype = "numeric"\nlower = -1.0\nupper = 1.0\n'
        '[columns.ill]\ntype = "categorical"\ncategories = ["no", "yes"]\n'
    )
    (folder / "records.csv").write_text("a,ill\n0.5,yes\n-0.5,no\n")
    settings = SiloSettings(
        name="clinic", data_file=str(folder / "records.csv"), schema_file=str(folder / "schema.toml")
    )
    return create_folder(folder / "clinic", settings, Budget(1.0, 1e-6))


def operator(port: int, token: str) -> Ask:
    """Enter the operator's page, and return what presses the stop button."""
    origin = {"Origin": f"http://127.0.0.1:{port}", "Content-Type": "application/x-www-form-urlencoded"}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request("POST", "/enter", urlencode({"token": token}), origin)
    found = re.search(r'name="key" value="([\w-]+)"', connection.getresponse().read().decode())
    assert found
    key = found[1]
    return lambda: asked(port, "POST", "/stop", urlencode({"key": key}), origin)


def measure(folder: Path, connections: int) -> dict[str, object]:
    """Do all of it at all three doors."""
    made = silo(folder)
    Store.create(folder / "shuffler").close()
    shown = {"Authorization": f"Bearer {made.token()}"}
    mixing = {"Authorization": f"Bearer {(folder / 'shuffler' / 'shuffler.token').read_text().strip()}"}
    results: dict[str, object] = {}
    with served("silo", "serve", made.path, "--port", "0") as (pid, port):
        courier: Ask = lambda: asked(port, "GET", "/health", headers=shown)  # noqa: E731
        results["agent"] = {
            "idle": [beside_idle(port, courier, strangers) for strangers in IDLE],
            "churn": churn(pid, port, courier, connections),
            "flood": flood(port, courier, connections // 2),
        }
    with served("silo", "page", made.path) as (pid, port):
        stop = operator(port, (made.path / "operator.token").read_text().strip())
        results["page"] = {
            "idle": [beside_idle(port, stop, strangers) for strangers in IDLE],
            "churn": churn(pid, port, stop, connections // 10),
            "flood": flood(port, stop, connections // 10),
        }
    with served("shuffler", "serve", folder / "shuffler", "--port", "0") as (pid, port):
        client: Ask = lambda: asked(port, "GET", "/health", headers=mixing)  # noqa: E731
        results["shuffler"] = {
            "idle": [beside_idle(port, client, strangers) for strangers in IDLE],
            "churn": churn(pid, port, client, connections // 10),
            "flood": flood(port, client, connections // 10),
        }
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    made_for = ["-subj", "/CN=shuffler", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2", "-nodes"]
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    command = ["openssl", "req", "-x509", *curve, *made_for, "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    tls = ssl.create_default_context(cafile=certificate)
    options = ("--port", "0", "--certificate", certificate, "--private-key", key)
    with served("shuffler", "serve", folder / "shuffler", *options) as (pid, port):
        secured: Ask = lambda: asked(port, "GET", "/health", headers=mixing, tls=tls)  # noqa: E731
        results["shuffler with TLS"] = {
            "idle": [beside_idle(port, secured, strangers) for strangers in IDLE],
            "churn": churn(pid, port, secured, connections, HANDSHAKE),
        }
    return results


def main(connections: int = CHURN) -> dict[str, object]:
    """Measure in a folder of its own."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 8192), most))
    with tempfile.TemporaryDirectory() as name:
        os.environ["XDG_STATE_HOME"] = name
        return measure(Path(name), connections)


if __name__ == "__main__":
    print(json.dumps(main(*map(int, sys.argv[1:])), indent=2))
