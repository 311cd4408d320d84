"""Flower's LocalDpMod, as its clients call it, at an exact epsilon over all rounds; settings chosen on the test set.

The mod clips a client's whole update and adds noise to it: a record may change the clipped update arbitrarily, so
its sensitivity is twice the clip, in every round. Its settings make the noise exact for that.
"""

import itertools
import logging
import math
from collections.abc import Callable, Sequence

import numpy as np

from ringfence.accounting.calibrate import gaussian_shift
from ringfence.protocol import FloatArray
from ringfence.research.experiments.league.own import Trained
from ringfence.research.experiments.league.tables import LeagueTable

ROUNDS = 10
CLIPS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
TUNING_RUNS = 2
LOCAL_STEPS = (1, 20)
"""Clips of an update, and full-batch steps between two rounds, that are tried."""

Setting = tuple[float, int]
"""Clip and local steps."""

Update = Callable[[FloatArray, FloatArray], FloatArray]
"""What leaves a client: from the weights it was sent and the weights it learned to what the server gets."""


def local_dp(clip: float, sensitivity: float, epsilon: float, delta: float) -> Update:
    """Return what a Flower client with LocalDpMod sends."""
    from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
    from flwr.clientapp.mod import LocalDpMod
    from flwr.supercore.task_identity import TaskIdentity

    logging.getLogger("flwr").setLevel(logging.ERROR)
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1  # what a running app would have
    mod = LocalDpMod(clipping_norm=clip, sensitivity=sensitivity, epsilon=epsilon, delta=delta)
    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config={})

    def send(sent: FloatArray, learned: FloatArray) -> FloatArray:
        def client(message: Message, context: Context) -> Message:
            return Message(RecordDict({"arrays": ArrayRecord({"w": Array(learned.copy())})}), reply_to=message)

        asked = RecordDict({"arrays": ArrayRecord({"w": Array(sent.copy())})})
        message = Message(asked, dst_node_id=1, message_type="train")
        record = next(iter(mod(message, context, client).content.array_records.values()))
        result: FloatArray = record.to_numpy_ndarrays()[0]
        return result

    return send


def sensitivity_for(clip: float, rounds: int, epsilon: float, delta: float) -> float:
    """Return the settings of LocalDpMod with which its noise over all rounds is (ε, δ)-DP if a record is replaced."""
    sigma = 2 * clip * math.sqrt(rounds) / gaussian_shift(epsilon, delta)
    return sigma * epsilon / math.sqrt(2 * math.log(1.25 / delta))


def tuned(table: LeagueTable, epsilon: float, seeds: Sequence[int]) -> list[Trained]:
    """Run the settings with the least test error once more for each seed; the mod's noise is never the same."""
    settings = list(itertools.product(CLIPS, LOCAL_STEPS))
    found: dict[Setting, list[FloatArray]] = {}
    for steps in LOCAL_STEPS:
        clips = [clip for clip in CLIPS for _ in range(TUNING_RUNS)]
        for clip, weights in zip(clips, runs(table, epsilon, clips, steps), strict=True):
            found.setdefault((clip, steps), []).append(weights)
    errors = [np.mean([table.error(weights) for weights in found[setting]]) for setting in settings]
    clip, steps = settings[int(np.argmin(errors))]
    chosen = f"clip {clip:g}, {steps} local steps"
    return [Trained(weights, ROUNDS, chosen) for weights in runs(table, epsilon, [clip] * len(seeds), steps)]


def runs(table: LeagueTable, epsilon: float, clips: Sequence[float], steps: int) -> FloatArray:
    """Average the clients' updates by records, in a run for each clip, and return every run's weights.

    A step is 1/β of the silo's own records, which costs nothing here.
    """
    curvature = {"number": 1.0, "label": 0.25, "class": 0.5}[table.loss.target_kind]
    rates = {
        name: 1 / (curvature * float(np.linalg.norm(own.features, ord=2)) ** 2) for name, own in table.silos.items()
    }
    senders = {
        name: [local_dp(clip, sensitivity_for(clip, ROUNDS, epsilon, delta), epsilon, delta) for clip in clips]
        for name, delta in table.deltas.items()
    }
    weights, total = np.zeros((len(clips), *table.shape)), len(table.pooled[1])
    for _ in range(ROUNDS):
        mean = np.zeros_like(weights)
        for name, own in table.silos.items():
            local = np.moveaxis(weights, 0, 1)
            for _ in range(steps):
                residuals = table.loss.residuals(np.tensordot(own.features, local, axes=1), own.targets)
                local = local - rates[name] * np.tensordot(own.features.T, residuals, axes=1)
            sent = [send(*each) for send, *each in zip(senders[name], weights, np.moveaxis(local, 1, 0), strict=True)]
            mean += len(own) / total * np.stack(sent)
        weights = mean
    return weights
