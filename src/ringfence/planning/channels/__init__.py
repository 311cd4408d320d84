"""How much noise a budget allows, one file for each channel of `protocol.channels`, of the same name."""

from collections.abc import Sequence
from typing import Protocol

from ringfence.planning.channels import own_noise, shuffler
from ringfence.planning.draft import PlanDraft
from ringfence.planning.problem import PlanningProblem
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import Plan


class ChannelPlanner(Protocol):
    """The functions of a channel's file."""

    def restricted(self, request: PlanRequest, members: Sequence[Member]) -> PlanRequest:
        """Return a request with the channel's own choices; PlanError if the channel cannot do what it asks for."""

    def surveys_curvature(self, request: PlanRequest) -> bool | None:
        """Return whether a channel's plan surveys the curvature before accelerated steps; None: if it pays off."""

    def mixed_records(self, request: PlanRequest, members: Sequence[Member]) -> int | None:
        """Return how many records share one noise at least in a channel; None where every silo makes its own."""

    def calibrated(self, draft: PlanDraft) -> Plan:
        """Return the plan with the channel's least noise that meets every silo's guarantee."""

    def noise_factor(self, plan: Plan, setting: PlanningProblem) -> float:
        """Return how much more noise the channel's plan has than Gaussian releases of the same cost, if any."""


PLANNERS: dict[str, ChannelPlanner] = {"nobody": own_noise, "shuffler": shuffler}
"""The planner of each channel, by whom a request trusts."""
