"""A federation of made-up records, and releases that can repeat earlier ones."""

import numpy as np

from ringfence.protocol import FloatArray, Logistic, Loss, Softmax, Squared
from ringfence.research.experiments.relatives.federation import Federation, Party, Releases

LOSSES: dict[str, Loss] = {"number": Squared(), "label": Logistic(), "class": Softmax(classes=3)}
DELTA = 1e-6


def federation(kind: str, epsilon: float, sizes: tuple[int, ...] = (300, 400), width: int = 3) -> Federation:
    """Return records with features of norm at most 1, which tell much of their targets."""
    random, loss = np.random.default_rng(5), LOSSES[kind]
    parties = []
    for size in sizes:
        features = random.normal(size=(size, width)) * np.linspace(1.0, 0.4, width)
        features /= np.maximum(1.0, np.linalg.norm(features, axis=1, keepdims=True))
        scores = features @ np.linspace(1.5, -1.0, width * loss.outputs).reshape(width, -1)
        if kind == "number":
            targets = np.clip(0.5 * scores[:, 0] + random.normal(0, 0.1, size), -1, 1)
        elif kind == "label":
            targets = np.where(scores[:, 0] + random.logistic(size=size) > 0, 1.0, -1.0)
        else:
            targets = np.argmax(3 * scores + random.gumbel(size=scores.shape), axis=1).astype(np.float64)
        parties.append(Party(features, targets, epsilon, DELTA))
    return Federation(loss, (width, loss.outputs), 1.0, 1.0, tuple(parties))


class Recorded(Releases):
    """Releases that write down every answer before its noise, how far it may move, and what was released.

    With `repeated`, they release that instead of noise: so that neighbours see the same past, as the definition has it.
    """

    def __init__(self, federation: Federation, runs: int, repeated: "Recorded | None" = None) -> None:
        super().__init__(federation, runs, np.random.default_rng(3))
        self.answers: list[tuple[FloatArray, FloatArray]] = []
        self.released: list[FloatArray] = []
        self._repeated = None if repeated is None else iter(repeated.released)

    def release(
        self, place: int, answer: FloatArray, sensitivity: FloatArray | float, share: FloatArray | float
    ) -> FloatArray:
        self.answers.append((answer, np.broadcast_to(sensitivity, (self.runs,))))
        return self._seen(super().release(place, answer, sensitivity, share))

    def release_symmetric(
        self, place: int, answer: FloatArray, sensitivity: float, share: FloatArray | float
    ) -> tuple[FloatArray, FloatArray]:
        self.answers.append((answer, np.broadcast_to(sensitivity, (self.runs,))))
        noisy, sigma = super().release_symmetric(place, answer, sensitivity, share)
        return self._seen(noisy), sigma

    def sketch(self, place: int, rows: int, root: FloatArray) -> FloatArray:
        return self._seen(super().sketch(place, rows, root))

    def _seen(self, noisy: FloatArray) -> FloatArray:
        self.released.append(noisy if self._repeated is None else next(self._repeated))
        return self.released[-1]
