"""The trained model: weights, the plan they came from, and what the silos were promised for them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from ringfence.errors import MessageError, OutputError
from ringfence.metrics.choice import Choice
from ringfence.metrics.report import EvaluationReport
from ringfence.predicting import Predictor
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.messages import pack
from ringfence.protocol.plan import Plan
from ringfence.statement import SiloGuarantee, Statement
from ringfence.storage.files import read_file

OWN_KIND = b'"ringfence-own-model"'
"""What stands in a silo's own model, and in no federation's (`personal`)."""


class Model(Predictor):
    """A linear model in the plan's scaled features. It is as public as the messages it was computed from.

    It is saved as JSON: loading one runs no code. One of format 1, which has an object as its plan and no `format`, is
    read as if it were of today's format, and so saved.
    """

    newest_format: ClassVar[int] = 2
    later_fields: ClassVar[frozenset[str]] = frozenset({"evaluation", "choice"})

    kind: Literal["ringfence-model"] = "ringfence-model"
    format: Literal[2] = 2
    rounds: Mapping[str, int] = Field(default_factory=dict)
    """How many rounds each silo answered."""
    guarantees: Mapping[str, SiloGuarantee] = Field(default_factory=dict)
    """What each silo's ledger showed when the run had ended; none where whoever made the model saw no ledger."""
    evaluation: EvaluationReport | None = None
    """How good it is, as the plan's last stage asked the held-out records: private, with intervals."""
    choice: Choice | None = None
    """Which candidates it was chosen from, if it was: the guarantees are then of all of them together."""

    @field_validator("format", mode="before")
    @classmethod
    def _read_format_1(cls, stated: Any) -> Any:
        return 2 if type(stated) is int and stated == 1 else stated

    @classmethod
    def of(
        cls,
        plan: Plan,
        weights: FloatArray,
        rounds: Mapping[str, int],
        guarantees: Mapping[str, SiloGuarantee] | None = None,
        evaluation: EvaluationReport | None = None,
        choice: Choice | None = None,
    ) -> "Model":
        """Make a model of learned weights."""
        return cls(
            plan=plan,
            weights=pack(weights),
            rounds=dict(rounds),
            guarantees=dict(guarantees or {}),
            evaluation=evaluation,
            choice=choice,
        )

    @property
    def statement(self) -> Statement | None:
        """What the silos' records were promised; None where whoever made the model saw no ledger."""
        names = [terms.name for terms in self.plan.silos if terms.name in self.guarantees]
        others = () if self.choice is None else self.choice.plans
        return Statement(self.plan, {name: self.guarantees[name] for name in names}, others) if names else None

    @property
    def error_spread(self) -> float | None:
        """The RMSE that the private evaluation told."""
        figures = () if self.evaluation is None else self.evaluation.together.figures
        return next((figure.value for figure in figures if figure.name == "RMSE"), None)

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
