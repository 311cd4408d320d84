"""Which candidate was chosen, as a part of a page: all of them, with intervals that allow for the choice."""

from ringfence.html.markup import Html, Value, section, table, tag
from ringfence.metrics.choice import Choice
from ringfence.report.evaluated import told


def choice_section(choice: Choice | None) -> Html | None:
    """Return the part of a page; nothing where there was one candidate only."""
    if choice is None:
        return None
    rows: list[tuple[Value, ...]] = [
        (str(one), *(("the best", "") if number == choice.best else told(one.above)))
        for number, one in enumerate(choice.candidates)
    ]
    return section(
        "Which candidate was chosen",
        tag("p", " ".join(choice.sentences())),
        tag(
            "p",
            f"Every candidate was trained, and all were compared by their losses on each held-out {choice.unit}, with "
            f"noise. What this run cost counts all their messages. Where a {choice.unit}'s losses differ by much, they "
            "are cut. Rounds, noise and weights on this page are the chosen one's.",
        ),
        table("The candidates", ["candidate", "loss above the best's", "interval"], rows),
    )
