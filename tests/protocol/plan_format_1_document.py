"""A plan of format 1, as version 0.1.0 wrote them, that uses every field, and edits of it."""

from typing import Any

from tests.protocol import plan_document
from tests.protocol.plan_document import Edits

DOCUMENT: dict[str, Any] = {
    "format": 1,
    "run": "trial-1",
    "data": {
        "columns": {
            "age": {"type": "numeric", "lower": 0.0, "upper": 100.0, "center": 40.0, "scale": 20.0, "missing": 50.0},
            "town": {
                "type": "categorical",
                "categories": ["a", "b", "c"],
                "ordered": False,
                "center": 0.25,
                "scale": 0.5,
                "missing": "b",
            },
            "note": {"type": "ignore"},
            "cost": {"type": "numeric", "lower": -1.0, "upper": 1.0, "center": None, "scale": None, "missing": None},
        },
        "target": "cost",
        "intercept": 1.0,
        "radius": 2.0,
    },
    "loss": {"name": "huber", "threshold": 0.5},
    "clip": 1.5,
    "domain": {"name": "box", "lower": -3.0, "upper": 4.0},
    "sampling": "fixed",
    "rounds": 20,
    "algorithm": {"name": "minibatch-sgd", "step": 0.1, "momentum": 0.5, "skip": 3, "growth": 1.25},
    "correlation": 0.0,
    "survey": None,
    "ridge": 0.01,
    "participation": {"silos": 1, "probability": None},
    "adjacency": "replace-one",
    "trust": "nobody",
    "shuffle": None,
    "silos": [
        {
            "name": "north",
            "records": 40,
            "batch": 10,
            "sigma": 0.7,
            "epsilon": 1.0,
            "delta": 1e-6,
            "weight": 0.5,
            "survey_sigma": None,
            "alone_epsilon": None,
            "key": None,
        },
        {
            "name": "süd",
            "records": 60,
            "batch": 15,
            "sigma": 0.6,
            "epsilon": 2.0,
            "delta": 1e-7,
            "weight": 0.5,
            "survey_sigma": None,
            "alone_epsilon": None,
            "key": None,
        },
    ],
}

SURVEY: Edits = {"survey": {"statistic": "curvature", "margin": 2.0}} | {
    f"silos.{i}.survey_sigma": 1.0 for i in range(2)
}
ONE_PASS: Edits = {"sampling": "one-pass", "rounds": 4}
PHASED: Edits = {"sampling": "phased", "rounds": 5, "silos.0.batch": 20, "silos.1.batch": 30}
LOCALIZED: Edits = PHASED | {
    "algorithm": {
        "name": "localized",
        "smoothness": 5.0,
        "phases": [{"rounds": 3, "penalty": 0.1}, {"rounds": 2, "penalty": 0.8}],
        "average": "weighted",
    }
}
ACCELERATED: Edits = {
    "algorithm": {"name": "accelerated", "smoothness": 5.0, "pace": 1.0, "penalty": 0.1, "average": "weighted"}
}
STAGES: Edits = {
    "algorithm": {
        "name": "multi-stage",
        "smoothness": 5.0,
        "stages": [{"rounds": 12, "pace": 10.0}, {"rounds": 8, "pace": 20.0}],
        "penalty": 0.1,
        "average": "weighted",
    }
}
SHUFFLED: Edits = {
    "sampling": "full",
    "participation.silos": 2,
    "trust": "shuffler",
    "shuffle": {
        "levels": 6,
        "coins": 25,
        "quorum": 2,
        "slack": 1e-9,
        "shares": 100,
        "block": 8,
        "width": 2,
        "server_key": "5e" * 32,
        "shuffler_key": "5f" * 32,
    },
    # 2L/g · √(K b)/2 / K
    "silos.0": DOCUMENT["silos"][0]
    | {"batch": 40, "sigma": 0.25 * (25 / 40) ** 0.5, "weight": 0.4, "alone_epsilon": 3.0, "key": "a0" * 32},
    "silos.1": DOCUMENT["silos"][1]
    | {"batch": 60, "sigma": 0.25 * (25 / 60) ** 0.5, "weight": 0.6, "alone_epsilon": 4.0, "key": "a1" * 32},
}
"""Edits that make the document one of each other kind."""


def edited(edits: Edits) -> dict[str, Any]:
    """Return a copy of the document with the values at the given dotted paths replaced."""
    return plan_document.edited(edits, DOCUMENT)
