"""Joint maps of several columns: products of their features as curves leave them, or random Fourier features."""

import hashlib
import math
from collections.abc import Mapping
from functools import cached_property, lru_cache
from itertools import combinations
from statistics import NormalDist
from typing import Annotated, ClassVar, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, model_validator

from ringfence.protocol.arrays import FloatArray, row_norms
from ringfence.protocol.schema.blocks import Block, Blocks, Readings
from ringfence.protocol.schema.maps.base import MOST_FEATURES, BaseMap

MOST_DRAWS = 1_000_000
"""The most numbers that are drawn for the directions of one map."""

_GRID = 2.0**20


def _is_named(seed: object) -> object:
    """Refuse random Fourier features without a public seed."""
    if seed is None:
        raise ValueError("it is missing: give a whole number, which is public, as in seed = 1")
    return seed


Seed: TypeAlias = Annotated[int, Field(ge=0, lt=2**64), BeforeValidator(_is_named)]


class Interaction(BaseMap):
    """All products of a feature of one column and a feature of another, for every two of the columns.

    They stand beside the columns' own. The norm of all products is the product of the two columns' norms, and so is its
    largest value, whatever the columns are.
    """

    least: ClassVar[int] = 2

    type: Literal["interaction"] = "interaction"

    def width(self, inputs: Mapping[str, Blocks]) -> int:
        """Return how many products an interaction has, of features of different columns."""
        widths = [inputs[name].width for name in self.columns]
        return (sum(widths) ** 2 - sum(width**2 for width in widths)) // 2

    def blocks(self, inputs: Mapping[str, Blocks]) -> list[Block]:
        """Return an interaction's products of every two columns, in the order of their names."""
        return [Products(inputs[first], inputs[second]) for first, second in combinations(sorted(self.columns), 2)]

    @property
    def words(self) -> str:
        """Describe an interaction map: products of columns."""
        return f"products of {' and '.join(self.columns)}" + (", two at a time" if len(self.columns) > 2 else "")


class Products(Block):
    """The products of two columns' features, by the first one's."""

    def __init__(self, first: Blocks, second: Blocks) -> None:
        """Make the block of an interaction: products of the features of two columns."""
        self.first, self.second = first, second
        self.width = first.width * second.width
        self.bound = first.bound * second.bound

    @property
    def repeats(self) -> NDArray[np.bool_]:
        """Tell which products in an interaction are sums of others and of the columns' own features."""
        one, other = (np.concatenate([block.repeats for block in factor]) for factor in (self.first, self.second))
        return np.asarray(one[:, None] | other, dtype=np.bool_).reshape(-1)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of both factors of each product in an interaction."""
        return tuple(f"{one} × {other}" for one in self.first.names for other in self.second.names)

    def features(self, readings: Readings) -> FloatArray:
        """Return the products of features in an interaction."""
        first, second = self.first.features(readings), self.second.features(readings)
        return (first[:, :, None] * second[:, None, :]).reshape(len(first), self.width)


class Fourier(BaseMap):
    """Cosines and sines of w·x for features/2 public directions w, times √(2/features), beside the columns' own.

    x is the columns' features, scaled as a model has them; every number of w is normal, with the standard deviation
    1/`scale`. Products of two records' features are then about exp(−‖x − x'‖²/(2·scale²)) (Rahimi and Recht, 2007): the
    model is a kernel machine with that kernel, and still convex. Cosines and sines of the same w have a norm of exactly
    1, where cosines of random phases would need √2.

    The directions are the same on every machine (`directions`); `seed` is public and means nothing else.
    """

    type: Literal["fourier"] = "fourier"
    features: int = Field(ge=2, le=MOST_FEATURES)
    scale: float = Field(default=1.0, ge=1e-6, le=1e6)
    seed: Seed = Field(default=None, validate_default=True)

    @model_validator(mode="after")
    def _is_even(self) -> Self:
        """Refuse an odd number of random Fourier features."""
        if self.features % 2:
            raise ValueError("`features` must be even: each direction has a cosine and a sine")
        return self

    def width(self, inputs: Mapping[str, Blocks]) -> int:
        """Return the number of Fourier features; refuse more directions than can be drawn in a moment."""
        length = sum(inputs[name].width for name in self.columns)
        if length * self.features // 2 > MOST_DRAWS:
            raise ValueError(
                f"a fourier map of {length} column features needs more than {MOST_DRAWS} random numbers: name fewer "
                "columns, or ask for fewer `features`"
            )
        return self.features

    def blocks(self, inputs: Mapping[str, Blocks]) -> list[Block]:
        """Return the Fourier waves of all columns together, taken in the order of their names."""
        return [Waves(self, Blocks(block for name in sorted(self.columns) for block in inputs[name]))]

    @property
    def words(self) -> str:
        """Describe a map of random Fourier features: number, scale, seed and columns."""
        of = ", ".join(self.columns)
        return f"{self.features} random Fourier features of scale {self.scale:g}, seed {self.seed} ({of})"


class Waves(Block):
    """Cosine and sine along each of the directions."""

    bound = 1.0

    def __init__(self, map: Fourier, inputs: Blocks) -> None:
        """Make the block of random Fourier features."""
        self.map, self.inputs, self.width = map, inputs, map.features

    @property
    def names(self) -> tuple[str, ...]:
        """Return the seed, the direction's number, and which wave a Fourier feature is."""
        numbers = range(1, self.width // 2 + 1)
        return tuple(f"fourier {self.map.seed} {wave} {number}" for number in numbers for wave in ("cos", "sin"))

    def features(self, readings: Readings) -> FloatArray:
        """Return the waves: cosines and sines of random Fourier features."""
        chosen = directions(self.map.seed, self.width // 2, self.inputs.width)
        angles = products(self.inputs.features(readings), chosen, self.inputs.bound) / self.map.scale
        waves = np.stack([np.cos(angles), np.sin(angles)], axis=2) * math.sqrt(2.0 / self.width)
        return waves.reshape(len(angles), self.width)


def products(rows: FloatArray, chosen: FloatArray, bound: float) -> FloatArray:
    """Multiply rows, of norms up to a bound, by Fourier directions: each row a function of its own numbers alone.

    A library adds up products in an order of its own, and in another if a row is alone. So rows are split into two
    limbs, multiples of a power of two, and directions are multiples of 2⁻²⁰: by Cauchy and Schwarz no partial sum of a
    limb's products takes more than 53 bits, and so none is rounded. With d numbers in a row, what is left of each after
    both is at most 4√d·2^(−2·bits) of the bound.
    """
    bits = 52 - math.frexp(float(np.max(row_norms(chosen))) * _GRID)[1]
    unit = math.ldexp(2.0, math.frexp(bound)[1] - bits)
    high = np.rint(rows / unit) * unit
    unit = math.ldexp(unit, math.frexp(math.sqrt(rows.shape[1]))[1] - bits)
    low = np.rint((rows - high) / unit) * unit
    return high @ chosen.T + low @ chosen.T


@lru_cache(maxsize=16)
def directions(seed: int, count: int, length: int) -> FloatArray:
    """Return that many public normal vectors for Fourier features, the same on every machine and in every version.

    SHAKE-256 of the text "ringfence fourier SEED" gives 8 bytes for each number, row by row. Of these, as a
    little-endian integer, k is the upper 52 bits, and the number is the normal quantile of (2k + 1)/2⁵³ (Wichura's
    AS 241), rounded to a multiple of 2⁻²⁰, so that the last digits of a machine's logarithm change nothing.
    """
    drawn = hashlib.shake_256(f"ringfence fourier {seed}".encode()).digest(8 * count * length)
    shares = (2 * (np.frombuffer(drawn, dtype="<u8") >> np.uint64(12)) + 1).astype(np.float64) * 2.0**-53
    quantile = NormalDist().inv_cdf
    normal = np.array([round(quantile(share) * _GRID) for share in shares.tolist()]) / _GRID
    normal.flags.writeable = False
    return normal.reshape(count, length)
