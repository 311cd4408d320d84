"""The moments of plans of before: kept as a finding."""

from ringfence.server.questions.findings import argument, receive

__all__ = ["argument", "receive"]
