"""The trained model: weights, the plan they came from, and what the silos were promised for them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from ringfence.errors import MessageError, OutputError
from ringfence.estimates.comparison import Choice
from ringfence.estimates.metrics import EvaluationReport
from ringfence.model.prediction import Predictor
from ringfence.model.statement import SiloGuarantee, Statement
from ringfence.protocol import FloatArray, Plan, pack
from ringfence.storage.files import read_file

OWN_KIND = b'"ringfence-own-model"'
"""What stands in a silo's own model, and in no federation's (`personal`)."""


class Model(Predictor):
    """A linear model in the plan's scaled features. It is as public as the messages it was computed from.

    It is saved as JSON: loading one runs no code.
    """

    kind: Literal["ringfence-model"] = "ringfence-model"
    format: Literal[1] = 1
    rounds: Mapping[str, int] = Field(default_factory=dict)
    """How many rounds each silo answered."""
    guarantees: Mapping[str, SiloGuarantee] = Field(default_factory=dict)
    """What each silo's ledger showed when the run had ended; none where whoever made the model saw no ledger."""
    evaluation: EvaluationReport | None = None
    """How good it is, as the plan's last stage asked the held-out records: private, with intervals."""
    choice: Choice | None = None
    """Which candidates it was chosen from, if it was: the guarantees are then of all of them together."""

    @classmethod
    def of(cls, plan: Plan, weights: FloatArray, rounds: Mapping[str, int], **others: Any) -> "Model":
        """Make a model of learned weights; `others` are its other fields."""
        return cls(plan=plan, weights=pack(weights), rounds=dict(rounds), **others)

    @property
    def statement(self) -> Statement | None:
        """The silos' guarantees; None if the model's maker saw no ledger."""
        names = [terms.name for terms in self.plan.silos if terms.name in self.guarantees]
        others = () if self.choice is None else self.choice.plans
        return Statement(self.plan, {name: self.guarantees[name] for name in names}, others) if names else None

    @property
    def error_spread(self) -> float | None:
        """The RMSE of the private evaluation."""
        metrics = () if self.evaluation is None else self.evaluation.together.metrics
        return next((metric.value for metric in metrics if metric.name == "RMSE"), None)

    def save(self, path: Path) -> None:
        """Write the model to a file."""
        try:
            path.write_bytes(self.canonical())
        except OSError as problem:
            raise OutputError(f"The model could not be written to {path}: {problem.strerror}.") from None

    @classmethod
    def load(cls, path: Path) -> "Model":
        """Read a model from a file."""
        content = read_file(path, "model file", MessageError)
        if OWN_KIND in content:
            raise MessageError(
                f"{path} is a silo's own model, which is NOT private: name the federation's model. `ringfence "
                "predict` reads both."
            )
        return cls.parse(content, error=MessageError, limit=2**30, source=str(path))
