"""What is crashed: scenarios of a silo, a server and a shuffler, and what must hold of their files after every crash.

A scenario begins with `prepare`. `proceed` is what a process does from there, and does again, after every crash, on
the files that are there, until it has come to its end. `here` is what it writes; `away` is what others have: the data,
keys, and the wire, which remembers everything that has left.
"""

import base64
import json
import re
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import chain, count
from pathlib import Path

import pytest

from ringfence.errors import RegistryError, ShufflerError, SiloError
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import NoisyUpdate, RoundRequest, load_plan, load_schema, parse_answer
from ringfence.protocol.channels.shuffler import SEALED_EXTRA
from ringfence.server.conduct import conduct, replay
from ringfence.server.transcript import Closed, read_transcript
from ringfence.shuffler import sealing
from ringfence.shuffler.shuffler import Receipt, Shuffler, ShufflerRefusal
from ringfence.shuffler.store import Store
from ringfence.shuffler.witness import Witness
from ringfence.silo.folder import SiloFolder
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger.backup import back_up, restore
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.custody import objection
from ringfence.silo.ledger.ledger import Ledger
from ringfence.silo.operator.decisions import approve_plan, end_plan, set_budget, update_data
from ringfence.silo.operator.setup import create_folder, make_settings
from tests.shuffler.depositors import depositors
from tests.shuffler.shuffled_federation import shuffle_of
from tests.silo.agents import SCHEMA, make_silo_folder

DELTA = 1e-6
RECORDS = 40


def require(pattern: str, refused: Exception) -> str:
    """Return what an error tells an operator to do; it must say so."""
    found = re.search(pattern, str(refused))
    assert found is not None, str(refused)
    return found[found.re.groups]


class Scenario(ABC):
    """A scenario in a folder, whose parts `here` and `away` it has for itself."""

    def __init__(self, place: Path) -> None:
        """Use this folder."""
        self.here, self.away = place / "here", place / "away"
        self.wire = self.away / "wire.jsonl"

    @abstractmethod
    def prepare(self) -> None:
        """Make the files that the scenario begins with."""

    @abstractmethod
    def proceed(self) -> None:
        """Go on from the files that are there, to the end."""

    @abstractmethod
    def check(self, crashes: int) -> None:
        """Raise AssertionError unless the files, after so many crashes, are what they must be."""

    @abstractmethod
    def check_end(self, crashes: int) -> None:
        """Raise AssertionError unless the scenario, after so many crashes, has come to a good end."""

    def tell(self, what: str, content: str) -> None:
        """Send something: the wire remembers it."""
        with self.wire.open("a") as wire:
            wire.write(json.dumps([what, content]) + "\n")

    def told(self, what: str) -> list[str]:
        """Return what was sent of this kind."""
        lines = map(json.loads, self.wire.read_text().splitlines())
        return [content for kind, content in lines if kind == what]


class Run(Scenario):
    """A silo's operator approves a plan, its gate answers a server's rounds, and the plan is ended."""

    def prepare(self) -> None:
        """Set up the silo and make the plan."""
        folder = make_silo_folder(self.here, epsilon=10.0, records=RECORDS)
        members = [Member(folder.name, RECORDS, 8.0, DELTA)]
        schema = load_schema(self.here / "schema.toml", "ill")
        plan = make_plan(schema, members, PlanRequest(algorithm="bounded", rounds=3))  # two crashes may lose two
        (self.away / "plan.json").write_bytes(plan.content)

    def proceed(self) -> None:
        """Approve, train and end, as far as that is not done."""
        plan, folder = load_plan(self.away / "plan.json"), SiloFolder.open(self.here / "clinic")
        with folder.ledger() as ledger:
            known = ledger.account().plans.get(plan.digest())
        if known is None:
            approve_plan(folder, plan)
        with folder.alone(), folder.ledger() as ledger:
            gate = Gate(folder.current_records(ledger), ledger, folder.key())

            def exchange(
                request: bytes, silos: Sequence[str], arrived: Callable[[str, bytes], None], seconds: float
            ) -> None:
                asked = RoundRequest.from_bytes(request)
                self.tell("asked", str(asked.round))
                answer = gate.answer(asked).to_bytes()
                self.tell("answer", answer.decode())
                arrived(gate.silo, answer)

            result = conduct(plan, exchange, self.here / "run", patience=0)
        assert (result.weights == replay(self.here / "run").weights).all()
        self.tell("model", result.weights.tobytes().hex())
        if known is None or not known.ended:
            end_plan(folder, plan.digest(), revoke=False)

    def check(self, crashes: int) -> None:
        """What left was charged, stands in the ledger as it left, and is one answer for each round."""
        digest = load_plan(self.away / "plan.json").digest()
        left: dict[int, set[bytes]] = defaultdict(set)
        for text in self.told("answer"):
            answer = parse_answer(text.encode())
            if isinstance(answer, NoisyUpdate):
                left[answer.round].add(text.encode())
        with Ledger.open(self.here / "clinic" / "clinic.ledger") as ledger:
            approved = ledger.account().plans.get(digest)
            rounds = {} if approved is None else approved.rounds
            stored = {number: ledger.stored(round.answer) for number, round in rounds.items() if round.answer}
        assert {round: {stored.get(round)} for round in left} == left, "what left is not what was charged and stored"
        assert len(rounds) - len(stored) <= crashes, "more rounds were charged in vain than there were crashes"
        assert len(set(self.told("model"))) <= 1, "the run has two models"
        if asked := self.told("asked"):
            closed = sum(isinstance(entry, Closed) for entry in read_transcript(self.here / "run")[1])
            assert closed >= max(map(int, asked)), "a round was asked for before those before it were on the disk"

    def check_end(self, crashes: int) -> None:
        """The run has a model, of all rounds but those that a crash lost, and the plan is ended."""
        plan = load_plan(self.away / "plan.json")
        assert self.told("model")
        with Ledger.open(self.here / "clinic" / "clinic.ledger") as ledger:
            account = ledger.account()
        approved = account.plans[plan.digest()]
        assert approved.ended == "finished"
        assert set(approved.rounds) == set(range(plan.rounds))
        answered = [name for outcome in replay(self.here / "run").history for name in outcome.answered]
        assert len(answered) >= plan.rounds - crashes, "a crash cost more than one round"
        [mark] = (self.here / "state" / "ringfence" / "heads").iterdir()
        assert mark.read_text().split()[4] == account.head, "the watermark is behind"


class Mixing(Scenario):
    """A shuffler takes silos' updates, hands out a batch for each round, and ends the plan."""

    rounds = 2

    def prepare(self) -> None:
        """Set the shuffler up, and have the silos seal their updates."""
        with Store.create(self.here / "mixer") as store:
            Shuffler(store, witness=Witness(store)).settle()
            silos = depositors(sealing.public_key(store.key), silos=2, rounds=self.rounds)
        (self.away / "plan.json").write_bytes(silos.plan.content)
        sealed = [[silos.sealed(name, round) for name in silos.names] for round in range(self.rounds)]
        updates = [
            [silos.update(name, round, messages).decode() for name, messages in zip(silos.names, own, strict=True)]
            for round, own in enumerate(sealed)
        ]
        (self.away / "updates.json").write_text(json.dumps(updates))
        (self.away / "sealed.json").write_text(json.dumps([[m.hex() for m in chain(*own)] for own in sealed]))

    def proceed(self) -> None:
        """Take and hand out, as far as the shuffler does, and end the plan."""
        plan = load_plan(self.away / "plan.json")
        with Store(self.here / "mixer") as store, store.alone():
            shuffler = Shuffler(store, seconds=3600.0, witness=Witness(store))
            shuffler.settle()
            shuffler.add(plan)
            for round, updates in enumerate(json.loads((self.away / "updates.json").read_text())):
                for update in updates:
                    receipt = shuffler.deposit(update.encode())
                    self.tell("receipt" if isinstance(receipt, Receipt) else receipt.value, json.dumps([round, update]))
                for _ in range(2):
                    batch = shuffler.release(plan.digest(), round)
                    self.tell(*("batch", batch.decode()) if isinstance(batch, bytes) else ("no batch", str(batch)))
            shuffler.end(plan.digest())
            assert shuffler.release(plan.digest(), 0) is ShufflerRefusal.PLAN_ENDED
            self.tell("end", "")

    def check(self, crashes: int) -> None:
        """A round has one batch, of everything that has a receipt; it left when the witness knew of it."""
        channel = shuffle_of(load_plan(self.away / "plan.json"))
        sealed = json.loads((self.away / "sealed.json").read_text())
        batches = defaultdict(set)
        for text in self.told("batch"):
            batches[json.loads(text)["round"]].add(json.loads(text)["messages"])
        for round, versions in batches.items():
            [messages] = versions
            split = sealing.split_messages(base64.b64decode(messages), channel.message_bytes + SEALED_EXTRA)
            assert Counter(message.hex() for message in split) == Counter(sealed[round])
        with Store(self.here / "mixer") as store, Shuffler(store) as shuffler:
            seen = Witness(store).seen()
            [*plans] = shuffler.status()["plans"]
            states = {each["round"]: each for plan in plans for each in plan["rounds"]}
        assert seen is not None
        assert seen >= len(batches), "a batch left before the witness knew of it"
        receipts = Counter(json.loads(text)[0] for text in set(self.told("receipt")))
        for round, confirmed in receipts.items():
            assert states[round]["silos"] >= confirmed, "a deposit with a receipt is lost"

    def check_end(self, crashes: int) -> None:
        """Every round has had its batch, the plan is ended, and no message is on the disk."""
        assert len({json.loads(text)["round"] for text in self.told("batch")}) == self.rounds
        assert self.told("end")
        left = b"".join(path.read_bytes() for path in (self.here / "mixer").iterdir() if path.is_file())
        for message in chain(*json.loads((self.away / "sealed.json").read_text())):
            assert bytes.fromhex(message)[:40] not in left


class Beginning(Scenario):
    """Operators set up a silo and a shuffler, and start again in a new folder where a crash left half of one."""

    def prepare(self) -> None:
        """Write the silo's data."""
        (self.away / "schema.toml").write_text(SCHEMA)
        rows = [f"{(7 * i % 40) / 40},{(11 * i % 40) / 40},0,{'yes' if i % 3 else 'no'}" for i in range(RECORDS)]
        (self.away / "records.csv").write_text("\n".join(["a,b,c,ill", *rows, ""]))

    def _create(self, path: Path, ledger: str | None = None) -> SiloFolder:
        files = {"data_file": str(self.away / "records.csv"), "schema_file": str(self.away / "schema.toml")}
        return create_folder(path, make_settings(name="clinic", ledger_file=ledger, **files), Budget(2.0, DELTA))

    def proceed(self) -> None:
        """Set up what is not there, and do what errors say."""
        if not self.told("silo"):
            self.tell("silo", str(self._set_up_silo().path))
        folder = SiloFolder.open(Path(self.told("silo")[0]))
        with folder.ledger() as ledger:
            assert not folder.current_records(ledger).were_moved
        assert len(folder.key()) == 32
        assert folder.token()
        if not self.told("shuffler"):
            self.tell("shuffler", str(self._set_up_shuffler()))
        with Store(Path(self.told("shuffler")[0])) as store:
            Shuffler(store, witness=Witness(store)).settle()
            assert store.token()

    def _set_up_silo(self) -> SiloFolder:
        """Set the silo up: in a new folder, and with the ledger that its data has already, if an error says so."""
        ledger = None
        for path in (self.here / f"clinic-{number}" for number in count()):
            try:
                return self._create(path, ledger)
            except SiloError as refused:
                require("name a new folder", refused)
            except RegistryError as refused:
                ledger = require(r"Use that one \(`--same-data-as (\S+?)`", refused)
        raise AssertionError

    def _set_up_shuffler(self) -> Path:
        """Set the shuffler up, in a new folder if an error says so."""
        for path in (self.here / f"mixer-{number}" for number in count()):
            try:
                Store.create(path).close()
                return path
            except ShufflerError as refused:
                require("name a new folder", refused)
        raise AssertionError

    def check(self, crashes: int) -> None:
        """What was said to be set up stays so."""
        assert len(set(self.told("silo"))) <= 1
        assert len(set(self.told("shuffler"))) <= 1

    def check_end(self, crashes: int) -> None:
        """The silo's data has one ledger, which may be charged, and gets no second one."""
        [path] = set(self.told("silo"))
        with SiloFolder.open(Path(path)).ledger() as ledger:
            assert objection(ledger) == ""
            assert ledger.account().budget == Budget(2.0, DELTA)
        with pytest.raises(RegistryError, match="already have a ledger"):
            self._create(self.away / "another")


class Keeping(Scenario):
    """An operator raises the budget, backs the ledger up, restores the backup and records that the data changed."""

    def prepare(self) -> None:
        """Set up a silo whose data will have changed."""
        folder = make_silo_folder(self.here, epsilon=2.0, records=RECORDS)
        with folder.ledger() as ledger:
            self.tell("entry", str(ledger.account().number))
        data = self.here / "records.csv"
        data.write_text("".join(data.read_text().splitlines(keepends=True)[:-1]))

    def proceed(self) -> None:
        """Decide what is not decided, and do what an error says."""
        folder = SiloFolder.open(self.here / "clinic")
        backups = [self.here / f"backup-{number}" for number in range(10)]
        if not folder.ledger_path.exists():  # a restore was cut off: run it again
            restore(folder, Path(self.told("backup")[-1]))
        with folder.ledger() as ledger:
            budget, number = ledger.account().budget, ledger.account().number
        self.tell("entry", str(number))
        if budget.epsilon < 3.0:
            set_budget(folder, Budget(3.0, DELTA), note="a second study")
            self.tell("entry", str(number + 1))
        backup = next(path for path in backups if not path.exists())
        made = back_up(folder, backup)
        self.tell("backup", str(backup))
        account, replaced = restore(folder, backup)
        assert (account.number, account.head) == (made.number, made.head)
        assert replaced is not None
        try:
            update_data(folder, "a patient withdrew")
        except RegistryError as refused:
            require("nothing to update", refused)
        self.tell("end", "")

    def check(self, crashes: int) -> None:
        """No entry of the ledger is forgotten, and a backup that was made is there."""
        replaced = [path for path in (self.here / "clinic").glob("*.replaced-*") if not path.name.endswith("-journal")]
        found = map(self._last, [*replaced, self.here / "clinic" / "clinic.ledger"])
        assert max(found) >= max(map(int, self.told("entry")))
        for backup in self.told("backup"):
            assert self._last(Path(backup)) > 0

    @staticmethod
    def _last(path: Path) -> int:
        """Return the number of the last entry; 0 if there is no file."""
        if not path.exists():
            return 0
        with Ledger.open(path, marked=False) as ledger:
            return ledger.account().number

    def check_end(self, crashes: int) -> None:
        """The ledger is the data's, in its new version, and says so once or, if a crash came between, once more."""
        folder = SiloFolder.open(self.here / "clinic")
        with folder.ledger() as ledger:
            account, kinds = ledger.account(), [entry.kind for entry in ledger.entries()]
            assert objection(ledger) == ""
            assert not folder.current_records(ledger).were_moved
        assert account.budget == Budget(3.0, DELTA)
        assert kinds[:3] == ["opened", "budget", "budget"]
        assert 1 <= kinds.count("data") <= 1 + crashes


SCENARIOS = {scenario.__name__.lower(): scenario for scenario in (Beginning, Keeping, Run, Mixing)}
