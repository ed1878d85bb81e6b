"""A TCP proxy in front of ZooKeeper that loses the reply to a chosen request.

The request reaches the server and is performed; then the connection is cut. That is the fault that
decides whether an append has effect once.
"""

from __future__ import annotations

import contextlib
import socket
import threading

_BUFFER_BYTES = 65_536


class ReplyLossProxy:
    """Forwards connections to a port of this machine; also a context manager."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._lock = threading.Lock()
        self._marker: bytes | None = None
        self._remaining = 0
        self.replies_lost = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_replies_to(self, marker: bytes, times: int = 1) -> None:
        """Lose what the server answers from the next `times` requests on that hold `marker`."""
        with self._lock:
            self._marker, self._remaining = marker, times

    def __enter__(self) -> ReplyLossProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                losing = threading.Event()
                for pump in (self._forward_requests, self._forward_replies):
                    threading.Thread(
                        target=pump, args=(client, server, losing), daemon=True
                    ).start()

    def _forward_requests(
        self, client: socket.socket, server: socket.socket, losing: threading.Event
    ) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(_BUFFER_BYTES):
                if self._is_chosen(data):
                    losing.set()
                server.sendall(data)
        _cut(client, server)

    def _forward_replies(
        self, client: socket.socket, server: socket.socket, losing: threading.Event
    ) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(_BUFFER_BYTES):
                if losing.is_set():
                    self.replies_lost += 1
                    break
                client.sendall(data)
        _cut(client, server)

    def _is_chosen(self, data: bytes) -> bool:
        with self._lock:
            if self._marker is None or self._remaining == 0 or self._marker not in data:
                return False
            self._remaining -= 1
            return True


def _cut(*sockets: socket.socket) -> None:
    for each in sockets:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()
