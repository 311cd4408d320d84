"""dp-accounting as a second opinion, with its noise multipliers translated (they differ between its accountants)."""

import warnings
from collections.abc import Iterator

import pytest

from ringfence.accounting import accountant
from ringfence.accounting.events import Event, FixedSizeRelease, GaussianRelease, PoissonRelease

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import dp_accounting
    from dp_accounting import pld, rdp

DELTA = 1e-6
REPLACE_ONE = dp_accounting.NeighboringRelation.REPLACE_ONE
ADD_OR_REMOVE_ONE = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def gaussian(multiplier: float) -> object:
    return dp_accounting.GaussianDpEvent(multiplier)


def their_epsilon(ledger: object, *events: tuple[object, int]) -> float:
    for event, count in events:
        ledger.compose(event, count)  # type: ignore[attr-defined]
    return float(ledger.get_epsilon(DELTA))  # type: ignore[attr-defined]


def theirs_of(event: Event) -> object:
    """Return our event as theirs: under REPLACE_ONE, a PLD accountant takes σK/L = 2/shift and doubles it itself."""
    assert isinstance(event, GaussianRelease | PoissonRelease)
    release = gaussian(2 / event.shift)
    return release if isinstance(event, GaussianRelease) else dp_accounting.PoissonSampledDpEvent(event.rate, release)


@pytest.mark.parametrize(
    "events",
    [
        *([(GaussianRelease(shift), rounds)] for shift, rounds in ((0.1, 1), (0.05, 100), (1.0, 3))),
        *([(PoissonRelease(rate, shift), rounds)] for rate, shift, rounds in ((0.1, 1.0, 35), (0.01, 3.0, 200))),
        *([(PoissonRelease(rate, shift), rounds)] for rate, shift, rounds in ((0.5, 0.5, 10), (0.3, 3.0, 3))),
        [(PoissonRelease(0.1, 1.0), 20), (GaussianRelease(0.3), 4)],
    ],
    ids=str,
)
def test_gaussian_and_poisson_releases_and_their_mixture_agree(events: list[tuple[Event, int]]) -> None:
    theirs = their_epsilon(pld.PLDAccountant(REPLACE_ONE), *((theirs_of(event), count) for event, count in events))
    assert accountant.epsilon(events, DELTA) == pytest.approx(theirs, rel=1e-3)


@pytest.mark.parametrize(
    ("records", "batch", "shift", "rounds"), [(1238, 181, 0.65, 35), (1000, 10, 2.0, 100), (100, 50, 0.2, 20)]
)
def test_fixed_size_releases_lie_between_two_proved_bounds(records: int, batch: int, shift: float, rounds: int) -> None:
    # Its RDP accountant takes σK/(2L) = 1/shift: valid for sampling without replacement, and about twice too large.
    event = dp_accounting.SampledWithoutReplacementDpEvent(records, batch, gaussian(1 / shift))
    above = their_epsilon(rdp.RdpAccountant(neighboring_relation=REPLACE_ONE), (event, rounds))
    # Poisson sampling under add/remove has the pair (P, Q), without the symmetrisation that replace-one needs.
    event = dp_accounting.PoissonSampledDpEvent(batch / records, gaussian(1 / shift))
    below = their_epsilon(pld.PLDAccountant(ADD_OR_REMOVE_ONE), (event, rounds))
    ours = accountant.epsilon([(FixedSizeRelease(records, batch, shift), rounds)], DELTA)
    assert below * (1 - 1e-3) <= ours <= above
    assert ours < 1.2 * below
