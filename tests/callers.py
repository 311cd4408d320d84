"""A caller who sends what it likes to a service of this machine."""

import http.client
import socket


class Caller:
    """Sends requests to a port, with the token or without."""

    def __init__(self, port: int, token: str, path: str = "/") -> None:
        self.port, self.token, self.path = port, token, path

    def send(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, bytes, dict[str, str]]:
        """Send a request; keywords change a header, or with "" leave it out."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"Authorization": f"Bearer {self.token}", **headers}
        try:
            connection.request(method, path, body, {name: value for name, value in headers.items() if value})
            reply = connection.getresponse()
            return reply.status, reply.read(), dict(reply.getheaders())
        finally:
            connection.close()

    def post(self, body: bytes, **headers: str) -> tuple[int, bytes]:
        return self.send("POST", self.path, body, **headers)[:2]

    def raw(self, content: bytes, *, finish: bool = False) -> bytes:
        """Send bytes as they are, and return all that comes back until the service closes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:
            connection.sendall(content)
            if finish:
                connection.shutdown(socket.SHUT_WR)
            reply = b""
            while chunk := connection.recv(65536):
                reply += chunk
            return reply

    def head(self, *lines: str) -> bytes:
        first = [f"POST {self.path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {self.token}", *lines]
        return "\r\n".join([*first, "", ""]).encode()


TOKENS = ["", "Bearer", "Bearer ", "Bearer wrong", "Basic {}", "bearer {}", "Bearer {}x", "{}", "Bearer ä"]
"""Headers that show no token; {} stands for the right one."""
