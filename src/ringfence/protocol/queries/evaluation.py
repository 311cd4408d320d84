"""The evaluation: how well given weights predict the stage's records, as clipped losses and trees of counts."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np
from pydantic import Field

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.documents.messages import Vector
from ringfence.protocol.queries.base import Facts, MeanQuery, rounds_phrase, slices_of

SCORE_LEVELS, RESIDUAL_LEVELS, TARGET_LEVELS = 4, 5, 6
"""Levels of the trees of scores (on each side of 0) or confidences, of errors, and of targets."""

MOST_CONFUSED = 16
"""The most classes for which the whole confusion matrix is counted; beyond, only the classes are."""

CURVE = math.sqrt(2.5)
"""The factor of the square of a number in ±1 that leaves the diameter of both at that of the number."""

MARGIN = math.sqrt(0.5)
"""The factor of class and prediction beside whether they agree."""

FigureName: TypeAlias = Annotated[str, Field(min_length=1, max_length=100)]
"""The name of a metric that an evaluation may be asked for, as printed."""

LARGEST = 1e100
"""The largest absolute value that an argument may have."""


class AnswerBlock(NamedTuple):
    """A named part of the answer: its length, the bin edges it needs, and its squared diameter."""

    name: str
    length: int
    bin_edges: int
    squared_diameter: float


@dataclass(frozen=True)
class EvaluationArgument:
    """The model's weights, those of the model it is compared with, if any, and per block the bin edges and the share of
    the squared sensitivity."""

    weights: FloatArray
    against: FloatArray | None
    bin_edges: Mapping[str, FloatArray]
    shares: Mapping[str, float]

    def packed(self) -> FloatArray:
        """Return the argument of an evaluation as numbers: models, bin edges, and blocks' shares."""
        models = [self.weights] if self.against is None else [self.weights, self.against]
        return np.concatenate([*models, *self.bin_edges.values(), np.array(list(self.shares.values()))])


def level_weights(levels: int) -> FloatArray:
    """Return the weight of each level of an evaluation's tree, from its root: squares fall by √2."""
    return np.asarray(2.0 ** (-np.arange(levels) / 4))


def path_signs(levels: int) -> FloatArray:
    """Return, for every leaf of an evaluation's tree, +1 or −1 for each node above it (right or left), 0 for others."""
    leaves = np.arange(2**levels)
    result = np.zeros((2**levels, 2**levels - 1))
    for level in range(levels):
        node = 2**level - 1 + (leaves >> (levels - level))
        result[leaves, node] = 2.0 * (leaves >> (levels - level - 1) & 1) - 1
    return result


def node_weights(levels: int) -> FloatArray:
    """Return the weight of each node of an evaluation's tree, in the order of `path_signs`."""
    return np.repeat(level_weights(levels), 2 ** np.arange(levels))


@cache
def tree_block(name: str, groups: int, levels: int, edges: int = 1) -> AnswerBlock:
    """Return a tree's block: leaves on both sides of the root differ by 2 there, and by a node each on lower levels."""
    squared = 4.0 + 2.0 * float(np.sum(level_weights(levels)[1:] ** 2))
    return AnswerBlock(name, groups * (2**levels - 1), edges * (2**levels - 1), squared)


def number_blocks() -> list[AnswerBlock]:
    """Return an evaluation's blocks of a numeric target: a tree of errors, clipped means, the target's distribution."""
    own = [AnswerBlock("below", 1, 0, 4.0), tree_block("residuals", 1, RESIDUAL_LEVELS)]
    own += [AnswerBlock("squared", 1, 1, 1.0), AnswerBlock("absolute", 1, 1, 1.0)]
    return [*own, tree_block("targets", 1, TARGET_LEVELS), AnswerBlock("target", 2, 2, 4.0)]


def target_block(block: str, place: int) -> str:
    """Return the name of an evaluation's block for one of several targets."""
    return f"{block} {place}"


class Evaluation(MeanQuery):
    """How well a model predicts: shares of right and wrong predictions by score, errors by size, clipped losses.

    `weights` is the model; by default, the one that the plan's earlier stages have trained. `against` is a model to
    compare it with, record by record. `figures` names what the server is to measure; None means everything. It decides
    which blocks get a share of the sensitivity, and so how precise they are, never how private.

    The argument is the weights, bin edges (of scores and errors, and clipping bounds of losses) and each block's share
    of the squared sensitivity, 1 in all. Whatever these are, the diameter is 1 (`docs/proofs.md`, Lemma Q4).
    """

    rounds_for: ClassVar[str] = "evaluation"
    purpose: ClassVar[str] = "a budgeted query asks every silo how well the model predicts"
    name: Literal["evaluation"] = "evaluation"
    weights: Vector | None = None
    against: Vector | None = None
    figures: Annotated[tuple[FigureName, ...], Field(min_length=1, max_length=50)] | None = None

    def blocks(self, facts: Facts) -> tuple[AnswerBlock, ...]:
        """Return the blocks of an evaluation's answer, in order."""
        loss, unit = facts.loss, 1.0
        brier = [AnswerBlock("brier", 1, 0, unit)] if loss.is_log_loss else []
        if loss.target_kind == "label":
            own = [AnswerBlock("confusion", 3, 0, 6.0), tree_block("scores", 4, SCORE_LEVELS, edges=2), *brier]
        elif loss.target_kind == "class":
            cells = loss.categories ** (2 if loss.categories <= MOST_CONFUSED else 1)
            own = [AnswerBlock("correct", 1, 0, 4.0), AnswerBlock("cells", cells, 0, 2.0)]
            own += [tree_block("confidence", 2, SCORE_LEVELS), *brier]
        elif loss.target_kind == "time":
            own = [AnswerBlock("event", 1, 0, 4.0), AnswerBlock("expected", 1, 1, unit)]
        elif loss.target_kind == "numbers":
            own = [
                block._replace(name=target_block(block.name, place))
                for place in range(loss.outputs)
                for block in number_blocks()
            ]
        else:
            own = number_blocks()
        own.append(AnswerBlock("loss", 1, 1, 4.0 if loss.may_be_negative else unit))
        if self.against is not None:
            own += [AnswerBlock("paired", 2, 1, 4.0)]
            own += [AnswerBlock("right", 2, 0, 4.0)] if loss.target_kind in ("label", "class") else []
        return tuple(own)

    def slices(self, facts: Facts) -> dict[str, slice]:
        """Return the slice of the evaluation's answer for each block."""
        return slices_of({block.name: block.length for block in self.blocks(facts)})

    def read(self, facts: Facts, argument: FloatArray) -> EvaluationArgument:
        """Read the argument of an evaluation, which has the right length."""
        blocks = self.blocks(facts)
        models, edges, own = np.split(argument, [self._weights(facts), -len(blocks)])
        weights, *against = np.split(models, len(models) // facts.dimension)
        places = slices_of({block.name: block.bin_edges for block in blocks})
        bin_edges = {name: edges[place] for name, place in places.items()}
        shares = {block.name: float(share) for block, share in zip(blocks, own, strict=True)}
        return EvaluationArgument(weights, against[0] if against else None, bin_edges, shares)

    def scale(self, facts: Facts, asked: EvaluationArgument) -> dict[str, float]:
        """Return the factor of each block of an evaluation: together they make the diameter 1."""
        return {own.name: math.sqrt(asked.shares[own.name] / own.squared_diameter) for own in self.blocks(facts)}

    def argument_length(self, facts: Facts) -> int:
        """Return the weights of one or two models to evaluate, bin edges, and a share for each block."""
        return self._weights(facts) + sum(block.bin_edges + 1 for block in self.blocks(facts))

    def _weights(self, facts: Facts) -> int:
        """Return how many weights the one or two models of an evaluation have."""
        return facts.dimension * (1 if self.against is None else 2)

    def accepts(self, facts: Facts, argument: FloatArray) -> bool:
        """Return whether models to evaluate are in the domain, and bin edges and shares are valid."""
        asked = self.read(facts, argument)
        shares = list(asked.shares.values())
        return (
            bool(np.all(np.abs(argument) <= LARGEST))
            and all(facts.domain.contains(model) for model in (asked.weights, asked.against) if model is not None)
            and min(shares) >= 0
            and math.fsum(shares) <= 1.0
        )

    def length(self, facts: Facts) -> int:
        """Return the length of all blocks of an evaluation."""
        return sum(block.length for block in self.blocks(facts))

    def diameter(self, facts: Facts) -> float:
        """Return 1: an evaluation scales its blocks."""
        return 1.0

    def reveals(self, facts: Facts, rounds: int) -> str:
        """Say that an evaluation reveals errors of a model by size, class or time."""
        by = {
            "label": "right and wrong predictions by score",
            "class": "right and wrong predictions by class and confidence",
            "number": "errors and targets by size",
            "numbers": "errors and targets by size, for each target,",
            "time": "events, observed and expected by the model,",
        }[facts.loss.target_kind]
        models, verb = ("a model", "predicts") if self.against is None else ("two models", "predict")
        return (
            f"{rounds_phrase(rounds)}, {self.length(facts)} numbers: how well {models} that the server names {verb} "
            f"'{facts.data.target_words}', as shares of {by} and means of clipped losses"
        )

    def limits(self, facts: Facts) -> str:
        """Say that a record counts once in every share of an evaluation, and that its losses are clipped."""
        return f"Each {facts.unit} counts once in every share, and its losses are clipped"
