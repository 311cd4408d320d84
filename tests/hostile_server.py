"""What a hostile server would send to break a gate, for the tests of everything that has a door."""

import base64
import json

import numpy as np


def hostile_bodies() -> list[bytes]:
    """Return bodies that are no round's request, though some look like one."""
    name = b'{"kind":"request","plan":"' + b"0" * 64
    vector = b'"argument":"AAAAAAAAAAA="}'
    return [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"NaN",
        b"{",
        b"\xff\xfe",
        b"\x00" * 1000,
        b"[" * 100_000,
        b'{"a":' * 50_000,
        name + b'","round":NaN,' + vector,
        name + b'","round":-1,' + vector,
        name + b'","round":1e3,' + vector,
        name + b'","round":"1",' + vector,
        name + b'","round":1' + b"0" * 5000 + b"," + vector,
        name[:-1] + b'","round":0,' + vector,
        name + b'","round":0,"argument":"AAAA"}',
        name + b'","round":0,"argument":[0.0]}',
        name + b'","round":0,"argument":"AAAAAAAAAAA=","sigma":0}',
        b'{"kind":"update","plan":"' + b"0" * 64 + b'","round":0,' + vector,
    ]


def hostile_weights(dimension: int) -> dict[str, list[float]]:
    """Return weights that no gate may compute with, by what is wrong with them."""
    return {
        "not a number": [float("nan")] * dimension,
        "infinite": [float("inf")] + [0.0] * (dimension - 1),
        "as large as numbers get": [1e308] * dimension,
        "one short": [0.0] * (dimension - 1),
        "one too many": [0.0] * (dimension + 1),
        "far too many": [0.0] * 50_000,
    }


def forged_request(plan: str, round: int, weights: list[float]) -> bytes:
    """Return the bytes of a request for any numbers whatever, as a server that checks nothing would send it."""
    packed = base64.b64encode(np.array(weights, dtype="<f8").tobytes()).decode()
    return json.dumps({"kind": "request", "plan": plan, "round": round, "argument": packed}).encode()
