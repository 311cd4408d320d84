"""The shuffler's service and the server's client, over real connections to a real process."""

import json
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

import pytest

from ringfence.deployment.shuffler_client import ShufflerClient
from ringfence.errors import DoorError, PlanError, ShufflerError
from ringfence.shuffler.service import SMALL_DEPOSIT, serve
from ringfence.shuffler.shuffler import Shuffler, ShufflerRefusal
from ringfence.shuffler.store import Store
from tests.callers import TOKENS, Caller
from tests.certificates import write_certificate
from tests.shuffler.depositors import Depositors, depositors, set_up
from tests.shuffler.serving import Served, run, serving


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("shuffler") / "mixer"
    Store.create(folder).close()
    with serving(folder) as running:
        yield running
        assert running.process.poll() is None, "the shuffler did not survive"
        assert running.output().count("\n") == 1, f"it says where it is, and nothing about callers: {running.output()}"


@pytest.fixture
def silos(served: Served) -> Depositors:
    """Silos of a new plan, which the operator adds while the shuffler is served."""
    with Shuffler.open(served.folder) as operator:
        made = depositors(operator.public_key)
        operator.add(made.plan)
    return made


@pytest.fixture
def caller(served: Served) -> Caller:
    return served.caller()


# -- end to end --


def test_updates_go_in_and_one_batch_comes_out(served: Served, silos: Depositors) -> None:
    client = served.client()
    sealed = {name: silos.sealed(name) for name in silos.names}
    updates = [silos.update(name, 0, messages) for name, messages in sealed.items()]
    assert served.caller().send("GET", "/health")[0] == 200
    assert client.batch(silos.plan.digest(), 0) is None
    for update in updates:
        client.deposit(update)
        client.deposit(update)
    batch = client.batch(silos.plan.digest(), 0)
    assert batch is not None
    assert client.batch(silos.plan.digest(), 0) == batch
    document, messages = silos.read(batch)
    assert document.silos == 3
    assert Counter(messages) == Counter(chain(*sealed.values()))
    with pytest.raises(DoorError, match="batch is final"):
        client.deposit(updates[0])


def test_silos_that_deposit_at_once_are_all_there(served: Served) -> None:
    with Shuffler.open(served.folder) as operator:
        silos = depositors(operator.public_key, silos=24)
        operator.add(silos.plan)
    with ThreadPoolExecutor(24) as pool:
        list(pool.map(lambda name: served.client(patience=30.0).deposit(silos.update(name)), silos.names))
    batch = served.client().batch(silos.plan.digest(), 0)
    assert batch is not None
    assert silos.read(batch)[0].silos == 24


def test_a_deposit_waits_for_a_shuffler_that_is_not_there_yet(tmp_path: Path) -> None:
    """Here it is served by its command, with a deadline that has passed at once."""
    silos = set_up(tmp_path / "mixer")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    client = ShufflerClient.read(f"http://127.0.0.1:{port}", tmp_path / "mixer" / "shuffler.token", patience=60.0)
    thread = threading.Thread(target=client.deposit, args=(silos.update(silos.names[0]),))
    thread.start()
    options = ["serve", str(tmp_path / "mixer"), "--port", str(port), "--seconds", "0"]
    command = [sys.executable, "-m", "ringfence", "shuffler", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().decode() == f"shuffler is served at http://127.0.0.1:{port}\n"
        thread.join()
        assert client.batch(silos.plan.digest(), 0) is None, "one silo is less than the quorum"
        client.deposit(silos.update(silos.names[1]))
        batch = client.batch(silos.plan.digest(), 0)
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == b""
        assert process.wait(30) == 0
    assert batch is not None
    assert silos.read(batch)[0].silos == 2


# -- refusals --


def test_a_refusal_comes_with_its_reason_and_names_nobody(caller: Caller, served: Served, silos: Depositors) -> None:
    forged = silos.update(silos.names[0], key=silos.keys[silos.names[1]])
    status, body, _ = caller.send("POST", "/deposit", forged)
    assert status == 422
    assert json.loads(body) == {"refused": "bad-signature", "error": ShufflerRefusal.BAD_SIGNATURE.explanation}
    with pytest.raises(DoorError, match="not made with the key that the plan names for this silo"):
        served.client().deposit(forged)
    with pytest.raises(DoorError, match="no plan with this digest"):
        served.client().batch("0" * 64, 0)
    with pytest.raises(DoorError, match="has no such round"):
        served.client().batch(silos.plan.digest(), 3)


def test_the_answer_says_how_many_silos_a_batch_waits_for(caller: Caller, silos: Depositors) -> None:
    path = f"/batch/{silos.plan.digest()}/0"
    assert caller.send("GET", path)[:2] == (202, b'{"waiting":"0 of 2 silos"}')
    assert caller.send("POST", "/deposit", silos.update(silos.names[0]))[:2] == (200, b'{"receipt":"stored"}')
    assert caller.send("GET", path)[:2] == (202, b'{"waiting":"1 of 2 silos"}')


@pytest.mark.parametrize("shown", TOKENS)
def test_without_the_token_nothing_is_answered(caller: Caller, silos: Depositors, shown: str) -> None:
    header = shown.format(caller.token)
    for method, path in [("POST", "/deposit"), ("GET", "/health"), ("GET", f"/batch/{silos.plan.digest()}/0")]:
        status, body, _ = caller.send(method, path, silos.update(silos.names[0]), Authorization=header)
        assert (status, body) == (401, b'{"error":"Show the shuffler\'s token."}')
    assert caller.send("GET", f"/batch/{silos.plan.digest()}/0")[1] == b'{"waiting":"0 of 2 silos"}'


def test_a_client_with_a_wrong_token_is_refused_at_once(served: Served) -> None:
    client = ShufflerClient(served.address, "wrong", patience=60.0)
    with pytest.raises(DoorError, match="Show the shuffler's token"):
        client.batch("0" * 64, 0)


@pytest.mark.parametrize(
    "path",
    [
        *("/", "*", "//deposit", "/deposit/", "/docs", "/%2e%2e/x", "/shuffler.key", "/batch/../shuffler.key/0"),
        *("/batch", "/batch/x", "/batch/x/y", "/batch/x/1.5", "/batch/x/" + "9" * 5000),
    ],
)
def test_there_is_nothing_at_other_paths(caller: Caller, path: str) -> None:
    assert caller.send("GET", path)[:2] == (404, b'{"error":"There is nothing here."}')


def test_an_oversized_body_is_refused_while_it_is_read(caller: Caller, silos: Depositors) -> None:
    """Whether its length is declared or not, and with no more than the limit in memory."""
    declared = caller.raw(caller.head(f"Content-Length: {10**12}") + b"x" * 1000)
    assert declared.startswith(b"HTTP/1.1 413 ")
    chunk = b"%x\r\n" % 2**16 + b"x" * 2**16 + b"\r\n"
    streamed = caller.raw(caller.head("Transfer-Encoding: chunked") + chunk * (SMALL_DEPOSIT // 2**16 + 1))
    assert streamed.startswith(b"HTTP/1.1 413 ")


def test_a_plan_with_long_envelopes_gets_them_through(served: Served) -> None:
    with Shuffler.open(served.folder) as operator:
        silos = depositors(operator.public_key, silos=2, shares=10, block=2**16)
        operator.add(silos.plan)
    for name in silos.names:
        update = silos.update(name)
        assert len(update) > 3 * SMALL_DEPOSIT
        served.client().deposit(update)
    assert served.client().batch(silos.plan.digest(), 0) is not None


def test_a_shuffler_that_cannot_write_gives_no_receipt_and_tells_its_operator_why(tmp_path: Path) -> None:
    silos = set_up(tmp_path / "mixer")
    with serving(tmp_path / "mixer") as served:
        served.client().deposit(silos.update(silos.names[0]))
        (tmp_path / "mixer" / "shuffler.db").rename(tmp_path / "gone")
        with pytest.raises(DoorError, match=r"did not answer within 0\.2 seconds \(it is busy\)"):
            served.client(patience=0.2).deposit(silos.update(silos.names[1]))
        complaint = served.output().splitlines()[1]
    assert complaint.startswith("ringfence: a request could not be answered: The database")
    assert "moved or replaced" in complaint
    assert not any(name in complaint for name in silos.names)


# -- addresses and TLS --


@pytest.mark.parametrize(
    "address",
    [
        *("", "127.0.0.1:80", "http://mixer.example:80", "ftp://127.0.0.1:80", "https://", "http://u@127.0.0.1:80"),
        *("https://mixer.example/path", "https://mixer.example:port", "https://[mixer", "https://mixer.example?x=1"),
    ],
)
def test_an_address_without_secrecy_or_sense_is_refused(address: str) -> None:
    with pytest.raises(DoorError, match="is not a shuffler's address"):
        ShufflerClient(address, "token")


def test_over_tls_the_same_service_answers_those_who_trust_its_certificate(tmp_path: Path) -> None:
    certificate = write_certificate(tmp_path, "127.0.0.1")
    silos = set_up(tmp_path / "mixer")
    with serving(tmp_path / "mixer", 3600.0, *map(str, certificate)) as served:
        assert served.address.startswith("https://127.0.0.1:")
        client = served.client(certificate=certificate[0])
        for name in silos.names:
            client.deposit(silos.update(name))
        assert client.batch(silos.plan.digest(), 0) is not None
        with pytest.raises(DoorError, match="does not show a trusted certificate"):
            served.client(patience=60.0).deposit(silos.update(silos.names[0], 1))
        plain = ShufflerClient(served.address.replace("https", "http"), served.token, patience=0.1)
        with pytest.raises(DoorError, match="did not answer"):
            plain.deposit(silos.update(silos.names[0], 1))
        assert served.output().count("\n") == 1
    with pytest.raises(DoorError, match="not a file of certificates"):
        ShufflerClient("https://127.0.0.1:1", "token", certificate=certificate[1])


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "mixer.example", ""])
def test_without_tls_it_is_served_to_this_machine_only(tmp_path: Path, host: str) -> None:
    with pytest.raises(ShufflerError, match="over a network, where the token could be read"):
        serve(tmp_path / "mixer", host=host)


def test_tls_needs_a_certificate_and_its_own_key(tmp_path: Path) -> None:
    certificate = write_certificate(tmp_path, "127.0.0.1")
    with pytest.raises(ShufflerError, match="both a certificate and its private key"):
        serve(tmp_path / "mixer", certificate=certificate[0])
    for pair in ((certificate[0], certificate[0]), (tmp_path / "none", certificate[1])):
        with pytest.raises(ShufflerError, match="are not a certificate and its private key"):
            serve(tmp_path / "mixer", certificate=pair[0], private_key=pair[1])


# -- the command line --


def test_an_operator_sets_up_adds_a_plan_and_looks(tmp_path: Path) -> None:
    folder, file = tmp_path / "mixer", tmp_path / "plan.json"
    said = run("init", folder)
    status = json.loads(run("status", folder, "--json"))
    assert status["public_key"] in said
    assert status["public_key"] in run("status", folder)
    assert status["plans"] == []
    assert "There is no plan yet" in run("status", folder)
    silos = depositors(status["public_key"])
    file.write_bytes(silos.plan.content)
    assert silos.plan.digest() in run("add", folder, file)
    assert json.loads(run("add", folder, file, "--json")) == {"added": silos.plan.digest()}
    assert "No message has arrived yet" in run("status", folder)
    with Shuffler.open(folder) as shuffler:
        shuffler.deposit(silos.update(silos.names[0]))
    printed = run("status", folder)
    assert [line.split() for line in printed.splitlines()[-2:]] == [["round", "silos", "state"], ["0", "1", "waiting"]]
    assert silos.names[0] not in printed + run("status", folder, "--json")
    assert json.loads(run("init", tmp_path / "second", "--json"))["folder"] == str(tmp_path / "second")


def test_what_an_operator_gets_wrong_is_said_in_one_sentence(tmp_path: Path) -> None:
    folder = tmp_path / "mixer"
    with pytest.raises(ShufflerError, match="`ringfence shuffler init` makes one"):
        run("status", folder)
    run("init", folder)
    with pytest.raises(ShufflerError, match="already exists"):
        run("init", folder)
    with pytest.raises(PlanError, match="could not be read"):
        run("add", folder, tmp_path / "none.json")
    (tmp_path / "other.json").write_bytes(depositors("ab" * 32).plan.content)
    with pytest.raises(PlanError, match="not for this shuffler"):
        run("add", folder, tmp_path / "other.json")
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ShufflerError, match="cannot be served at"):
        run("serve", folder, "--port", str(taken.getsockname()[1]))
    with Store(folder) as store, store.alone(), pytest.raises(ShufflerError, match="Another process is serving"):
        run("serve", folder, "--port", "0")
