"""Draws come from the operating system and have the distributions that the accountant assumes.

Each statistical test fails by chance with probability about 1e-6 or less, as it says.
"""

import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

import ringfence.silo
from ringfence.protocol.schedule import task
from ringfence.silo import randomness
from ringfence.silo.mechanism import grid_exponent
from ringfence.silo.randomness import draw, gaussian_noise, heads
from tests.support import MakePlan

FALSE_ALARM = 1e-6
ROOT = Path(__file__).parents[2]


def check_frequencies(seen: NDArray[np.int64], probabilities: dict[int, float]) -> None:
    """Compare how often each value was seen with its exact probability; what is not listed counts as one more value.

    Each count is exactly binomial, so the false alarms of all of them together have probability FALSE_ALARM at most.
    """
    counts = {value: int(np.sum(seen == value)) for value in probabilities}
    counts[-(10**9)] = len(seen) - sum(counts.values())
    expected = {**probabilities, -(10**9): max(0.0, 1.0 - math.fsum(probabilities.values()))}
    alarm = FALSE_ALARM / (2 * len(expected))
    for value, probability in expected.items():
        law = stats.binom(len(seen), probability)
        assert law.cdf(counts[value]) >= alarm, value
        assert law.sf(counts[value] - 1) >= alarm, value


def test_noise_has_the_claimed_standard_deviation_and_a_gaussian_shape() -> None:
    sigma, count = 0.37, 40_000
    noise = gaussian_noise(count, sigma)
    chi2 = stats.chi2(count)
    assert chi2.ppf(FALSE_ALARM / 2) < np.sum((noise / sigma) ** 2) < chi2.isf(FALSE_ALARM / 2)
    assert stats.kstest(noise / sigma, "norm").pvalue > FALSE_ALARM


def test_noise_on_a_coarse_grid_has_the_exact_probabilities_of_the_discrete_gaussian(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """P(x) ∝ exp(−x²/2σ²) on the whole numbers: with a grid as coarse as σ, a rounded Gaussian would show."""
    monkeypatch.setattr(randomness, "grid_exponent", lambda sigma: 0)
    for sigma in (0.6, 1.7):
        noise = gaussian_noise(40_000, sigma)
        whole = noise.astype(np.int64)
        assert np.array_equal(noise, whole)
        mass = {x: math.exp(-x * x / (2 * sigma * sigma)) for x in range(-60, 61)}
        total = math.fsum(mass.values())
        check_frequencies(whole, {x: mass[x] / total for x in range(-8, 9)})


def test_the_last_bits_of_noise_are_as_random_as_the_first() -> None:
    """A grid of σ·2⁻³⁰ is so fine that what is left modulo 64 is uniform but for less than 2⁻¹⁰⁰⁰.

    Noise computed in floating point has gaps there, by which true values can be told apart.
    """
    sigma = 0.37
    steps = (gaussian_noise(40_000, sigma) / 2.0 ** grid_exponent(sigma)).astype(np.int64)
    check_frequencies(steps % 64, dict.fromkeys(range(64), 1 / 64))


@pytest.mark.parametrize("coins", [1, 5, 8, 13, 24])
def test_heads_are_exactly_binomial(coins: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the coins end within a byte, and where they take more than one piece of randomness."""
    monkeypatch.setattr(randomness, "_CHUNK", 2)
    law = stats.binom(coins, 0.5)
    check_frequencies(heads(20_000, coins), {count: float(law.pmf(count)) for count in range(coins + 1)})


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


def test_any_two_records_meet_in_a_fixed_batch_as_often_as_any_other_two(plan_of: MakePlan) -> None:
    """With probability K(K−1)/(n(n−1)): a batch that was a run of neighbours would pass the test above, not this."""
    plan = plan_of(sampling="fixed")
    terms = plan.silos[0]
    runs = 2000
    chosen = np.array([draw(plan, terms, task(plan, terms, 0, 0)).participation for _ in range(runs)])
    met = (chosen.T @ chosen)[np.triu_indices(terms.records, 1)]
    law = stats.binom(runs, terms.batch * (terms.batch - 1) / (terms.records * (terms.records - 1)))
    alarm = FALSE_ALARM / (2 * len(met))
    assert law.cdf(met.min()) >= alarm
    assert law.sf(met.max() - 1) >= alarm


def test_poisson_batches_have_exactly_binomial_sizes(plan_of: MakePlan) -> None:
    plan = plan_of(sampling="poisson")
    terms = plan.silos[0]
    sizes = np.array([draw(plan, terms, task(plan, terms, 0, 0)).participation.sum() for _ in range(2000)])
    law = stats.binom(terms.records, terms.batch / terms.records)
    check_frequencies(sizes.astype(np.int64), {size: float(law.pmf(size)) for size in range(terms.records + 1)})


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


def answers_of(mode: str, folder: Path) -> list[str]:
    command = [sys.executable, "-m", "tests.silo.noisy_silos", mode, str(folder)]
    return subprocess.check_output(command, text=True, cwd=ROOT).splitlines()


def test_silos_rounds_and_processes_never_share_noise_through_the_gate(tmp_path: Path) -> None:
    """Eight silos with the same records and plan, six in forked processes, answer two rounds at the same weights.

    Their exact means agree, so equal numbers would be equal noise: by chance one pair of the 480 that are compared
    agrees with probability less than 480 · 2⁻³⁰ / (2√π) < 2e-7.
    """
    vectors = [np.frombuffer(bytes.fromhex(line)) for line in answers_of("fork", tmp_path)]
    assert len(vectors) == 16
    for place in range(4):
        assert len({vector[place] for vector in vectors}) == 16


def test_a_gate_that_was_forked_answers_nothing(tmp_path: Path) -> None:
    """Two processes with one connection to the ledger could not tell what the other has charged."""
    assert answers_of("inherit", tmp_path) == ["unavailable"]


def test_rounds_of_every_kind_of_plan_are_answered_where_every_seeded_generator_raises(tmp_path: Path) -> None:
    lines = answers_of("unseeded", tmp_path)
    assert lines == [f"{kind} answered" for kind in ("full", "fixed", "poisson", "one-pass", "surveyed", "shuffled")]


def test_no_seeded_generator_is_named_in_the_silo_s_room() -> None:
    seeded = re.compile(r"np\.random|numpy\.random|import random|from random|default_rng|RandomState|\bseed\b *=")
    sources = {path.name: path.read_text() for path in Path(ringfence.silo.__path__[0]).glob("*.py")}
    assert "gate.py" in sources
    assert {name for name, text in sources.items() if seeded.search(text)} == set()
