"""Nothing but noisy numbers depends on a record: two silos that differ in one are told apart by nothing else.

Each example makes two silos from tables that differ in one record, or in all rows of one person, how many they are
included. Both have the same real history: reviews, approvals, requests through the agent's application, honest and
hostile. Everything that anyone could see is compared, and what is noisy in it by its length.
"""

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from contextlib import closing, redirect_stderr
from functools import cache
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from ringfence.errors import RingfenceError
from ringfence.planning.propose import make_plan
from ringfence.planning.query_plans import make_evaluation_plan, make_query_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import Plan, PublicKeys, RoundRequest, Statistics, pack, parse_schema
from ringfence.shuffler import sealing
from ringfence.silo.agent import Agent
from ringfence.silo.folder import SiloFolder
from ringfence.silo.gate.gate import Gate
from ringfence.silo.gate.limits import MEGABYTE, largest_round
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.monitor import Monitor
from ringfence.silo.operator.decisions import approve_plan, end_plan, list_entries, review_plan
from ringfence.storage.decision_log import DecisionLog
from ringfence.transport import connections
from tests.generated import examples
from tests.silo.agents import silo_with
from tests.support import rebuilt

MEMBERS = 24
"""Records, or persons, of each silo."""

NUMBER = {"type": "numeric", "lower": -1.0, "upper": 1.0}
COLUMNS: dict[str, Any] = {
    "a": NUMBER,
    "b": {**NUMBER, "missing": 0.0},
    "w": {"type": "numeric", "lower": 0.0, "upper": 2.0},
    "ill": {"type": "categorical", "categories": ["no", "yes"]},
}
TOML = "".join(
    f"[columns.{name}]\n" + "".join(f"{field} = {json.dumps(value)}\n" for field, value in column.items())
    for name, column in COLUMNS.items()
)
KEYS = {name: bytes([place]) * 32 for place, name in enumerate(("clinic", "north", "west", "server", "shuffler"), 1)}


# -- plans, as their authors would write them --


@cache
def plans(person: bool, records: int = MEMBERS) -> dict[str, Plan]:
    """Return plans of many queries, and of every sampling rule and channel, for silos of so many records or persons."""
    extra = {"person": "who"} if person else {}
    schema = parse_schema({"columns": COLUMNS, **extra}, target="ill")
    weighted = parse_schema({"columns": COLUMNS, "weight": "w", **extra}, target="ill")
    members = [Member("clinic", records, 3.0, 1e-6), Member("north", records, 3.0, 1e-6)]

    def plan(schema: Any = schema, **said: Any) -> Plan:
        return make_plan(schema, members, PlanRequest(**{"rounds": 3, "survey": False, "held_out": 0.0, **said}))

    public = sealing.public_key(KEYS["server"]), sealing.public_key(KEYS["shuffler"])
    keys = PublicKeys(
        server=public[0],
        shuffler=public[1],
        silos={name: sealing.verifying_key(KEYS[name]) for name in ("clinic", "north", "west")},
    )
    through = [*members, Member("west", records, 3.0, 1e-6)]
    shuffled = PlanRequest(trust="shuffler", keys=keys, rounds=2, algorithm="bounded", survey=False, held_out=0.0)
    found = {
        "full": plan(),
        "poisson": plan(sampling="poisson"),
        "fixed": plan(sampling="fixed"),
        "correlated": plan(sampling="one-pass", algorithm="accelerated", correlation=0.5),
        "surveyed": plan(survey=True, algorithm="accelerated"),
        "preconditioned": plan(algorithm="preconditioned", survey=True),
        "held out": plan(held_out=0.2),
        "weighted": plan(weighted),
        "statistics": make_query_plan(schema, members, Statistics(columns=("a", "b", "ill")), run="counts"),
        "shuffled": make_plan(schema, through, shuffled),
    }
    found["evaluated"] = make_evaluation_plan(found["held out"], pack(np.ones(found["full"].dimension)), members)
    if person:
        found["sums"] = plan(person_rule="sum")
    return found


def retold(plan: Plan, **changes: Any) -> Plan:
    """Return the plan with other terms for the clinic."""
    return rebuilt(plan, silos=(plan.silos[0].model_copy(update=changes), *plan.silos[1:]))


def overclaiming(plan: Plan) -> Plan:
    claims = plan.silos[0].guarantees
    return retold(plan, guarantees=tuple(own.model_copy(update={"epsilon": own.epsilon / 2}) for own in claims))


def widened(plan: Plan) -> Plan:
    columns = {**plan.data.columns, "a": plan.data.columns["a"].model_copy(update={"upper": 3.0})}
    return rebuilt(plan, data=plan.data.model_copy(update={"columns": columns}))


ALTERED: dict[str, Callable[[Plan], Plan]] = {
    "as it is": lambda plan: plan,
    "with less noise than it claims": overclaiming,
    "for somebody else": lambda plan: retold(plan, name="elsewhere"),
    "with other bounds": widened,
    "once more": lambda plan: rebuilt(plan, run="again"),
}


# -- neighbours --

CELL = st.sampled_from(["-1", "1", "0", "0.25", "-99", "1e300", "1e-300"])
ROW = st.tuples(CELL, CELL | st.just(""), st.sampled_from(["0", "1", "2", "7", "-3"]), st.sampled_from(["no", "yes"]))
SHORT = st.lists(ROW, min_size=1, max_size=3)
LONG = st.builds(lambda row, times: [row] * times, ROW, st.sampled_from([40, 400]))


@st.composite
def neighbours(draw: st.DrawFn, person: bool) -> tuple[str, str]:
    """Draw two tables that differ in one record, or in all rows of one person."""
    rows: st.SearchStrategy[Any] = st.lists(ROW, min_size=1, max_size=1)
    others = [draw(SHORT if person else rows) for _ in range(5)]
    place = draw(st.integers(0, MEMBERS - 1))
    one, other = (draw(SHORT | LONG if person else rows) for _ in range(2))
    before, after = others * 5, others * 5
    return table_of([*before[:place], one, *after], person), table_of([*before[:place], other, *after], person)


def table_of(members: list[Any], person: bool) -> str:
    """Return a silo's table: its first members, and so many more that it has as many as all silos."""
    more = [[("0.5", "-1", "1", "no" if number % 2 else "yes")] for number in range(MEMBERS)]
    rows = [
        ",".join([*row, *([f"p{number}"] if person else []), str(number)])
        for number, member in enumerate([*members, *more][:MEMBERS])
        for row in member
    ]
    return "\n".join(["a,b,w,ill" + (",who" if person else "") + ",number", *rows, ""])


# -- what is done to both --


class Send(NamedTuple):
    """What a courier, or a stranger, sends to the agent: which round of which plan, at what argument, and how."""

    plan: int
    round: int
    size: float
    how: str

    def body(self, plans: Sequence[Plan]) -> bytes:
        plan = plans[self.plan % len(plans)]
        stage = plan.place(min(self.round, plan.rounds - 1))[0]
        count = stage.query.argument_length(plan) + (self.how == "too long")
        numbers = self.size * (1 + np.arange(count) / max(1, count))
        digest = "0" * 64 if self.how == "an unknown plan" else plan.digest()
        request = RoundRequest.at(digest, self.round, numbers).to_bytes()
        return {"nonsense": b"{", "much": request + b" " * 2**20}.get(self.how, request)


SIZES = st.sampled_from([0.0, 0.01, 0.1, -2.0, 1e9, 1e-320, 1e300, float("inf"), float("nan")])
HOW = st.sampled_from(["well"] * 4 + ["too long", "an unknown plan", "nonsense", "much", "without the token"])
SENDS = st.lists(st.builds(Send, st.integers(0, 1), st.integers(0, 6), SIZES, HOW), min_size=2, max_size=8)


class History(NamedTuple):
    """What happens at a silo: which plans are put before it, and what is sent to it.

    `limit` is how much its operator allows, as a multiple of what the plans' largest round takes by public numbers.
    """

    person: bool
    named: list[tuple[str, str, int]]
    sends: list[Send]
    limit: float | None

    def plans(self) -> list[Plan]:
        return [ALTERED[how](plans(self.person, records)[name]) for name, how, records in self.named]


ALTERATIONS = st.just("as it is") | st.sampled_from(sorted(ALTERED))
SIZE = st.sampled_from([MEMBERS, MEMBERS, MEMBERS, MEMBERS + 1])
NAMED = st.lists(st.tuples(st.sampled_from(sorted(plans(False))), ALTERATIONS, SIZE), min_size=1, max_size=2)
LIMITS = (0.9, 1.0001, 1.05, 1.2, 1.4)


def said(act: Callable[[], Any]) -> Any:
    """Return what an act returns, or how it is refused."""
    try:
        return act()
    except RingfenceError as refused:
        return f"{type(refused).__name__}: {refused}"


def seen(folder: Path, table: str, history: History) -> list[Any]:
    """Set up a silo with the table, live the history, and return all that anyone could see of it."""
    own = silo_with(folder, ('person = "who"\n' if history.person else "") + TOML_ALL, table, Budget(8.0, 1e-6))
    own.key_path.write_bytes(KEYS["clinic"].hex().encode())
    if history.limit is not None:
        efforts = [largest_round(plan, plan.silos[0]) for plan in history.plans()]
        most = {"round_seconds": max(effort.seconds for effort in efforts)}
        most["round_memory"] = max(effort.memory for effort in efforts) / MEGABYTE
        limits = {name: history.limit * value for name, value in most.items()}
        own = SiloFolder(own.path, own.settings.model_copy(update=limits))
    found: list[Any] = []
    for plan in history.plans():
        reviewed = said(lambda plan=plan: review_plan(own, plan).data())  # type: ignore[misc]
        found.append(reviewed if isinstance(reviewed, str) else reviewed | {"clamped": "for the operator alone"})
        approved = said(lambda plan=plan: approve_plan(own, plan))  # type: ignore[misc]
        found.append(approved if isinstance(approved, str) else approved.text())
    with redirect_stderr(StringIO()) as complaints:
        found += asyncio.run(conversation(own, history))
    found.append(complaints.getvalue())  # the operator's, but often collected elsewhere
    found.append(said(lambda: end_plan(own, history.plans()[0].digest(), revoke=True)))
    log = own.path / "decisions.log"
    found.append(masked(log.read_text()) if log.exists() else "")
    found += [masked(json.dumps(entry)) for entry in list_entries(own) if entry["kind"] != "opened"]
    return found


TOML_ALL = TOML + '[columns.number]\ntype = "identifier"\n'


async def conversation(own: SiloFolder, history: History) -> list[Any]:
    """Send everything to the agent's application, and return its replies."""
    with own.ledger() as ledger, closing(DecisionLog(own.path)) as log:
        monitor = Monitor(ledger, log)
        gate = Gate(own.current_records(ledger), ledger, own.key(), note=monitor.note)
        agent = Agent(gate, ledger, "token", monitor)
        found = []
        for send in history.sends:
            token = "" if send.how == "without the token" else "token"
            found.append(await call(agent, "POST", "/answer", token, send.body(history.plans())))
            found.append(await call(agent, "GET", "/metrics", "token"))
        return [*found, await call(agent, "GET", "/health", "token"), await call(agent, "GET", "/nowhere", "token")]


async def call(agent: Agent, method: str, path: str, token: str, body: bytes = b"") -> list[Any]:
    """Return status, headers and body of a reply, without noise."""
    replies: list[Any] = []
    headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {token}".encode())]
    headers += [(b"content-length", str(len(body)).encode())]
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "path": path,
    }
    scope |= {"raw_path": path.encode(), "query_string": b"", "headers": headers, "scheme": "http", "root_path": ""}
    scope |= {"server": ("localhost", 1), "client": ("localhost", 2), "state": {connections._LET_IN: lambda: True}}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def reply(message: Any) -> None:
        replies.append(message)

    await agent(scope, receive, reply)
    return [masked(repr(replies)), len(b"".join(part.get("body", b"") for part in replies))]


NOISY = re.compile(
    r'("(?:vector|envelope|signature|hash|ledger)": ?")([^"]*)"|("time": ?")([^"]*)"|(process_start_time_seconds )\d+'
)


def masked(text: str) -> str:
    """Return a text with the length of what is noisy, or a hash of it, in its place, and without times."""

    def length(found: re.Match[str]) -> str:
        return f'{found[1]}{len(found[2])}"' if found[1] else found[3] or found[5]

    return NOISY.sub(length, text)


def require_alike(history: History, *tables: str) -> list[str]:
    """Check that silos with these tables cannot be told apart; return what was seen of each."""
    worlds = []
    for table in tables:
        with TemporaryDirectory(prefix="silo-") as folder, pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_STATE_HOME", str(Path(folder) / "state"))  # one machine each
            (Path(folder) / "work").mkdir()
            worlds.append([str(shown).replace(folder, "") for shown in seen(Path(folder) / "work", table, history)])
    assert worlds[0] == worlds[1]
    return worlds[0]


@pytest.mark.parametrize("person", [False, True], ids=["record", "person"])
@given(data=st.data())
@settings(examples(24), phases=(Phase.explicit, Phase.generate))  # a smaller example would take minutes to find
def test_neighbouring_silos_review_approve_refuse_log_and_answer_alike(person: bool, data: st.DataObject) -> None:
    limit = data.draw(st.none() | st.sampled_from(LIMITS))
    require_alike(History(person, data.draw(NAMED), data.draw(SENDS), limit), *data.draw(neighbours(person)))


@pytest.mark.parametrize("person", [False, True], ids=["record", "person"])
@pytest.mark.parametrize("name", sorted(plans(True)))
def test_every_query_rule_and_channel_answers_neighbouring_silos_alike(name: str, person: bool) -> None:
    """All rounds of the plan in order, one of them twice, and one too many."""
    name = name if name in plans(person) else "full"
    rounds = range(min(4, plans(person)[name].rounds + 1))
    sends = [Send(0, round, 0.01, "well") for round in (0, *rounds)]
    long = 40 if person else 1
    pair = table_of([[("1", "0", "-3", "yes")]], person), table_of([[("-99", "", "7", "no")] * long], person)
    shown = require_alike(History(person, [(name, "as it is", MEMBERS)], sends, None), *pair)
    assert any(f'"kind":"{kind}"' in reply for reply in shown for kind in ("update", "sealed"))


@pytest.mark.parametrize("limit", LIMITS)
def test_how_many_rows_a_person_has_decides_about_no_plan_however_near_its_effort_is_to_the_limits(
    limit: float,
) -> None:
    pair = (table_of([[("0.25", "0", "1", "no")] * rows], person=True) for rows in (1, 400))
    require_alike(History(True, [("full", "as it is", MEMBERS), ("sums", "as it is", MEMBERS)], [], limit), *pair)
