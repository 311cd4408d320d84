"""The silo's side of Flower's Fleet API, in one process that runs no app.

Flower's own node, a SuperNode, looks for messages every three seconds, and starts a process for each, in which it runs
whatever app its SuperLink sends; neither can be set. This node takes its place, by Flower's own client of that API,
and answers messages by the installed functions of `apps`. The app that the SuperLink offers is never fetched.
"""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, cast

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from flwr.app import Context, Message, RecordDict
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import (
    inflate_object_from_contents,
    pull_objects,
    push_object_contents_from_iterable,
)
from flwr.supercore.run import RunNotRunningException
from flwr.supernode.fleet_http_connection import http_request_response

from ringfence.deployment.flower.apps import client
from ringfence.errors import DeploymentError, visible

_PAUSE = 0.15, 1.0
"""Seconds between two looks for messages, at least and at most: longer, the longer none came. A look costs the
SuperLink about as much as any other of the 50 requests of a round with three silos."""

_log = logging.getLogger("Ringfence")


def serve(address: str, authority: str | None, key: EllipticCurvePrivateKey, config: dict[str, Any]) -> None:
    """Answer a SuperLink's messages until interrupted; `config` is what a SuperNode is given as `--node-config`."""
    with http_request_response(address, False, authority, (key, key.public_key())) as connection:
        node, receive, send, _, _, pull, push, confirm = connection
        heard = time.monotonic()
        while True:
            received = None
            with suppress(RunNotRunningException):  # it ended just now
                received = receive()
            if received is not None:
                heard = time.monotonic()
                try:
                    message = _message(*received, pull, confirm)
                    _send(client(message, Context(message.metadata.run_id, node, config, RecordDict(), {})), send, push)
                except Exception as problem:  # whatever the SuperLink sent: the next message may be ours
                    _log.warning("a message was left unanswered: %s: %s", type(problem).__name__, visible(str(problem)))
            shortest, longest = _PAUSE
            time.sleep(min(max((time.monotonic() - heard) / 10, shortest), longest))
    raise DeploymentError("Flower's SuperLink ended the connection; see the lines above.")


def _message(head: Message, tree: Any, pull: Callable[..., bytes], confirm: Callable[..., None]) -> Message:
    """Return Flower's message with its content, which is fetched in parts."""
    run = head.metadata.run_id
    parts = pull_objects([part.object_id for part in iterate_object_tree(tree)], partial(pull, run))
    confirm(run, head.metadata.message_id)
    message: Any = inflate_object_from_contents(tree.object_id, parts)
    message.metadata.__dict__["_message_id"] = tree.object_id  # which its own content does not hold
    return cast(Message, message)


def _send(reply: Message, send: Callable[..., tuple[set[str], str]], push: Callable[..., None]) -> None:
    """Send a reply to Flower's SuperLink, and the parts of its content that it lacks."""
    reply.metadata.__dict__["_message_id"] = reply.object_id
    with no_object_id_recompute():
        wanted, session = send(reply, get_object_tree(reply), 0.0)
        parts = [(name, part.deflate()) for name, part in get_all_nested_objects(reply).items() if name in wanted]
        push_object_contents_from_iterable(parts, partial(push, reply.metadata.run_id, session))
