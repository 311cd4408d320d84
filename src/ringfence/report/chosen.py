"""Which candidate was chosen, as a part of a page: all of them, with intervals that allow for the choice."""

from ringfence.html.markup import Html, Value, section, table, tag
from ringfence.metrics.choice import Choice
from ringfence.report.evaluated import told


def choice_section(choice: Choice | None) -> Html | None:
    """Return the part of a page; None if there was only one candidate."""
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
            f"Ringfence trained every candidate and compared their noisy losses on each held-out {choice.unit}, "
            f"clipping large differences. The cost of this run covers the messages of all candidates; rounds, noise "
            "and weights on this page are those of the chosen one.",
        ),
        table("The candidates", ["candidate", "loss above the best", "interval"], rows),
    )
