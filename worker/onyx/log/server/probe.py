"""Looks whether something listens at a port, and whether it is a ZooKeeper that serves."""

from __future__ import annotations

import contextlib
import socket
import ssl


def is_serving(
    host: str, port: int, timeout_s: float = 1.0, tls: ssl.SSLContext | None = None
) -> bool:
    """Whether a ZooKeeper at this address serves clients (`ruok` also answers when it does not)."""
    try:
        with contextlib.ExitStack() as stack:
            connection = stack.enter_context(socket.create_connection((host, port), timeout_s))
            if tls is not None:
                connection = stack.enter_context(tls.wrap_socket(connection))
            connection.sendall(b"srvr")
            answer = b""
            while piece := connection.recv(4096):
                answer += piece
    except OSError:
        return False
    return b"Mode:" in answer


def is_listening(host: str, port: int) -> bool:
    """Whether somebody takes connections there."""
    try:
        socket.create_connection((host, port), timeout=1.0).close()
    except OSError:
        return False
    return True


def free_port(host: str) -> int:
    """A port that nobody has now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port
