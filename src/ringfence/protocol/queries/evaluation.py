"""The evaluation: how well given weights predict the stage's records, as cut losses and trees of counts."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Literal, NamedTuple

import numpy as np

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.messages import Vector
from ringfence.protocol.questions.base import BaseQuestion, Facts, often

SCORE_LEVELS, RESIDUAL_LEVELS, TARGET_LEVELS = 4, 5, 6
"""Halvings of a tree: of scores on each side of 0 or of confidences, of errors, and of targets."""

MOST_CONFUSED = 16
"""Up to that many classes, every pair of class and prediction is counted; beyond, classes are."""

CURVE = math.sqrt(2.5)
"""What the square of a number in ±1 may be multiplied by so that, beside the number itself, it moves nothing more."""

MARGIN = math.sqrt(0.5)
"""What class and prediction, of two, are multiplied by beside whether they agree."""

LARGEST = 1e100
"""No number of a request is larger."""


class Block(NamedTuple):
    """Some numbers of the answer: how many, how many numbers of the ruler they need, and by how much, squared, the
    terms of two records can differ in them."""

    name: str
    length: int
    ruler: int
    spread: float


@dataclass(frozen=True)
class Asked:
    """What a request says: the model's weights, those of the model it is compared with, if any, and per block the
    ruler and the share of the squared sensitivity."""

    weights: FloatArray
    against: FloatArray | None
    ruler: Mapping[str, FloatArray]
    shares: Mapping[str, float]

    def packed(self) -> FloatArray:
        """Return what the request carries."""
        models = [self.weights] if self.against is None else [self.weights, self.against]
        return np.concatenate([*models, *self.ruler.values(), np.array(list(self.shares.values()))])


def level_weights(levels: int) -> FloatArray:
    """Return the weight of each level of a tree, from its root: squares fall by √2, which is best for smooth sums."""
    result: FloatArray = 2.0 ** (-np.arange(levels) / 4)
    return result


def signs(levels: int) -> FloatArray:
    """Return, for every leaf of a tree, +1 or −1 for each node above it (right or left of it) and 0 for the others."""
    leaves = np.arange(2**levels)
    result = np.zeros((2**levels, 2**levels - 1))
    for level in range(levels):
        node = 2**level - 1 + (leaves >> (levels - level))
        result[leaves, node] = 2.0 * (leaves >> (levels - level - 1) & 1) - 1
    return result


def node_weights(levels: int) -> FloatArray:
    """Return the weight of each node of a tree, in the order of `signs`."""
    return np.repeat(level_weights(levels), 2 ** np.arange(levels))


@cache
def tree_block(name: str, groups: int, levels: int, edges: int = 1) -> Block:
    """Two leaves that part at the root differ by 2 there, and by one node each on every level below."""
    spread = 4.0 + 2.0 * float(np.sum(level_weights(levels)[1:] ** 2))
    return Block(name, groups * (2**levels - 1), edges * (2**levels - 1), spread)


def number_blocks() -> list[Block]:
    """Return what is asked of a numeric target: errors by size, means of cut ones, and how the target is spread."""
    own = [Block("below", 1, 0, 4.0), tree_block("residuals", 1, RESIDUAL_LEVELS)]
    own += [Block("squared", 1, 1, 1.0), Block("absolute", 1, 1, 1.0)]
    return [*own, tree_block("targets", 1, TARGET_LEVELS), Block("target", 2, 2, 4.0)]


def of_target(block: str, place: int) -> str:
    """Return the name of a number's block, of one of several targets."""
    return f"{block} {place}"


class Evaluation(BaseQuestion):
    """How well a model predicts: shares of right and wrong predictions by score, errors by size, means of cut losses.

    `weights` is the model; unless it is given, the one that the plan's stages before have trained. `against` is one to
    compare it with, record by record.

    A request carries the weights, a ruler (where scores and errors are divided and losses cut) and how much of the
    sensitivity each block of numbers gets, 1 in all. Whatever these are, replacing a record moves the answer by at most
    1/n (`docs/proofs.md`, Lemma Q4), and what rounding adds.
    """

    name: Literal["evaluation"] = "evaluation"
    weights: Vector | None = None
    against: Vector | None = None

    def blocks(self, facts: Facts) -> tuple[Block, ...]:
        """Return what the answer is made of, in its order."""
        loss, unit = facts.loss, 1.0
        brier = [Block("brier", 1, 0, unit)] if loss.is_log_loss else []
        if loss.target_kind == "label":
            own = [Block("confusion", 3, 0, 6.0), tree_block("scores", 4, SCORE_LEVELS, edges=2), *brier]
        elif loss.target_kind == "class":
            cells = loss.categories ** (2 if loss.categories <= MOST_CONFUSED else 1)
            own = [Block("correct", 1, 0, 4.0), Block("cells", cells, 0, 2.0)]
            own += [tree_block("confidence", 2, SCORE_LEVELS), *brier]
        elif loss.target_kind == "time":
            own = [Block("event", 1, 0, 4.0), Block("expected", 1, 1, unit)]
        elif loss.target_kind == "numbers":
            own = [
                block._replace(name=of_target(block.name, place))
                for place in range(loss.outputs)
                for block in number_blocks()
            ]
        else:
            own = number_blocks()
        own.append(Block("loss", 1, 1, 4.0 if loss.may_be_negative else unit))
        if self.against is not None:
            own += [Block("paired", 2, 1, 4.0)]
            own += [Block("right", 2, 0, 4.0)] if loss.target_kind in ("label", "class") else []
        return tuple(own)

    def parts(self, facts: Facts) -> dict[str, slice]:
        """Return where each block stands in the answer."""
        blocks = self.blocks(facts)
        ends = accumulate(block.length for block in blocks)
        return {block.name: slice(end - block.length, end) for block, end in zip(blocks, ends, strict=True)}

    def read(self, facts: Facts, argument: FloatArray) -> Asked:
        """Return what a request of the right length asks."""
        blocks = self.blocks(facts)
        models = facts.dimension * (1 if self.against is None else 2)
        ends = models + np.cumsum([0, *(block.ruler for block in blocks)])
        ruler = {block.name: argument[ends[i] : ends[i + 1]] for i, block in enumerate(blocks)}
        shares = {block.name: float(share) for block, share in zip(blocks, argument[ends[-1] :], strict=True)}
        return Asked(
            argument[: facts.dimension],
            None if self.against is None else argument[facts.dimension : models],
            ruler,
            shares,
        )

    def scale(self, facts: Facts, asked: Asked) -> dict[str, float]:
        """Return what each block's numbers are multiplied by: together two records' terms differ by 1 at most."""
        return {block.name: math.sqrt(asked.shares[block.name] / block.spread) for block in self.blocks(facts)}

    def argument_length(self, facts: Facts) -> int:
        """Return the number of weights, of one model or two, of the ruler's numbers and of shares."""
        blocks = self.blocks(facts)
        return facts.dimension * (1 if self.against is None else 2) + sum(block.ruler + 1 for block in blocks)

    def accepts(self, facts: Facts, argument: FloatArray) -> bool:
        """Tell whether the weights are in the domain, the ruler is finite, and the shares are no more than 1 in all."""
        asked = self.read(facts, argument)
        shares = list(asked.shares.values())
        return (
            bool(np.all(np.abs(argument) <= LARGEST))
            and all(facts.domain.contains(model) for model in (asked.weights, asked.against) if model is not None)
            and min(shares) >= 0
            and math.fsum(shares) <= 1.0
        )

    def length(self, facts: Facts) -> int:
        """Return how many numbers all blocks have."""
        return sum(block.length for block in self.blocks(facts))

    def sensitivity(self, facts: Facts, batch: int) -> float:
        """Return 1/n, with what rounding each number towards zero adds."""
        return (1.0 + math.sqrt(self.length(facts)) * 2.0**-31) / batch

    def largest(self, facts: Facts) -> float:
        """Return 1."""
        return 1.0

    def reveals(self, facts: Facts, rounds: int) -> str:
        """Say of which predictions, and by what they are counted."""
        by = {
            "label": "right and wrong predictions by score",
            "class": "right and wrong predictions by class and confidence",
            "number": "errors and targets by size",
            "numbers": "errors and targets by size, for each target,",
            "time": "events, observed and expected by the model,",
        }[facts.loss.target_kind]
        models = (
            "a model that the server names predicts"
            if self.against is None
            else "two models that the server names predict"
        )
        return (
            f"{often(rounds)}, {self.length(facts)} numbers: how well {models} '{facts.data.target_words}', as shares "
            f"of {by} and means of clipped losses"
        )

    def purpose(self) -> str:
        """Say that somebody wants to know how good the model is."""
        return "a budgeted query asks every silo how well the model predicts"

    def limits(self, facts: Facts) -> str:
        """Say that a record counts once, and losses are cut."""
        return f"Each {facts.unit} counts once in every share, and its losses are clipped"
