"""What stands on the operator's page: forms and tables, made of the ledger and of plans, never of a record."""

from typing import Any

from ringfence.html.charts import Bar, bar_chart, figure
from ringfence.html.markup import Html, Value, bullets, outline, readable, section, table, tag, together
from ringfence.protocol.guarantee import against_words, claimed_against
from ringfence.silo.consent import LONGEST_NOTE
from ringfence.silo.pending import Pending
from ringfence.silo.review import Review
from ringfence.silo.summary import describe_entry

MOST_ENTRIES = 500


def entrance(silo: str, token_file: str, notice: str = "") -> Html:
    """Ask for the token; all that is shown without it is the silo's name."""
    return together(
        tag("h1", f"Silo “{silo}”"),
        tag("p", notice, class_="note", role="status") if notice else None,
        tag(
            "form",
            tag("label", "The operator's token", for_="token"),
            tag("input", id="token", name="token", type="password", autocomplete="off", autofocus=True, required=True),
            tag("button", "Enter", type="submit", class_="main"),
            method="post",
            action="/enter",
        ),
        tag(
            "p", "It is in the file ", tag("code", token_file), " of the silo's folder, which only its owner can read."
        ),
    )


def problem(sentence: str) -> Html:
    """Say one thing, and where to go on."""
    return together(
        tag("h1", "This did not work"),
        tag("p", sentence, class_="note warning", role="alert"),
        tag("p", tag("a", "To the entrance", href="/")),
    )


def home(key: str, state: dict[str, Any], waiting: Pending, *, notice: str = "", problem: str = "") -> Html:
    """Show the budget, what waits, what runs and what has ended."""
    return together(
        _head(key, state["silo"]),
        tag("p", notice, class_="note", role="status") if notice else None,
        tag("p", problem, class_="note warning", role="alert") if problem else None,
        _budget(state),
        _running(key, [plan for plan in state["plans"] if plan["state"] == "running"]),
        _waiting(key, waiting),
        _ended([plan for plan in state["plans"] if plan["state"] != "running"]),
    )


def plan(key: str, review: Review) -> Html:
    """Show what a plan would reveal, to whom and at what cost, and let the operator decide."""
    digest = review.plan.digest()
    _, _, words = review.text().partition("\n\n")  # its first lines are the heading here
    return together(
        _head(key, review.silo),
        section(
            f"A plan {review.plan.aim}",
            tag("p", "Run ", tag("code", review.plan.run), ", plan ", tag("code", digest)),
            outline(words),
            tag(
                "div",
                _approval(key, digest) if not review.objection else None,
                _button(key, "refuse", "Refuse", plan=digest),
                _button(key, "home", "Decide later"),
                class_="actions",
            ),
        ),
    )


def ledger(key: str, entries: list[dict[str, Any]]) -> Html:
    """List the ledger's entries, the latest first."""
    shown = entries[: -MOST_ENTRIES - 1 : -1]
    caption = f"The latest {len(shown)} of {len(entries)} entries" if len(shown) < len(entries) else "All entries"
    return together(
        _head(key, str(entries[0]["silo"])),
        section(
            "The ledger",
            tag("p", "Its hash chain holds: no entry was changed or removed."),
            table(
                f"{caption}, latest first",
                ["entry", "time", "kind", "about"],
                [(e["number"], _time(e["time"]), e["kind"], readable(describe_entry(e))) for e in shown],
            ),
            tag("div", _button(key, "home", "Back"), class_="actions"),
        ),
    )


def _head(key: str, silo: str) -> Html:
    buttons = [
        _button(key, name, label) for name, label in (("home", "Refresh"), ("ledger", "Ledger"), ("leave", "Leave"))
    ]
    return together(
        tag("p", "The operator's page", class_="kicker"),
        tag("h1", f"Silo “{silo}”"),
        tag("nav", *buttons, class_="actions", aria_label="This silo"),
    )


def _budget(state: dict[str, Any]) -> Html:
    first, *others = state["costs"]
    guarantee = first["guarantee"]
    chart = bar_chart(
        [Bar(name, (first[name],)) for name in ("budget", "used", "reserved", "left")],
        names=("epsilon",),
        title="The budget",
        description=f"Of epsilon {first['budget']:.4g}, {first['used']:.4g} is used, {first['reserved']:.4g} "
        f"reserved for running plans and {first['left']:.4g} left.",
        x_label=f"epsilon, at delta {state['delta']:.2g}",
    )
    serving = "An agent answers for this silo." if state["serving"] else "No agent runs: nothing is answered at all."
    refusals = sum(state["refusals"].values())
    return section(
        "The budget",
        figure(chart, f"{serving} Requests that were refused so far: {refusals}."),
        tag(
            "p",
            f"Epsilon is for each {state['unit']}, "
            f"{claimed_against([cost['against'] for cost in state['costs']], state['colluders'])}. What is used is "
            "bookkeeping; guaranteed of all releases together, however plans are chosen and whenever you stop, is "
            f"epsilon {guarantee['epsilon']:.4g} at delta {guarantee['delta']:.2g}.",
        ),
        *(
            tag(
                "p",
                f"{against_words(cost['against'], state['colluders']).capitalize()}: budget {cost['budget']:.4g}, "
                f"used {cost['used']:.4g}, left {cost['left']:.4g}.",
            )
            for cost in (state["costs"] if others else ())
        ),
    )


def _waiting(key: str, waiting: Pending) -> Html:
    rows: list[tuple[Value, ...]] = [
        (
            found.run,
            found.aim,
            found.rounds,
            tag("code", digest[:12]),
            _button(key, "plan", "Review", plan=digest),
        )
        for digest, found in waiting.plans.items()
    ]
    return section(
        "Plans that wait for your decision",
        table("Nothing of these is answered until you approve", ["run", "what for", "rounds", "plan", ""], rows)
        if rows
        else tag("p", "None."),
        together(
            tag("p", "Files in the folder “plans” that are no plans:"),
            bullets(f"{name}: {why}" for name, why in waiting.unreadable.items()),
        )
        if waiting.unreadable
        else None,
        tag(
            "form",
            tag("input", type="hidden", name="key", value=key),
            tag("label", "Paste a plan (or put its file into the folder “plans”)", for_="content"),
            tag("textarea", id="content", name="content", required=True, spellcheck="false"),
            tag("button", "Add to the waiting plans", type="submit"),
            method="post",
            action="/add",
        ),
    )


def _running(key: str, plans: list[dict[str, Any]]) -> Html:
    rows: list[tuple[Value, ...]] = [
        (
            tag("code", found["plan"][:12]),
            f"{found['charged']} of {found['rounds']}",
            found["costs"][0]["epsilon"],
            tag(
                "div",
                _button(key, "end", "Finish", plan=found["plan"]),
                _button(key, "revoke", "Revoke", plan=found["plan"]),
                class_="actions",
            ),
        )
        for found in plans
    ]
    if not rows:
        return section("Running plans", tag("p", "None: nothing is answered."))
    return section(
        "Running plans",
        table("Rounds of these are answered", ["plan", "rounds answered", "epsilon used", ""], rows),
        tag(
            "p",
            "Finish: no new round is answered, and what is left of its budget is given back. Revoke: nothing of it is "
            "answered, not even again. What was sent stays sent.",
        ),
        tag("div", _button(key, "stop", "Stop everything now", class_="danger"), class_="actions"),
    )


def _ended(plans: list[dict[str, Any]]) -> Html | None:
    if not plans:
        return None
    return section(
        "Plans that have ended",
        table(
            "They are answered no more",
            ["plan", "how", "rounds answered", "epsilon", "at delta", "last release"],
            [
                (
                    tag("code", found["plan"][:12]),
                    found["state"],
                    f"{found['charged']} of {found['rounds']}",
                    found["costs"][0]["epsilon"],
                    found["costs"][0]["delta"],
                    _time(found["last_release"]),
                )
                for found in plans
            ],
        ),
    )


def _approval(key: str, digest: str) -> Html:
    return tag(
        "form",
        tag("input", type="hidden", name="key", value=key),
        tag("input", type="hidden", name="plan", value=digest),
        tag("label", "A note for the ledger", for_="note"),
        tag("input", id="note", name="note", maxlength=LONGEST_NOTE, autocomplete="off"),
        tag("button", "Approve", type="submit", class_="main"),
        method="post",
        action="/approve",
    )


def _button(key: str, act: str, label: str, *, class_: str | None = None, plan: str | None = None) -> Html:
    return tag(
        "form",
        tag("input", type="hidden", name="key", value=key),
        tag("input", type="hidden", name="plan", value=plan) if plan else None,
        tag("button", label, type="submit", class_=class_),
        method="post",
        action=f"/{act}",
    )


def _time(time: str) -> str:
    return time[:16].replace("T", " ")
