"""Looks whether something listens at a port, and whether it is a ZooKeeper that serves."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl

_DATA_SIZE = re.compile(rb"zk_approximate_data_size\t(\d+)")


def is_serving(
    host: str, port: int, timeout_s: float = 1.0, tls: ssl.SSLContext | None = None
) -> bool:
    """Whether a ZooKeeper at this address serves clients (`ruok` also answers when it does not)."""
    return b"Mode:" in _asked(b"srvr", host, port, timeout_s, tls)


def data_bytes(
    host: str, port: int, timeout_s: float = 1.0, tls: ssl.SSLContext | None = None
) -> int | None:
    """How much data a ZooKeeper keeps, about; None when it does not say."""
    found = _DATA_SIZE.search(_asked(b"mntr", host, port, timeout_s, tls))
    return int(found[1]) if found else None


def _asked(
    word: bytes, host: str, port: int, timeout_s: float, tls: ssl.SSLContext | None
) -> bytes:
    """The answer to a four-letter command; empty when there is none."""
    answer = b""
    try:
        with contextlib.ExitStack() as stack:
            connection = stack.enter_context(socket.create_connection((host, port), timeout_s))
            if tls is not None:
                connection = stack.enter_context(tls.wrap_socket(connection))
            connection.sendall(word)
            while piece := connection.recv(4096):
                answer += piece
    except OSError:
        return b""
    return answer


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
