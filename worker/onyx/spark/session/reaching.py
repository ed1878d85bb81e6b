"""Whether something answers where Spark should be, asked before Spark is: Spark itself waits for a
minute, and then says that something has been stopped."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from onyx.errors import Unavailable

ANSWER_TIMEOUT_S = 10.0
"""Longest wait for a port to answer."""


def require_one(what: str, places: Sequence[tuple[str, int]]) -> None:
    """That one of some places takes a connection.

    Args:
        what: should be there, for the message.

    Raises:
        Unavailable: none does.
    """
    said = []
    for host, port in places:
        try:
            socket.create_connection((host, port), ANSWER_TIMEOUT_S).close()
        except OSError as error:
            said.append(f"{host}:{port}: {error.strerror or error}")
        else:
            return
    raise Unavailable(
        f"no {what} answers at {', '.join(said)}; is it started, and may this worker reach it?"
    )
