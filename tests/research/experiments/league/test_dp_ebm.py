"""DP-EBM learns as the league has it learn: `make comparison` installs it, and runs this."""

import math
from pathlib import Path

import dp_accounting
import pytest
from dp_accounting.pld import PLDAccountant

from ringfence.research.experiments.league import dp_ebm
from ringfence.research.experiments.league.tables import load_table
from tests.research.experiments.league.made_up import write_league


def test_dp_ebm_learns_with_plenty_of_budget(tmp_path: Path) -> None:
    for name in ("cost", "ill"):
        table = load_table(write_league(tmp_path / name), name)
        first, again, other = dp_ebm.runs(table, 50.0, [0, 0, 1])
        assert first.error(table) < 0.7 * table.guessing
        assert (first.scores == again.scores).all()
        assert not (first.scores == other.scores).all()


@pytest.mark.parametrize("name", ["cost", "ill"])
def test_its_noise_is_what_a_second_accountant_finds_for_a_replaced_record(name: str, tmp_path: Path) -> None:
    epsilon, delta = 1.0, 1e-5
    table = load_table(write_league(tmp_path), name)
    model = dp_ebm.fitted(table, dp_ebm.package_epsilon(epsilon, delta), delta, 0)
    columns = len(table.schema.features)
    residual = 2 * table.schema.target_bound if table.is_number else 1.0
    step = model.learning_rate * residual
    counts = dp_accounting.GaussianDpEvent(model.noise_scale_binning_ / dp_ebm.COUNTS)
    sums = dp_accounting.GaussianDpEvent(model.noise_scale_boosting_ / (dp_ebm.SUMS * step))
    theirs = PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    theirs.compose(counts, columns).compose(sums, columns * model.max_rounds)
    assert math.isclose(theirs.get_epsilon(delta), epsilon, rel_tol=0.01)
