"""Opacus learns as the league has it learn: `make comparison` installs it, PyTorch included, and runs this."""

from pathlib import Path

from ringfence.research.experiments.league import opacus
from ringfence.research.experiments.league.tables import load_table
from tests.research.experiments.league.made_up import write_league


def test_opacus_learns_with_plenty_of_budget(tmp_path: Path) -> None:
    for name in ("cost", "ill"):
        table = load_table(write_league(tmp_path / name), name)
        (run,) = opacus.tuned(table, 50.0, [0])
        assert run.rounds == opacus.ROUNDS
        assert table.error(run.weights) < 0.7 * table.guessing
