"""The socket on which requests over HTTP are taken."""

from __future__ import annotations

import socket

from onyx.errors import Unavailable

BACKLOG = 1_024
"""Connections that the system holds until they are accepted."""
OF_WORKERS = "http.bind_host and http.port"
"""The settings that have it for workers, and for their supervisor."""


def listener_at(host: str, port: int, settings: str) -> socket.socket:
    """Listen. Several processes may accept from the same socket.

    Args:
        settings: where host and port stand, for messages.

    Raises:
        Unavailable: the port is taken.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise Unavailable(
            f"cannot listen on {host}:{port} ({settings}): {error}; choose a "
            "free port, or 0 to be given one"
        ) from error
