"""How much noise a budget allows, one file for each channel of `protocol.channels`, of the same name."""

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from ringfence.protocol.plan import Plan

if TYPE_CHECKING:
    from ringfence.planning.draft import PlanDraft
    from ringfence.planning.request import Member, PlanRequest
    from ringfence.planning.setting import Setting


class ChannelPlanner(Protocol):
    """What every channel's file offers to the planner."""

    def restricted(self, request: "PlanRequest", members: "Sequence[Member]") -> "PlanRequest":
        """Return the request with what the channel decides; PlanError if it asks for what the channel cannot do."""

    def surveys_curvature(self, request: "PlanRequest") -> bool | None:
        """Tell whether a survey of the curvature is made before accelerated steps; None means: where it pays."""

    def mixed_records(self, request: "PlanRequest", members: "Sequence[Member]") -> int | None:
        """Return how many records share one noise at least; None where every silo makes its own."""

    def calibrated(self, request: "PlanRequest", draft: "PlanDraft") -> Plan:
        """Find the least noise that keeps every silo's promise, and put the plan together."""

    def loudness(self, plan: Plan, setting: "Setting") -> float:
        """Return how much more noise the plan carries than Gaussian releases of the same cost would, if any."""


_CHANNELS = {"nobody": "own_noise", "shuffler": "shuffler"}
"""Which channel serves whoever trusts nobody, or a shuffler."""


def planner_of(request: "PlanRequest") -> ChannelPlanner:
    """Return the file of the channel that a request's trust leads to."""
    return cast(ChannelPlanner, import_module(f"{__name__}.{_CHANNELS[request.trust]}"))
