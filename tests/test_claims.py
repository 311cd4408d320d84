"""Every page that states an epsilon says by then for whom it holds, against whom, and over what."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

CLAIM = re.compile(r"(?:epsilon|\bε)(?:\s*[=≥]|\s+(?:of|is|at least))?\s+[0-9]|\| ε \|", re.IGNORECASE)
TELLS = {
    "unit": r"\b(?:each|any|one|a|per)\s+(?:single\s+|of\s+\d+\s+)?(?:record|person|row)s?\b",
    "observer": r"\b(?:against|to):?\W+(?:anyone|whoever|\w+\s+server)|\bsees\s+(?:everything|what|the\s+whole)",
    "adaptivity": r"\b(?:one|this|that|a)\s+(?:\w+\s+)?(?:plan|run|fit)\b|\bhowever\b|\bin\s+the\s+light\s+of\b",
}


def until_the_first_claim(page: str) -> str | None:
    """Return the page up to the end of the section that has its first epsilon; None if it has none."""
    text = re.sub(r"(?ms)^```(\w*)$(.*?)^```$", lambda block: block[2] if block[1] == "text" else "", page)
    text = re.sub(r"`[^`\n]*`", "", text)  # commands and programs claim nothing
    claim = CLAIM.search(text)
    return None if claim is None else text[: claim.end()] + re.split(r"(?m)^#", text[claim.end() :])[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_that_states_an_epsilon_names_unit_observer_and_adaptivity(page: Path) -> None:
    shown = until_the_first_claim(page.read_text())
    missing = [
        what for what, words in TELLS.items() if shown is not None and not re.search(words, shown, re.IGNORECASE)
    ]
    assert not missing, f"{page.name} states an epsilon, and leaves out its {' and '.join(missing)}"


def test_a_page_that_leaves_one_of_them_out_would_be_noticed() -> None:
    whole = "# A\n\nFor each record, against anyone, over one run: epsilon = 1.\n\n# B\n\nSomething else."
    shown = until_the_first_claim(whole)
    assert shown is not None
    assert all(re.search(words, shown) for words in TELLS.values())
    assert until_the_first_claim("Nothing is claimed by `--epsilon 1`.") is None
    for left_out, what in (("each record", "unit"), ("anyone", "observer"), ("one run", "adaptivity")):
        late = whole.replace(left_out, "it") + f" {left_out}"  # said on the page, but in another place
        assert not re.search(TELLS[what], until_the_first_claim(late) or "")
