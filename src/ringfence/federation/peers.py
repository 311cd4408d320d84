"""Training without a server: every silo broadcasts its noisy answer, and every silo takes the same steps.

The guarantee is the same as with a server, because it covers everything a silo sends, to any receiver. All peers
end with the same model, bit for bit, if they receive the same messages: the silos of a round are drawn from the plan's
digest, and averages are taken in the plan's order.
"""

from collections.abc import Callable, Mapping

import numpy as np

from ringfence.errors import TrainingError
from ringfence.protocol import Answer, Plan
from ringfence.server.rounds import RoundOutcome, RunResult, Session
from ringfence.silo.gate.gate import Gate


class Peer(Session):
    """A silo that takes the server's steps itself: it broadcasts its answer, then receives all peers' answers."""

    def __init__(self, plan: Plan, gate: Gate) -> None:
        """Join a plan as a peer: a silo with its gate and a copy of the server's session."""
        # Public and the same for all peers; no guarantee depends on it.
        super().__init__(plan, np.random.default_rng(int(plan.digest(), 16)))
        self._gate = gate

    def broadcast(self) -> Answer | None:
        """Return this peer's answer in this round, through its own gate; None if it is not its turn."""
        return self._gate.answer(self.request()) if self._gate.silo in self.asked() else None


def train_as_peers(
    plan: Plan, gates: Mapping[str, Gate], *, watch: Callable[[RoundOutcome], None] = lambda outcome: None
) -> RunResult:
    """Let the silos of one process train as peers, and return the model that all of them ended with."""
    if not gates:
        raise TrainingError("There are no peers to train: give at least one silo.")
    peers = {name: Peer(plan, gate) for name, gate in gates.items()}
    while not all(peer.finished for peer in peers.values()):
        answers = {name: answer for name, peer in peers.items() if (answer := peer.broadcast()) is not None}
        outcomes = [peer.receive(answers) for peer in peers.values()]
        watch(outcomes[0])
    results = [peer.result() for peer in peers.values()]
    if len({trained.weights.tobytes() for trained in results}) > 1:
        raise TrainingError(
            "The peers ended with different models, so they did not receive the same messages. Run the plan again "
            "over a network that delivers every broadcast to every peer."
        )
    return results[0]
