"""The content of the operator's page: forms and tables made from the ledger and from plans, never from a record."""

from typing import Any

from ringfence.html.charts import Bar, bar_chart, figure
from ringfence.html.markup import Html, Value, bullets, outline, paragraph, readable, section, table, tag, together
from ringfence.protocol import against_words, claimed_against
from ringfence.protocol.plan.guarantee import LARGE_EPSILON, against
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.ledger import LONGEST_NOTE
from ringfence.silo.ledger.summary import budget_words, describe_entry
from ringfence.silo.operator.decisions import PendingPlans
from ringfence.silo.operator.review import Review

MOST_ENTRIES = 500


def entrance(silo: str, token_file: str, notice: str = "") -> Html:
    """Return the operator's page that asks for the token; without it, only the silo's name is shown."""
    about = "notice where" if notice else "where"
    return together(
        tag("h1", f"Silo “{silo}”"),
        paragraph(notice, class_="note", role="status", id="notice") if notice else None,
        tag(
            "form",
            _field("token", "Operator token", type="password", autofocus=True, required=True, aria_describedby=about),
            tag("button", "Sign in", type="submit", class_="main"),
            method="post",
            action="/enter",
        ),
        paragraph(
            "You find it in the file ",
            tag("code", token_file),
            " in the silo's folder. Only the folder's owner can read it.",
            id="where",
        ),
    )


def problem(sentence: str) -> Html:
    """Return the operator's page that says what went wrong."""
    return together(
        tag("h1", "That did not work"),
        _said(sentence, is_problem=True),
        paragraph(tag("a", "Sign in again", href="/")),
    )


def home(
    key: str, state: dict[str, Any], budget: Budget, waiting: PendingPlans, *, notice: str = "", problem: str = ""
) -> Html:
    """Return the operator's main page: the budget, and the plans that run, await a decision and have ended."""
    return together(
        _head(key, state["silo"]),
        _said(notice) if notice else None,
        _said(problem, is_problem=True) if problem else None,
        _budget(state, _budget_form(key, budget)),
        _running(key, [plan for plan in state["plans"] if plan["state"] == "running"]),
        _waiting(key, waiting),
        _ended([plan for plan in state["plans"] if plan["state"] != "running"]),
    )


def plan(key: str, review: Review) -> Html:
    """Show on the operator's page what a plan would reveal, to whom and at what cost, and ask for a decision."""
    digest = review.plan.digest()
    _, _, words = review.text().partition("\n\n")  # its first lines are the heading here
    return together(
        _head(key, review.silo),
        section(
            f"A plan {review.plan.aim}",
            paragraph("Run ", tag("code", review.plan.run), ", plan ", tag("code", digest)),
            outline(words),
            _actions(
                _approval(key, digest) if not review.objection else None,
                _button(key, "refuse", "Refuse", plan=digest),
                _button(key, "home", "Decide later"),
            ),
        ),
    )


def ledger(key: str, entries: list[dict[str, Any]]) -> Html:
    """List the ledger's entries on the operator's page, the latest first."""
    shown = entries[: -MOST_ENTRIES - 1 : -1]
    caption = f"Latest {len(shown)} of {len(entries)} entries" if len(shown) < len(entries) else "All entries"
    return together(
        _head(key, str(entries[0]["silo"])),
        section(
            "The ledger",
            paragraph("The hash chain is intact: no entry was changed or removed."),
            table(
                f"{caption}, newest first",
                ["entry", "time (UTC)", "kind", "details"],
                [(e["number"], _time(e["time"]), e["kind"], readable(describe_entry(e))) for e in shown],
            ),
            _actions(_button(key, "home", "Back")),
        ),
    )


def _head(key: str, silo: str) -> Html:
    """Return the head of the operator's page: the silo's name and buttons."""
    buttons = [
        _button(key, name, label) for name, label in (("home", "Refresh"), ("ledger", "Ledger"), ("leave", "Sign out"))
    ]
    return together(
        paragraph("Operator page", class_="kicker"),
        tag("h1", f"Silo “{silo}”"),
        tag("nav", *buttons, class_="actions", aria_label="Silo"),
    )


def _said(sentence: str, *, is_problem: bool = False) -> Html:
    """Return a decision's result on the operator's page. It takes the focus, so that screen readers read it out."""
    kind, role = ("note warning", "alert") if is_problem else ("note", "status")
    return paragraph(readable(sentence), class_=kind, role=role, tabindex=-1, autofocus=True)


def _budget(state: dict[str, Any], form: Html) -> Html:
    """Return the section on the privacy budget of the operator's page, with a chart and the form."""
    first, *others = state["costs"]
    chart = bar_chart(
        [Bar(name, (first[name],)) for name in ("budget", "used", "reserved", "kept", "left")],
        names=("epsilon",),
        title="Privacy budget",
        description=budget_words(first, state["delta"]),
        x_label=f"epsilon, at delta {state['delta']:.2g}",
    )
    serving = "The silo's agent is running." if state["serving"] else "No agent is running, so no request is answered."
    refusals = sum(state["refusals"].values())
    return section(
        "Privacy budget",
        figure(chart, f"{serving} Requests refused so far: {refusals}."),
        paragraph(
            f"Guaranteed for each {state['unit']}, "
            f"{claimed_against([cost['against'] for cost in state['costs']], state['colluders'])}, over all releases "
            f"together, however plans are chosen and whenever you stop: {_guaranteed(first, state['delta'])}",
        ),
        *(
            paragraph(f"{against_words(cost['against']).capitalize()}: {_guaranteed(cost, state['delta'])}")
            for cost in others
        ),
        form,
    )


def _guaranteed(cost: dict[str, Any], delta: float) -> str:
    """Return, for the operator's page, a guarantee of all releases, and how it is related to the budget."""
    guarantee = cost["guarantee"]
    held = f"epsilon {guarantee['epsilon']:.4g} at delta {guarantee['delta']:.2g}."
    return readable(f"{held} {budget_words(cost, delta)}")


def _budget_form(key: str, budget: Budget) -> Html:
    """Return the operator's form for another budget and a reason; the present one stands in the fields."""
    anyone = against(budget.limits, "anyone").epsilon
    fields = (
        ("epsilon", "Epsilon", f"{budget.epsilon:g}", True),
        ("delta", "Delta", f"{budget.delta:g}", True),
        ("anyone", "Epsilon without the shuffler", f"{anyone:g}" if len(budget.limits) > 1 else "", False),
    )
    described = {"inputmode": "decimal", "aria_describedby": "about-budget"}
    inputs = (
        tag("div", _field(name, label, value=value, required=required, **described))
        for name, label, value, required in fields
    )
    return tag(
        "details",
        tag("summary", "Change the budget"),
        _form(
            key,
            "budget",
            tag("div", *inputs, class_="fields"),
            _field("reason", "Reason, for the ledger", maxlength=LONGEST_NOTE, required=True),
            paragraph(
                "The budget caps everything ever released from this data. If you lower it, every running plan pauses "
                "until you approve it again. “Epsilon without the shuffler” applies to plans that trust one; leave it "
                f"empty otherwise. An epsilon above {LARGE_EPSILON:g}, or a delta above 1/n, protects almost nobody: "
                "set it with ",
                tag("code", "ringfence silo budget --unusual-budget"),
                ".",
                class_="hint",
                id="about-budget",
            ),
            tag("button", "Set the budget", type="submit", class_="main"),
        ),
    )


def _waiting(key: str, waiting: PendingPlans) -> Html:
    """Return the section of the operator's page on plans that await a decision."""
    rows = [
        (found.run, found.aim, found.rounds, _short(digest), _button(key, "plan", "Review", plan=digest))
        for digest, found in waiting.plans.items()
    ]
    invalid = together(
        paragraph("These files in the folder “plans” are not valid plans:"),
        bullets(*(f"{name}: {why}" for name, why in waiting.unreadable.items())),
    )
    listed = table("No request is answered until you approve", ["run", "purpose", "rounds", "plan", "decision"], rows)
    return section(
        "Plans awaiting your decision",
        listed if rows else paragraph("None."),
        invalid if waiting.unreadable else None,
        _form(
            key,
            "add",
            tag("label", "Paste a plan, or put its file in the folder “plans”", for_="content"),
            tag("textarea", id="content", name="content", required=True, spellcheck="false"),
            tag("button", "Add the plan", type="submit"),
        ),
    )


def _running(key: str, plans: list[dict[str, Any]]) -> Html:
    """Return the section of the operator's page on running plans, with buttons to end them."""
    if not plans:
        return section("Running plans", paragraph("None, so no request is answered."))
    acts = (("end", "Finish"), ("revoke", "Revoke"))
    rows = [
        (
            _short(found["plan"]),
            f"{found['charged']} of {found['rounds']}",
            found["costs"][0]["epsilon"],
            _actions(*(_button(key, act, label, plan=found["plan"]) for act, label in acts)),
        )
        for found in plans
    ]
    return section(
        "Running plans",
        table("The agent answers these", ["plan", "rounds answered", "epsilon used", "decision"], rows),
        paragraph(
            "Finish stops new rounds and returns the unused reserve to the budget. Revoke also stops repeats of "
            "answers already given. Neither can recall what was sent.",
        ),
        _actions(_button(key, "stop", "Stop everything now", class_="danger")),
    )


def _ended(plans: list[dict[str, Any]]) -> Html | None:
    """Return the section of the operator's page on ended plans; None if there are none."""
    if not plans:
        return None
    header = ["plan", "state", "rounds answered", "epsilon", "delta", "last release (UTC)"]
    rows = [
        (
            _short(found["plan"]),
            found["state"],
            f"{found['charged']} of {found['rounds']}",
            found["costs"][0]["epsilon"],
            found["costs"][0]["delta"],
            _time(found["last_release"]),
        )
        for found in plans
    ]
    return section("Ended plans", table("No request is answered any more", header, rows))


def _approval(key: str, digest: str) -> Html:
    """Return the form that approves a plan on the operator's page."""
    return _form(
        key,
        "approve",
        _hidden("plan", digest),
        _field("note", "Note for the ledger (optional)", maxlength=LONGEST_NOTE),
        tag("button", "Approve", type="submit", class_="main"),
        class_="decision",
    )


def _button(key: str, act: str, label: str, *, class_: str | None = None, plan: str | None = None) -> Html:
    """Return a button of the operator's page: a form with the session's key, an act and perhaps a plan."""
    return _form(
        key,
        act,
        _hidden("plan", plan) if plan else None,
        # Several buttons say the same: to a screen reader, each also names its plan.
        tag("button", label, type="submit", class_=class_, aria_label=f"{label} plan {plan[:12]}" if plan else None),
    )


def _form(key: str, act: str, *content: Html | None, class_: str | None = None) -> Html:
    """Return a form of the operator's page that sends the session's key and its fields to the act."""
    return tag("form", _hidden("key", key), *content, method="post", action=f"/{act}", class_=class_)


def _hidden(name: str, value: str) -> Html:
    """Return a field that a form of the operator's page sends without showing it."""
    return tag("input", type="hidden", name=name, value=value)


def _field(name: str, label: str, **attributes: Value | bool) -> Html:
    """Return a labelled text field of the operator's page."""
    field = tag("input", id=name, name=name, **attributes, autocomplete="off")
    return together(tag("label", label, for_=name), field)


def _actions(*buttons: Html | None) -> Html:
    """Return buttons of the operator's page side by side."""
    return tag("div", *buttons, class_="actions")


def _short(digest: str) -> Html:
    """Return the first characters of a plan's digest, for tables on the operator's page."""
    return tag("code", digest[:12])


def _time(time: str) -> str:
    """Return an entry's time to the minute, for tables on the operator's page."""
    return time[:16].replace("T", " ")
