"""The comparison: which of several models predicts the stage's records best, by losses record by record."""

import math
from typing import Literal

import numpy as np
from pydantic import Field

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.questions.base import BaseQuestion, Facts, often
from ringfence.protocol.questions.evaluation import LARGEST, tree_block

MOST_MODELS = 64
"""How many models are compared at most."""

SIZE_LEVELS = 5
"""Halvings of the tree of sizes."""


class Comparison(BaseQuestion):
    """By how much the losses of several models on a record differ from their mean on that record.

    The *differences* of a record are its losses under the models, less their mean: a vector, 0 where all models do as
    well. First the `sizes` of these vectors are counted; then the `losses` are asked for: the mean of the vectors, each
    cut to a length that the request names, beside that of their squared lengths. Models that mostly agree differ by
    little, so that the cut, and with it the noise, is small, however many they are.

    A request carries the models' weights and a ruler: the edges between sizes, or the cut. Whatever these are,
    replacing a record moves the answer by at most 1/n (`docs/proofs.md`, Lemma Q8), and what rounding adds.
    """

    name: Literal["comparison"] = "comparison"
    models: int = Field(ge=2, le=MOST_MODELS)
    part: Literal["sizes", "losses"]

    def read(self, facts: Facts, argument: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the models' weights, one row each, and the ruler, of a request of the right length."""
        end = self.models * facts.dimension
        return argument[:end].reshape(self.models, facts.dimension), argument[end:]

    @property
    def ruler(self) -> int:
        """How many numbers the ruler has."""
        return 2**SIZE_LEVELS - 1 if self.part == "sizes" else 1

    @property
    def scale(self) -> float:
        """What a record's term is multiplied by, so that two differ by 1 at most."""
        return 1 / math.sqrt(tree_block("sizes", 1, SIZE_LEVELS).spread) if self.part == "sizes" else 0.5

    def argument_length(self, facts: Facts) -> int:
        """Return the number of all models' weights, and of the ruler's numbers."""
        return self.models * facts.dimension + self.ruler

    def accepts(self, facts: Facts, argument: FloatArray) -> bool:
        """Tell whether all weights are in the domain, and the ruler is finite."""
        models, _ = self.read(facts, argument)
        return bool(np.all(np.abs(argument) <= LARGEST)) and all(facts.domain.contains(model) for model in models)

    def length(self, facts: Facts) -> int:
        """Return one number per node of the tree; or one per model, and one for the squared lengths."""
        return 2**SIZE_LEVELS - 1 if self.part == "sizes" else self.models + 1

    def sensitivity(self, facts: Facts, batch: int) -> float:
        """Return 1/n, with what rounding each number towards zero adds."""
        return (1.0 + math.sqrt(self.length(facts)) * 2.0**-31) / batch

    def largest(self, facts: Facts) -> float:
        """Return 1."""
        return 1.0

    def reveals(self, facts: Facts, rounds: int) -> str:
        """Say of which predictions, and that differences are cut."""
        what = {
            "sizes": "by how much they differ, as shares of differences by size",
            "losses": "which does best, as means of differences of clipped losses",
        }[self.part]
        return (
            f"{often(rounds)}, {self.length(facts)} numbers: of {self.models} models that the server names and that "
            f"predict '{facts.data.target_words}', {what}"
        )

    def purpose(self) -> str:
        """Say that somebody wants to choose."""
        return "a budgeted query asks every silo which of several models predicts best" if self.part == "losses" else ""

    def limits(self, facts: Facts) -> str:
        """Say that a record counts once, and differences are cut."""
        return f"Each {facts.unit} counts once, and all its differences together are clipped"
