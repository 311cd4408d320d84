"""A plan that uses every field, edits that make it one of each kind, and how it is refused."""

import copy
import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from ringfence.errors import PlanError
from ringfence.protocol import Plan, pack

Edits = dict[str, Any]

LEFT_OUT = object()
"""What an edit puts where a field is to be left out."""


def stage(query: Edits, rounds: int, sampling: str, silos: int | None = None) -> Edits:
    """Return a stage with the silos' own noise, as a plan writes it."""
    return {
        "query": query,
        "rounds": rounds,
        "sampling": {"name": sampling},
        "channel": {"name": "own-noise", "correlation": 0.0},
        "participation": {"silos": silos, "probability": None},
    }


def numeric(lower: float, upper: float, center: float | None = None, scale: float | None = None, **more: Any) -> Edits:
    """Return a numeric column, as a plan writes it."""
    bounds = {"type": "numeric", "lower": lower, "upper": upper}
    return bounds | {"center": center, "scale": scale, "missing": None} | more


def categorical(*names: str, center: float, scale: float, **more: Any) -> Edits:
    """Return a column of categories, as a plan writes it."""
    known = {"type": "categorical", "categories": [*names], "ordered": False}
    return known | {"center": center, "scale": scale, "missing": None} | more


def silo(name: str, records: int, epsilon: float, delta: float, batch: int, sigma: float) -> Edits:
    """Return a silo's terms of a plan with one stage."""
    promised = [{"epsilon": epsilon, "delta": delta, "against": "anyone"}]
    stages = [{"batch": batch, "sigma": sigma}]
    return {"name": name, "records": records, "weight": 0.5, "guarantees": promised, "stages": stages, "key": None}


GRADIENT = stage({"name": "gradient", "clip": 1.5}, 20, "fixed", silos=1)
CURVATURE = stage({"name": "curvature", "margin": 2.0}, 1, "full")
SECOND_MOMENTS = stage({"name": "second-moments", "start": pack(np.zeros(5)), "pilots": 1}, 3, "full")
MEANS = stage({"name": "feature-means"}, 1, "full")

DOCUMENT: dict[str, Any] = {
    "format": 1,
    "run": "trial-1",
    "data": {
        "columns": {
            "age": numeric(0.0, 100.0, 40.0, 20.0, missing=50.0),
            "town": categorical("a", "b", "c", center=0.25, scale=0.5, missing="b"),
            "note": {"type": "ignore"},
            "cost": numeric(-1.0, 1.0),
        },
        "target": "cost",
        "intercept": 1.0,
        "radius": 2.0,
    },
    "training": {
        "loss": {"name": "huber", "threshold": 0.5},
        "domain": {"name": "box", "lower": -3.0, "upper": 4.0},
        "algorithm": {"name": "minibatch-sgd", "step": 0.1, "momentum": 0.5, "skip": 3, "growth": 1.25},
        "ridge": 0.01,
    },
    "stages": [GRADIENT],
    "adjacency": "replace-one",
    "unit": "record",
    "silos": [silo("north", 40, 1.0, 1e-6, 10, 0.7), silo("süd", 60, 2.0, 1e-7, 15, 0.6)],
}


def before(first: dict[str, Any], *sigmas: float) -> Edits:
    """Return edits that put a stage over all records before the gradients, with those noises."""
    edits: Edits = {"stages": [first, GRADIENT]}
    for silo, sigma in enumerate(sigmas):
        own = DOCUMENT["silos"][silo]
        edits[f"silos.{silo}.stages"] = [{"batch": own["records"], "sigma": sigma}, *own["stages"]]
    return edits


SURVEY: Edits = before(CURVATURE, 1.0, 1.1)
SURVEY_OF_MEANS: Edits = before(MEANS, 1.0, 1.1)
MEANS_ONLY: Edits = {
    "stages": [MEANS],
    "silos.0.stages": [{"batch": 40, "sigma": 1.0}],
    "silos.1.stages": [{"batch": 60, "sigma": 1.0}],
}
COUNTED: Edits = MEANS_ONLY | {
    "stages": [
        CURVATURE | {"query": {"name": "statistics", "columns": ["age", "town"], "cross": [["age", "town"]], "bins": 8}}
    ]
}
CURVED: Edits = MEANS_ONLY | {
    "training": LEFT_OUT,
    "data.columns.ill": categorical("no", "yes", center=0.5, scale=1.0),
    "stages": [CURVATURE | {"query": {"name": "survival-curve", "time": "age", "event": "ill", "cuts": [20.0, 50.0]}}],
}
EVALUATED: Edits = {
    "held_out": 0.2,
    "stages": [
        GRADIENT | {"sampling": {"name": "full"}, "section": "training"},
        CURVATURE
        | {"query": {"name": "evaluation", "weights": None, "against": None}, "rounds": 2, "section": "held-out"},
    ],
    "silos.0.stages": [{"batch": 32, "sigma": 0.7}, {"batch": 8, "sigma": 0.5}],
    "silos.1.stages": [{"batch": 48, "sigma": 0.6}, {"batch": 12, "sigma": 0.4}],
}
EVALUATED_ONLY: Edits = MEANS_ONLY | {
    "training": LEFT_OUT,
    "model_loss": {"name": "huber", "threshold": 0.5},
    "stages": [CURVATURE | {"query": {"name": "evaluation", "weights": pack(np.zeros(5)), "against": None}}],
}
COMPARED: Edits = {
    "training": LEFT_OUT,
    "model_loss": {"name": "huber", "threshold": 0.5},
    "held_out": 0.2,
    "stages": [
        CURVATURE | {"query": {"name": "comparison", "models": 3, "part": part}, "section": "held-out"}
        for part in ("sizes", "losses")
    ],
    "silos.0.stages": [{"batch": 8, "sigma": 0.7}, {"batch": 8, "sigma": 0.5}],
    "silos.1.stages": [{"batch": 12, "sigma": 0.6}, {"batch": 12, "sigma": 0.4}],
}
SECOND_MOMENTS_ONLY: Edits = MEANS_ONLY | {"stages": [SECOND_MOMENTS], "training.loss": {"name": "squared"}}
FULL: Edits = {"stages.0.sampling.name": "full", "silos.0.stages.0.batch": 40, "silos.1.stages.0.batch": 60}
POISSON: Edits = {"stages.0.sampling.name": "poisson"}
ONE_PASS: Edits = {"stages.0.sampling.name": "one-pass", "stages.0.rounds": 4}
CORRELATED: Edits = ONE_PASS | {"stages.0.channel.correlation": 0.5}
ACCELERATED: Edits = {
    "training.algorithm": {
        "name": "accelerated", "smoothness": 5.0, "upsilon": 1.0, "penalty": 0.1, "average": "weighted",
    }
}  # fmt: skip
RESTARTED: Edits = {
    "training.algorithm": {
        "name": "multi-stage",
        "smoothness": 5.0,
        "stages": [{"rounds": 12, "upsilon": 10.0}, {"rounds": 8, "upsilon": 20.0}],
        "penalty": 0.1,
        "average": "weighted",
    }
}


def phase(number: int, rounds: int) -> dict[str, Any]:
    return GRADIENT | {"rounds": rounds, "sampling": {"name": "phased", "phase": number}}


LOCALIZED: Edits = {
    "training.algorithm": {
        "name": "localized",
        "smoothness": 5.0,
        "phases": [{"rounds": 3, "penalty": 0.1}, {"rounds": 2, "penalty": 0.8}],
        "average": "weighted",
    },
    "stages": [phase(0, 3), phase(1, 2)],
    "silos.0.stages": [{"batch": 20, "sigma": 0.7}, {"batch": 10, "sigma": 1.2}],
    "silos.1.stages": [{"batch": 30, "sigma": 0.6}, {"batch": 15, "sigma": 1.0}],
}
SHUFFLER: dict[str, Any] = {
    **{"name": "shuffler", "levels": 6, "coins": 25, "quorum": 2, "colluders": 0, "slack": 1e-9},
    **{"shares": 100, "block": 8, "width": 2, "server_key": "5e" * 32, "shuffler_key": "5f" * 32},
}


def coins_sigma(batch: int, *, clip: float = 1.5, levels: int = 6, coins: int = 25) -> float:
    """2L/g · √(K b)/2 / K: the standard deviation of a silo's own coins in its mean."""
    return 2 * clip / levels * math.sqrt(batch * coins) / 2 / batch


def shuffled_silo(place: int, **changes: Any) -> dict[str, Any]:
    """Return a silo of the document as one that sends all its records through the shuffler."""
    own = DOCUMENT["silos"][place]
    promised = own["guarantees"][0]
    batch = changes.pop("batch", own["records"])
    return {
        **own,
        "weight": own["records"] / 100,
        "guarantees": [promised | {"against": "server"}, promised | {"epsilon": 3.0 + place}],
        "stages": [{"batch": batch, "sigma": coins_sigma(batch)}],
        "key": f"a{place}" * 32,
        **changes,
    }


SHUFFLED: Edits = {
    "stages": [
        GRADIENT
        | {"sampling": {"name": "full"}, "channel": SHUFFLER, "participation": {"silos": 2, "probability": None}}
    ],
    "silos": [shuffled_silo(0), shuffled_silo(1)],
}
SURVEYED_AND_SHUFFLED: Edits = {
    "stages": [CURVATURE, *SHUFFLED["stages"]],
    "silos": [
        silo | {"stages": [{"batch": silo["records"], "sigma": 1.0}, *silo["stages"]]} for silo in SHUFFLED["silos"]
    ],
}

PRECONDITIONED: Edits = FULL | {
    "training.algorithm": {"name": "preconditioned", "momentum": 0.5},
    "stages": [
        CURVATURE | {"query": {"name": "feature-moments"}, "rounds": 2},
        CURVATURE | {"query": {"name": "preconditioned-gradient"}, "rounds": 12},
    ],
    "silos.0.stages": [{"batch": 40, "sigma": 1.0}, {"batch": 40, "sigma": 1.0}],
    "silos.1.stages": [{"batch": 60, "sigma": 1.0}, {"batch": 60, "sigma": 1.0}],
}

RANK_ONE: Edits = PRECONDITIONED | {
    "training.algorithm": {"name": "preconditioned", "momentum": 0.5, "axes": "rank-one"},
    "stages": [
        CURVATURE | {"query": {"name": "feature-means"}, "rounds": 2},
        CURVATURE | {"query": {"name": "preconditioned-gradient", "axes": "rank-one"}, "rounds": 12},
    ],
}

_GAPS: dict[str, Any] = {"missing_tokens": ["NA", "-9"], "indicator": True}
COLUMNS: Edits = {
    "data.columns": {
        "age": numeric(0.0, 9.0, missing=5.0, **_GAPS),
        "town": categorical("a", "b", "c", center=0.25, scale=0.5, synonyms={"a": ["A", "aa"]}, other="c", **_GAPS),
        "smoker": {"type": "boolean", "center": 0.5, "scale": 1.0, "missing": True, **_GAPS},
        "ward": {"type": "code", "codes": [1, 2, 9], "center": 0.5, "scale": 1.0, "missing": None, "other": 9, **_GAPS},
        "seen": {
            **{"type": "date", "lower": "2020-01-01", "upper": "2024-12-31", "counted_in": "day"},
            **{"origin": "1970-01-01", "format": "%d.%m.%Y", "center": "2022-01-01", "scale": 500.0},
            **{"missing": "2022-01-01", **_GAPS},
        },
        "words": {"type": "text", "words": 4, "ngrams": 2, "scale": 0.5, **_GAPS},
        "image": {
            **{"type": "vector", "length": 3, "norm": 2.0, "extractor": "scattering"},
            **{"digest": "0123456789abcdef" * 4, "scale": 1.0, **_GAPS},
        },
        "number": {"type": "identifier"},
        "note": {"type": "ignore"},
        "cost": {"type": "numeric", "lower": -1.0, "upper": 1.0, "center": None, "scale": None, "missing": None},
    }
}
MAPPED: Edits = {
    "data.maps": [
        {"type": "spline", "columns": ["age"], "knots": [30.0, 60.0], "degree": 2},
        {"type": "cyclic", "columns": ["age"], "period": 10.0, "harmonics": 2, "keep": True},
        {"type": "interaction", "columns": ["age", "town"]},
        {"type": "fourier", "columns": ["age", "town"], "features": 4, "scale": 0.5, "seed": 7},
    ]
}

SURVEYED_CURVES: Edits = MEANS_ONLY | {
    "data.maps": [{"type": "spline", "columns": ["age"], "knots": 5, "degree": 1, "surveyed": True}],
    "stages": [CURVATURE | {"query": {"name": "column-distributions", "bins": 8}}],
}

KINDS: dict[str, Edits] = {
    "plain": {},
    "columns of every type": COLUMNS,
    "mapped": MAPPED,
    "with surveyed curves": SURVEYED_CURVES,
    "full": FULL,
    "poisson": POISSON,
    "one-pass": ONE_PASS,
    "correlated": CORRELATED,
    "surveyed": SURVEY,
    "surveyed for means": SURVEY_OF_MEANS,
    "means only": MEANS_ONLY,
    "counted": COUNTED,
    "counted, and nothing trained": COUNTED | {"training": LEFT_OUT},
    "counted, and nothing predicted": COUNTED | {"training": LEFT_OUT, "data.target": LEFT_OUT},
    "curve of survival": CURVED,
    "evaluated": EVALUATED,
    "evaluated, and nothing trained": EVALUATED_ONLY,
    "compared": COMPARED,
    "second moments only": SECOND_MOMENTS_ONLY,
    "accelerated": ACCELERATED,
    "restarted": RESTARTED,
    "preconditioned": PRECONDITIONED,
    "rank-one": RANK_ONE,
    "localized": LOCALIZED,
    "shuffled": SHUFFLED,
    "surveyed and shuffled": SURVEYED_AND_SHUFFLED,
}
"""Edits that make the document one of each kind."""


def edited(edits: Edits, document: dict[str, Any] = DOCUMENT) -> dict[str, Any]:
    """Return a copy of the document with the values at the given dotted paths replaced, one after the other."""
    changed = copy.deepcopy(document)
    for path, value in edits.items():
        *steps, last = path.split(".")
        place: Any = changed
        for step in steps:
            place = place[int(step) if isinstance(place, list) else step]
        if value is LEFT_OUT:
            del place[last]
        else:
            place[int(last) if isinstance(place, list) else last] = copy.deepcopy(value)
    return changed


def parse(content: dict[str, Any] | bytes) -> Plan:
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    return Plan.parse(raw, error=PlanError)


def plan_of(*edits: Edits) -> Plan:
    """Return the plan of the document with all these edits."""
    return parse(edited({path: value for more in edits for path, value in more.items()}))


def refusal(content: dict[str, Any] | bytes) -> str:
    """Return the one sentence with which the plan is refused."""
    with pytest.raises(PlanError) as caught:
        parse(content)
    sentence = str(caught.value)
    assert sentence.startswith("This is not a valid Plan: ")
    assert sentence.endswith(".")
    assert "\n" not in sentence
    assert "http" not in sentence
    assert "input_value" not in sentence
    return sentence


def leaves(value: Any, path: str = "") -> Iterator[str]:
    """Name every value that is no object and no list, by its dotted path."""
    if isinstance(value, dict | list):
        for step, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, f"{path}.{step}" if path else str(step))
    else:
        yield path


def at(document: Any, path: str) -> Any:
    """Return the value at a dotted path."""
    for step in path.split("."):
        document = document[int(step) if isinstance(document, list) else step]
    return document
