"""Draws from the operating system's randomness, for real releases. There is no seed to set.

Noise is exact: the discrete Gaussian on a grid, and heads of fair coins, never floating-point transformations of
uniform numbers, whose gaps would leak.
"""

import math

import numpy as np
from numpy.typing import NDArray

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.plan import Plan, SiloTerms
from ringfence.protocol.schedule import Task
from ringfence.silo import sampling
from ringfence.silo.channels import sending
from ringfence.silo.discrete_gaussian import discrete_gaussian
from ringfence.silo.exact_draws import uniform
from ringfence.silo.fair_coins import heads_of
from ringfence.silo.mechanism import Draws


def draw(plan: Plan, terms: SiloTerms, work: Task) -> Draws:
    """Draw who takes part and what noise is added, for one round's task."""
    chosen = sampling.participation(work.stage.sampling, plan, terms, work, uniform)
    return Draws(chosen, sending(work.stage.channel).draw(work.stage.channel, work))


def gaussian_noise(dimension: int, sigma: float, exponent: int) -> FloatArray:
    """Draw independent discrete Gaussian noise of standard deviation sigma, on multiples of 2^exponent."""
    # Scaling by a power of two is exact, both ways.
    steps = discrete_gaussian(dimension, math.ldexp(sigma, -exponent))
    noise: FloatArray = np.ldexp(steps.astype(np.float64), exponent)
    return noise


def heads(dimension: int, coins: int) -> NDArray[np.int64]:
    """Toss that many fair coins per coordinate and count the heads: exactly Bin(coins, 1/2)."""
    return heads_of(coins, dimension)
