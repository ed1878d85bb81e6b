"""A server that says the same bytes to each request."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

BODY = b"{}"
"""What ends a request."""


@contextlib.contextmanager
def server(said: bytes, closes: bool = False) -> Iterator[int]:
    """Says this to each request. The client closes: else the next request might be reset."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection, contextlib.suppress(OSError):  # a client has heard enough
                    asked = b""
                    while received := connection.recv(65_536):
                        asked += received
                        if asked.endswith(BODY):
                            asked = b""
                            connection.sendall(said)
                            if closes:
                                break

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()
