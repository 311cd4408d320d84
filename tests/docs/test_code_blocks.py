"""Every code block of the documentation is run, or says why not.

Outputs are compared by their words. The only words that hang on noise are predictions, of patients who were chosen so
far from the border that a run's noise would have to be more than five of its standard deviations: over 40 runs or more
of each block their scores were 5.1 deviations or more away from zero, a false-alarm rate below 10⁻⁶.
"""

from pathlib import Path

import click
import pytest
import typer

from ringfence.cli.main import app
from tests.docs.blocks import RUN, SHOWN, Block, Reader, blocks_of, commands_of, missing_pieces, pages

PAGES = [page for page in pages() if any(block.language in RUN and not block.not_run for block in blocks_of(page))]
ALL_BLOCKS = [block for page in pages() for block in blocks_of(page)]


@pytest.mark.parametrize("page", PAGES)
def test_a_readers_way_through_the_page_ends_as_it_says(page: str, tmp_path: Path) -> None:
    with Reader(tmp_path) as reader:
        for block in blocks_of(page):
            if block.language not in RUN or block.not_run:
                continue
            status, printed = reader.run(block)
            refused = (block.output or "").startswith("ringfence: ")
            assert status == int(refused), f"{block.place} ended with status {status}:\n{printed}"
            missing = missing_pieces(block.output or "", printed)
            assert not missing, f"{block.place} shows what was not printed: {missing}\nPrinted:\n{printed}"


def test_every_fence_names_a_language_and_a_block_that_is_not_run_gives_a_reason() -> None:
    assert not [block.place for block in ALL_BLOCKS if block.language not in (*RUN, *SHOWN)]
    assert not [block.place for block in ALL_BLOCKS if block.not_run is not None and len(block.not_run) < 10]


@pytest.mark.parametrize("block", [block for block in ALL_BLOCKS if block.language == "sh"], ids=lambda b: b.place)
def test_every_command_shown_exists_and_has_the_options_shown(block: Block) -> None:
    for words in commands_of(block.content):
        assert unknown_words(words) == [], block.place


def unknown_words(words: list[str]) -> list[str]:
    """Return the subcommand or the options that the command line does not have; after `--` stand those of a run."""
    if "--" in words:
        place = words.index("--")
        return unknown_words(words[:place]) + unknown_words(["server", "run", *words[place + 1 :]])
    command: click.Command = typer.main.get_command(app)
    while hasattr(command, "commands"):
        if not words or words[0].startswith("-"):
            break
        if words[0] not in command.commands:
            return words[:1]
        command, words = command.commands[words[0]], words[1:]
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}
    return [word for word in words if word.startswith("--") and word.partition("=")[0] not in known]
