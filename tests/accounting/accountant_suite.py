"""What every way of accounting must satisfy; each path inherits it with its own kind of run."""

import math
from collections.abc import Sequence
from typing import Any

import pytest

from ringfence.accounting import accountant, calibrate
from ringfence.accounting.events import Event
from ringfence.accounting.runs import per_round_event, run_events
from ringfence.errors import AccountingError

DELTA = 1e-6
SIZE: Any = {"records": 1000, "clip": 1.0, "dimension": 10, "partition": "pass"}


class AccountantSuite:
    """Laws of privacy accounting. A subclass says which run is accounted for."""

    sampling: str
    batch = 50
    rounds = 20
    already: Sequence[tuple[Event, int]] = ()

    def run(self, rounds: int, sigma: float) -> list[tuple[Event, int]]:
        """Return a run as a plan describes it."""
        return run_events(self.sampling, rounds, batch=self.batch, sigma=sigma, **SIZE)

    def row(self, answer: int, sigma: float) -> list[tuple[Event, int]]:
        """Return what the silo's ledger holds of one round, its ``answer``-th."""
        return self.run(1, sigma)

    def new_run(self, sigma: float) -> list[tuple[Event, int]]:
        """Return the run alone, without what was released before."""
        return self.run(self.rounds, sigma)

    def round(self, sampling: str, sigma: float, *, part: int, batch: int | None = None) -> Event:
        """Return a round on one part of a partition."""
        return per_round_event(sampling, batch=batch or self.batch, sigma=sigma, part=part, **SIZE)

    @property
    def sigma(self) -> float:
        """Noise at which one round moves by one standard deviation."""
        return 2 / self.batch

    def test_zero_rounds_cost_zero(self) -> None:
        nothing = [(event, 0) for event, _ in self.run(1, self.sigma)]
        assert accountant.epsilon(nothing, DELTA) == 0.0
        assert accountant.delta(nothing, 0.0) == 0.0

    def test_more_rounds_never_cost_less(self) -> None:
        costs = [accountant.epsilon(self.run(rounds, self.sigma), DELTA) for rounds in (1, 2, 3, 8, 20)]
        assert costs == sorted(costs)

    def test_less_noise_never_costs_less(self) -> None:
        costs = [accountant.epsilon(self.run(5, self.sigma / factor), DELTA) for factor in (0.1, 0.5, 1, 1.01, 2, 10)]
        assert costs == sorted(costs)

    def test_a_smaller_delta_never_costs_less(self) -> None:
        run = self.run(5, self.sigma)
        costs = [accountant.epsilon(run, delta) for delta in (0.9, 0.1, 1e-3, 1e-6, 1.1e-9, 1e-9, 1e-15)]
        assert costs == sorted(costs)

    def test_a_larger_epsilon_never_leaves_a_larger_delta(self) -> None:
        run = self.run(5, self.sigma)
        deltas = [accountant.delta(run, epsilon) for epsilon in (0.0, 0.1, 1, 1.1, 3, 5)]
        assert deltas == sorted(deltas, reverse=True)
        assert all(0 <= delta <= 1 for delta in deltas)

    @pytest.mark.parametrize("delta", [0.05, 1e-3, 1e-6, 1e-12])
    @pytest.mark.parametrize("factor", [0.3, 1, 5])
    def test_epsilon_and_delta_are_inverse(self, delta: float, factor: float) -> None:
        run = self.run(5, factor * self.sigma)
        epsilon = accountant.epsilon(run, delta)
        if epsilon > 0:
            assert accountant.delta(run, epsilon) == pytest.approx(delta, rel=1e-3)
        more = epsilon + 0.1
        assert accountant.epsilon(run, accountant.delta(run, more)) == pytest.approx(more, rel=1e-4)

    def test_the_order_of_events_does_not_matter(self) -> None:
        one, other = self.run(3, self.sigma), self.run(4, 2 * self.sigma)
        assert accountant.epsilon(one + other, DELTA) == accountant.epsilon(other + one, DELTA)

    def test_the_grouping_of_events_does_not_matter(self) -> None:
        at_once = self.run(4, self.sigma)
        one_row_per_round = [row for answer in range(4) for row in self.row(answer, self.sigma)]
        assert accountant.epsilon(at_once, DELTA) == accountant.epsilon(one_row_per_round, DELTA)

    def test_composing_events_costs_no_more_than_adding_up_epsilons(self) -> None:
        one, other = self.run(3, self.sigma), self.run(4, 2 * self.sigma)
        apart = accountant.epsilon(one, DELTA / 2) + accountant.epsilon(other, DELTA / 2)
        together = accountant.epsilon(one + other, DELTA)
        assert max(accountant.epsilon(one, DELTA), accountant.epsilon(other, DELTA)) <= together <= apart

    @pytest.mark.parametrize("epsilon", [0.5, 3.0, 20.0])
    def test_calibrated_noise_meets_its_budget_and_a_thousandth_less_does_not(self, epsilon: float) -> None:
        sigma = calibrate.least_noise(
            self.new_run, epsilon=epsilon, delta=DELTA, start=self.sigma, already=self.already
        )

        def cost(noise: float) -> float:
            return accountant.epsilon([*self.already, *self.new_run(noise)], DELTA)

        assert cost(sigma) <= epsilon < cost(0.999 * sigma)

    @pytest.mark.parametrize("delta", [0.0, 1.0, -1e-6, 1.5, math.nan, math.inf])
    def test_a_delta_that_is_no_probability_is_refused(self, delta: float) -> None:
        with pytest.raises(AccountingError, match="delta must lie strictly between 0 and 1"):
            accountant.epsilon(self.run(1, self.sigma), delta)

    @pytest.mark.parametrize("epsilon", [-0.1, math.nan, math.inf])
    def test_an_epsilon_that_is_negative_or_not_finite_is_refused(self, epsilon: float) -> None:
        with pytest.raises(AccountingError, match="epsilon must be a finite number"):
            accountant.delta(self.run(1, self.sigma), epsilon)

    @pytest.mark.parametrize("count", [-1, 1.5, True, "2", None])
    def test_a_count_that_is_no_whole_number_is_refused(self, count: object) -> None:
        ((event, _), *_) = self.run(1, self.sigma)
        with pytest.raises(AccountingError, match="count"):
            accountant.epsilon([(event, count)], DELTA)  # type: ignore[list-item]
