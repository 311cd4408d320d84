"""The operator's page: reviewing and deciding plans in a browser on the silo's own machine.

It is a process of its own, so that the agent's door stays small. Both work on the silo's folder, and decisions take
effect at once.

Who may reach it: any process of this machine can connect to a port of the loopback interface, and any web site can
make the operator's browser do so. Hence:

- Nothing but the entrance is shown without the token in `operator.token`, which only the folder's owner can read. It
  is not the couriers' token.
- There is no cookie. Entering gives a key that stands in the forms of the pages and nowhere else, and every page is
  the answer to such a form. A browser therefore carries no authority that another site, or another port of this
  machine, could borrow; a request without the key does nothing (no CSRF).
- The `Host` must be this machine and the `Origin` this page (no DNS rebinding, no posts from elsewhere).
- Pages run no script, load nothing, may not be framed and are not cached.
"""

import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ringfence.errors import ApprovalError, RingfenceError, SiloError
from ringfence.html.markup import POLICY, Html, document
from ringfence.silo.folder import SiloFolder
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.operator import decisions
from ringfence.silo.operator import pages as operator_pages
from ringfence.storage.files import read_token, write_token
from ringfence.transport import serving
from ringfence.transport.connections import let_in

IDLE_SECONDS = 15 * 60.0
"""After so long without a click, the operator must sign in again."""

_SESSION_ENDS = f"A session ends after {IDLE_SECONDS / 60:.0f} minutes without a click."

LONGEST_REQUEST = 2**20
"""Bytes of a form: longer plans are put into the folder as files."""

_MOST_KEYS = 8

_HEADERS = {
    "cache-control": "no-store",
    "connection": "close",
    "content-security-policy": f"{POLICY}; form-action 'self'; frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}

Form = Mapping[str, str]


class SessionKeys:
    """The session keys of those who signed in, and when each was last used."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin without session keys of the operator's page; `clock` tells when a key was last used."""
        self._clock = clock
        self._used: dict[str, float] = {}

    def new(self) -> str:
        """Return a new session key of the operator's page; of too many, the one that was idle longest is dropped."""
        key = secrets.token_urlsafe(32)
        self._used[key] = self._clock()
        while len(self._used) > _MOST_KEYS:
            del self._used[next(iter(self._used))]  # keys stand in the order in which they were last used
        return key

    def opens(self, key: str) -> bool:
        """Tell whether the session key of the operator's page is valid, and renew it."""
        used = self._used.pop(key, None)
        if used is None or self._clock() - used > IDLE_SECONDS:
            return False
        self._used[key] = self._clock()
        return True

    def forget(self, key: str) -> None:
        """Invalidate a session key of the operator's page."""
        self._used.pop(key, None)


class OperatorPage:
    """The ASGI application."""

    def __init__(self, folder: SiloFolder, token: str, port: int) -> None:
        """Serve the operator's page of a silo's folder to those who know the token."""
        self._folder = folder
        self._token = token
        self._hosts = (f"127.0.0.1:{port}", f"localhost:{port}")
        self._keys = SessionKeys()
        self._acts: dict[str, Callable[[Form], Html]] = {
            "/home": self._home,
            "/ledger": lambda form: operator_pages.ledger(form["key"], decisions.list_entries(self._folder)),
            "/plan": self._plan,
            "/add": self._add,
            "/approve": self._approve,
            "/refuse": self._refuse,
            "/end": lambda form: self._end(form, revoke=False),
            "/revoke": lambda form: self._end(form, revoke=True),
            "/stop": self._stop,
            "/budget": self._budget,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer every request with a page for the operator."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        status, content = await self._answer(request)
        title = f"Silo {self._folder.name}: operator page"
        page = document(title, content, form_action="'self'")
        await Response(page, status, _HEADERS, "text/html")(scope, receive, send)

    async def _answer(self, request: Request) -> tuple[int, Html]:
        """Return the HTTP status and the operator's page for a request, after checks of host, origin and session."""
        host = request.headers.get("host", "")
        if host not in self._hosts:
            return 421, operator_pages.problem("Open this page as 127.0.0.1 or localhost: it answers to no other name.")
        path = request.url.path
        if request.method in ("GET", "HEAD"):
            return (200, self._entrance()) if path == "/" else (404, operator_pages.problem("There is nothing here."))
        if request.method != "POST" or path not in {*self._acts, "/enter", "/leave"}:
            return 404, operator_pages.problem("There is nothing here.")
        if request.headers.get("origin") != f"http://{host}":
            return 403, operator_pages.problem("This form did not come from the operator page, so nothing was done.")
        content = await serving.read_body(request, small=LONGEST_REQUEST, longest=lambda: LONGEST_REQUEST)
        if isinstance(content, int):
            return content, operator_pages.problem(
                "The form is too long or arrived too slowly, so nothing was done. Save long plans in the folder."
            )
        form = _form(content)
        if path == "/enter":
            if not hmac.compare_digest(form.get("token", "").strip().encode(), self._token.encode()):
                return 403, self._entrance("Wrong token. Try again.")
            form = {"key": self._keys.new()}
            path = "/home"
        elif path == "/leave":
            self._keys.forget(form.get("key", ""))
            return 200, self._entrance("You are signed out.")
        elif not self._keys.opens(form.get("key", "")):
            return 403, self._entrance(f"Nothing was done: sign in first. {_SESSION_ENDS}")
        if not let_in(request.scope):
            return 503, operator_pages.problem("The page is busy, so nothing was done. Try again.")
        return await run_in_threadpool(self._act, path, form)

    def _act(self, path: str, form: Form) -> tuple[int, Html]:
        """Do what a form of the operator's page asks; return the status, and the page with what was done or refused."""
        try:
            return 200, self._acts[path](form)
        except RingfenceError as refused:
            why = str(refused)
        except Exception as problem:
            serving.report_problem(problem)
            return 503, operator_pages.problem(
                "An unexpected error occurred; the terminal shows which kind. Refresh to see what was done."
            )
        try:
            return 409, self._home(form, problem=why)
        except RingfenceError as refused:  # the ledger itself is in trouble
            return 503, operator_pages.problem(str(refused))

    def _entrance(self, notice: str = "") -> Html:
        """Return the page that asks for the operator's token."""
        return operator_pages.entrance(self._folder.name, token_path(self._folder).name, notice)

    def _home(self, form: Form, *, notice: str = "", problem: str = "") -> Html:
        """Return the operator's main page as things stand, with a notice or a problem."""
        state = decisions.status(self._folder)
        with self._folder.ledger() as ledger:
            budget = ledger.account().budget
        waiting = decisions.pending_plans(self._folder, {plan["plan"] for plan in state["plans"]})
        problem = problem or state["objection"]
        return operator_pages.home(form["key"], state, budget, waiting, notice=notice, problem=problem)

    def _waiting(self, form: Form) -> decisions.PendingPlans:
        """Return the pending plans; ApprovalError if the plan of the operator's form is not among them."""
        decided = {plan["plan"] for plan in decisions.status(self._folder)["plans"]}
        waiting = decisions.pending_plans(self._folder, decided)
        if form.get("plan") not in waiting.plans:
            raise ApprovalError("That plan awaits no decision: you have decided on it, or its file has changed.")
        return waiting

    def _plan(self, form: Form) -> Html:
        """Show the review of a pending plan on the operator's page."""
        plan = self._waiting(form).plans[form["plan"]]
        return operator_pages.plan(form["key"], decisions.review_plan(self._folder, plan))

    def _add(self, form: Form) -> Html:
        """Save a plan that was pasted on the operator's page."""
        plan = decisions.add_pending_plan(self._folder, form.get("content", "").encode())
        return self._home(form, notice=f"Plan {plan.digest()[:12]} awaits your decision.")

    def _approve(self, form: Form) -> Html:
        """Approve a pending plan, from the operator's page."""
        plan = self._waiting(form).plans[form["plan"]]
        made = decisions.approve_plan(self._folder, plan, note=form.get("note", "").strip())
        cost = f"epsilon {made.own[0].epsilon:.4g} at delta {made.own[0].delta:.2g} for each {plan.unit}"
        return self._home(form, notice=f"Approved plan {form['plan'][:12]}: {cost}.")

    def _refuse(self, form: Form) -> Html:
        """Refuse a pending plan, from the operator's page."""
        decisions.refuse_pending_plan(self._waiting(form).files[form["plan"]])
        return self._home(form, notice=f"Refused plan {form['plan'][:12]}: no round of it will be answered.")

    def _end(self, form: Form, *, revoke: bool) -> Html:
        """Finish or revoke a running plan, from the operator's page."""
        if form.get("plan") not in _running(decisions.status(self._folder)):
            raise ApprovalError("That plan is not running, so it cannot be ended.")
        decisions.end_plan(self._folder, form["plan"], revoke=revoke)
        done = "Revoked" if revoke else "Finished"
        return self._home(form, notice=f"{done} plan {form['plan'][:12]}: no further round of it will be answered.")

    def _stop(self, form: Form) -> Html:
        """Revoke all running plans, from the operator's page."""
        stopped = _running(decisions.status(self._folder))
        for digest in stopped:
            decisions.end_plan(self._folder, digest, revoke=True)
        count = len(stopped)
        return self._home(form, notice=f"Revoked {count} running plan{'s' * (count != 1)}: no request is answered.")

    def _budget(self, form: Form) -> Html:
        """Set another budget, for a reason, from the operator's page."""
        reason = form.get("reason", "").strip()
        if not reason:
            raise ApprovalError("Give a reason for the new budget: it goes into the ledger. Nothing was changed.")
        anyone = _number(form, "anyone") if form.get("anyone", "").strip() else None
        budget = Budget(_number(form, "epsilon"), _number(form, "delta"), anyone=anyone)
        decisions.set_budget(self._folder, budget, note=reason)
        return self._home(form, notice=f"The budget is now {budget}.")


def _running(state: Mapping[str, list[dict[str, str]]]) -> list[str]:
    """Return the digests of running plans in the silo's status."""
    return [plan["plan"] for plan in state["plans"] if plan["state"] == "running"]


def _number(form: Form, name: str) -> float:
    """Return a number from a form of the operator's page; ApprovalError if it is none."""
    try:
        return float(form.get(name, ""))
    except ValueError:
        raise ApprovalError(f"Enter {name} as a number such as 1.5 or 1e-6. Nothing was changed.") from None


def _form(content: bytes) -> dict[str, str]:
    """Return the fields of a form of the operator's page, without those given twice."""
    try:
        fields = parse_qs(content.decode("ascii"), keep_blank_values=True, max_num_fields=10, errors="strict")
    except ValueError:
        return {}
    return {name: values[0] for name, values in fields.items() if len(values) == 1}


def token_path(folder: SiloFolder) -> Path:
    """Return the path of the token for the operator's page."""
    return folder.path / "operator.token"


def serve(folder: SiloFolder, *, port: int = 0, ready: Callable[[str], None] = lambda address: None) -> None:
    """Serve the operator's page until SIGTERM or SIGINT; `ready` is called with its address. Port 0 is any free one."""
    path = token_path(folder)
    try:
        if not path.exists():
            write_token(path)
    except OSError:
        raise SiloError(f"{path} cannot be written by this user: run this as the folder's owner.") from None
    token = read_token(path, SiloError)
    decisions.plans_folder(folder)
    with folder.ledger():
        pass  # one that cannot be trusted is a reason not to begin
    with closing(serving.open_port("127.0.0.1", port, "page", SiloError)) as listening:
        actual = listening.getsockname()[1]
        serving.serve_application(
            OperatorPage(folder, token, actual), listening, lambda: ready(f"http://127.0.0.1:{actual}/")
        )
