"""Models are compared: first by how much they differ, then by their losses, and the best is the run's model."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ringfence.errors import TrainingError
from ringfence.metrics import comparison
from ringfence.metrics.comparison import Compared
from ringfence.metrics.estimates import Heard, pooled
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.plan import StageTerms
from ringfence.protocol.questions import Comparison
from ringfence.server.learned import Answers, Findings, Learned


@dataclass(frozen=True)
class Comparisons(Findings):
    """The cut by which losses are to be compared; and, once they are, what came of it."""

    is_plain: ClassVar[bool] = False
    cut: float = 0.0
    compared: Compared | None = None


def argument(question: Comparison, learned: Learned, step: int) -> FloatArray:
    """Return the candidates' weights, and the edges between sizes, or the cut."""
    del step
    models = np.array(learned.candidates)
    if len(models) != question.models:
        raise TrainingError(
            f"The plan compares {question.models} models, but {len(models)} are given: train its candidates first."
        )
    found = learned.findings.get(question.name)
    edges = comparison.edges(learned.plan, models)
    ruler = edges
    if question.part == "losses":  # a cut at the largest difference, if nobody told the sizes, cuts nothing
        ruler = np.array([found.cut if isinstance(found, Comparisons) else edges[-1]])
    return np.concatenate([models.reshape(-1), ruler])


def receive(question: Comparison, learned: Learned, answers: Answers) -> Learned:
    """Find the cut, or the best candidate."""
    if not answers.each:
        return learned
    asked = question.read(learned.plan, argument(question, learned, answers.step))[1]
    own = {terms.name: terms.stages for terms in learned.plan.silos}
    heard = pooled({name: _heard(own[name][answers.stage], vector) for name, vector in answers.each.items()})
    if question.part == "losses":
        compared = Compared.of(question, float(asked[0]), heard)
        found = Comparisons(heard.vector, heard.sigma, cut=compared.cut, compared=compared)
        return replace(learned.choosing(compared.best), findings={**learned.findings, question.name: found})
    next_stage = min(answers.stage + 1, len(learned.plan.stages) - 1)
    later = pooled({name: _heard(own[name][next_stage], vector) for name, vector in answers.each.items()})
    found = Comparisons(heard.vector, heard.sigma, cut=comparison.cut(question, asked, heard, later.sigma))
    return replace(learned, findings={**learned.findings, question.name: found})


def _heard(terms: StageTerms, vector: FloatArray) -> Heard:
    return Heard(vector, terms.sigma, terms.batch)


def compared(findings: Mapping[str, Findings]) -> Compared | None:
    """Return what a run's findings say of its candidates, if they were compared."""
    found = findings.get("comparison")
    return found.compared if isinstance(found, Comparisons) else None
