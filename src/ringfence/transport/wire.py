"""The local wire between `ringfence server run` and the relay inside the engine's server: frames on a Unix socket.

Both ends belong to the server's operator and run on one machine. A frame is a JSON head and a body of bytes.
"""

import json
import select
import socket
import struct
import threading
from typing import Any

_LENGTHS = struct.Struct("!IQ")
_HEAD_LIMIT, _BODY_LIMIT = 2**24, 2**27  # more than the names of a plan's silos, and more than any message, have


class Wire:
    """One end of the connection; a lost peer is a ConnectionError, and so is one that sends no frames."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sending = threading.Lock()

    def send(self, head: dict[str, Any], body: bytes = b"") -> None:
        """Send one frame; may be called from several threads."""
        encoded = json.dumps(head).encode()
        with self._sending:
            self._connection.sendall(_LENGTHS.pack(len(encoded), len(body)) + encoded + body)

    def receive(self, seconds: float) -> tuple[dict[str, Any], bytes] | None:
        """Return the next frame, or None if none begins to arrive within the seconds."""
        ready, _, _ = select.select([self._connection], [], [], max(0.0, seconds))
        if not ready:
            return None
        head, body = _LENGTHS.unpack(self._read(_LENGTHS.size))
        if head > _HEAD_LIMIT or body > _BODY_LIMIT:
            raise ConnectionError("the other end announces a frame that is longer than any of ours")
        try:
            content = json.loads(self._read(head))
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            raise ConnectionError("the other end sent something that is not a frame")
        return content, self._read(body)

    def lost(self) -> bool:
        """Whether the other end hung up, without taking anything from the wire."""
        try:
            return self._connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def _read(self, length: int) -> bytes:
        content = bytearray()
        while len(content) < length:
            piece = self._connection.recv(min(length - len(content), 2**20))
            if not piece:
                raise ConnectionError("the other end hung up")
            content += piece
        return bytes(content)
