"""The comparison: which of several models predicts best, by their losses on each record."""

import math
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.queries.base import Facts, MeanQuery, rounds_phrase
from ringfence.protocol.queries.evaluation import LARGEST, tree_block

MOST_MODELS = 64
"""The most models that one query compares."""

SIZE_LEVELS = 5
"""Levels of the tree of norms."""


class Comparison(MeanQuery):
    """How much the losses of several models on a record differ from their mean on that record.

    A record's *differences* are its losses under the models, less their mean. The part `sizes` is a histogram of the
    norms of these vectors. The part `losses` is the mean of the vectors, each clipped to a norm that the request
    carries, and of their squared norms. Models that mostly agree differ by little, so that the clipping norm, and with
    it the noise, is small, however many there are.

    The argument is the models' weights, then the bin edges of the norms, or the clipping norm. Whatever these are, the
    diameter is 1 (`docs/proofs.md`, Lemma Q8).
    """

    rounds_for: ClassVar[str] = "comparison"
    name: Literal["comparison"] = "comparison"
    models: int = Field(ge=2, le=MOST_MODELS)
    part: Literal["sizes", "losses"]

    def read(self, facts: Facts, argument: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the weights of the models in a comparison, one row each, and the bin edges or the clipping norm."""
        end = self.models * facts.dimension
        return argument[:end].reshape(self.models, facts.dimension), argument[end:]

    @property
    def bin_edges(self) -> int:
        """The number of bin edges in the argument of a comparison; 1 for a clipping norm."""
        return 2**SIZE_LEVELS - 1 if self.part == "sizes" else 1

    @property
    def scale(self) -> float:
        """The factor of a record's term in a comparison that makes the diameter 1."""
        return 1 / math.sqrt(tree_block("sizes", 1, SIZE_LEVELS).squared_diameter) if self.part == "sizes" else 0.5

    def argument_length(self, facts: Facts) -> int:
        """Return the weights of all models of a comparison, and its bin edges."""
        return self.models * facts.dimension + self.bin_edges

    def accepts(self, facts: Facts, argument: FloatArray) -> bool:
        """Return whether the weights of every model of a comparison are in the domain."""
        models, _ = self.read(facts, argument)
        return bool(np.all(np.abs(argument) <= LARGEST)) and all(facts.domain.contains(model) for model in models)

    def length(self, facts: Facts) -> int:
        """Return one number per node of a comparison's tree; or one per model, and one for the squared norms."""
        return 2**SIZE_LEVELS - 1 if self.part == "sizes" else self.models + 1

    def diameter(self, facts: Facts) -> float:
        """Return 1: a comparison scales its terms."""
        return 1.0

    def reveals(self, facts: Facts, rounds: int) -> str:
        """Say that a comparison reveals by how much models differ, or which does best."""
        what = {
            "sizes": "by how much they differ, as shares of differences by size",
            "losses": "which does best, as means of differences of clipped losses",
        }[self.part]
        return (
            f"{rounds_phrase(rounds)}, {self.length(facts)} numbers: of {self.models} models that the server names and "
            f"that predict '{facts.data.target_words}', {what}"
        )

    @property
    def purpose(self) -> str:
        """Why a comparison asks for losses: which of several models predicts best."""
        return "a budgeted query asks every silo which of several models predicts best" if self.part == "losses" else ""

    def limits(self, facts: Facts) -> str:
        """Say that all differences of a record in a comparison are clipped together."""
        return f"Each {facts.unit} counts once, and all its differences together are clipped"
