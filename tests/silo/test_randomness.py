"""Draws come from the operating system and have the distributions that the accountant assumes.

Each statistical test fails by chance with probability about 1e-6 or less, as it says.
"""

import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
from scipy import stats

import ringfence.silo
from ringfence.protocol.schedule import task
from ringfence.silo.mechanism import grid_exponent
from ringfence.silo.randomness import draw, gaussian_noise
from tests.support import MakePlan

FALSE_ALARM = 1e-6


def test_noise_has_the_claimed_standard_deviation_and_a_gaussian_shape() -> None:
    sigma, count = 0.37, 40_000
    noise = gaussian_noise(count, sigma)
    chi2 = stats.chi2(count)
    assert chi2.ppf(FALSE_ALARM / 2) < np.sum((noise / sigma) ** 2) < chi2.isf(FALSE_ALARM / 2)
    assert stats.kstest(noise / sigma, "norm").pvalue > FALSE_ALARM


def test_noise_lies_on_the_mechanism_s_grid() -> None:
    noise = gaussian_noise(1000, 0.37) / 2.0 ** grid_exponent(0.37)
    assert np.array_equal(noise, np.round(noise))


def test_noise_coordinates_are_uncorrelated() -> None:
    noise = gaussian_noise(40_000, 1.0)
    for lag in (1, 2, 50):
        z = math.sqrt(len(noise) - lag) * np.mean(noise[lag:] * noise[:-lag])
        assert abs(z) < stats.norm.isf(FALSE_ALARM / 2)


def test_fixed_batches_have_exactly_k_distinct_records_each_equally_likely(plan_of: MakePlan) -> None:
    plan = plan_of(sampling="fixed")
    terms = plan.silos[0]
    runs = 2000
    chosen = np.array([draw(plan, terms, task(plan, terms, 0, 0)).participation for _ in range(runs)])
    assert set(np.unique(chosen)) == {0.0, 1.0}
    assert np.all(chosen.sum(axis=1) == terms.batch)
    q = terms.batch / terms.records
    z = (chosen.mean(axis=0) - q) / math.sqrt(q * (1 - q) / runs)
    assert np.abs(z).max() < stats.norm.isf(FALSE_ALARM / (2 * terms.records))


def test_poisson_sampling_takes_each_record_independently_at_the_plan_s_rate(plan_of: MakePlan) -> None:
    plan = plan_of(sampling="poisson")
    terms = plan.silos[0]
    sizes = [int(draw(plan, terms, task(plan, terms, 0, 0)).participation.sum()) for _ in range(2000)]
    q = terms.batch / terms.records
    total = 2000 * terms.records
    assert abs(sum(sizes) - q * total) < stats.norm.isf(FALSE_ALARM / 2) * math.sqrt(q * (1 - q) * total)
    # A fixed size would have variance 0; independent records give n·q·(1 − q).
    chi2 = stats.chi2(1999)
    ratio = float(np.var(sizes)) / (terms.records * q * (1 - q))
    assert 0.95 * chi2.ppf(FALSE_ALARM / 2) / 1999 < ratio < 1.05 * chi2.isf(FALSE_ALARM / 2) / 1999


def test_full_sampling_takes_every_record(plan_of: MakePlan) -> None:
    plan = plan_of()
    terms = plan.silos[0]
    assert draw(plan, terms, task(plan, terms, 0, 0)).participation.tolist() == [1.0] * 40


FORKING = """
import multiprocessing
from ringfence.silo.randomness import gaussian_noise

def noise(_):
    return gaussian_noise(4, 1.0).tobytes().hex()

with multiprocessing.get_context("fork").Pool(4) as pool:
    print("\\n".join(pool.map(noise, range(40), chunksize=1)))
"""


def test_forked_processes_and_restarted_ones_never_share_noise() -> None:
    # From a process of its own: other tests may have started threads in this one, and forking those is another matter.
    forked = subprocess.check_output([sys.executable, "-c", FORKING], text=True).split()
    code = "from ringfence.silo.randomness import gaussian_noise as g; print(g(4, 1.0).tolist())"
    restarted = [subprocess.check_output([sys.executable, "-c", code]) for _ in range(2)]
    assert len(set(forked)) == 40
    assert len(set(restarted)) == 2


def test_no_seeded_generator_is_named_in_the_silo_s_room() -> None:
    seeded = re.compile(r"np\.random|numpy\.random|import random|from random|default_rng|RandomState|\bseed\b *=")
    sources = {path.name: path.read_text() for path in Path(ringfence.silo.__path__[0]).glob("*.py")}
    assert "gate.py" in sources
    assert {name for name, text in sources.items() if seeded.search(text)} == set()
