"""How long a group may act without hearing from ZooKeeper.

The server expires a session `timeout` after it last heard from the client, which is not before the
client *sent* the last request that was answered. Acting for 2/3 of the timeout after that moment is
therefore safe by a third of it, whatever the network does. Counting from the moment at which the
client noticed the broken connection is not: a black-holed client may notice after half the timeout.
"""

from __future__ import annotations

SAFE_PART = 2 / 3
"""Part of the session timeout for which an unconfirmed session still counts as held."""


def pause_delay_s(now_s: float, confirmed_s: float, session_timeout_s: float) -> float:
    """Seconds from now until the group must pause; 0 when it is due already.

    Args:
        now_s: monotonic time.
        confirmed_s: monotonic time at which the last answered request was sent.
        session_timeout_s: as negotiated with the server.
    """
    return max(0.0, confirmed_s + session_timeout_s * SAFE_PART - now_s)


def permitted(now_s: float, confirmed_s: float, session_timeout_s: float) -> bool:
    """Whether what this group does now cannot be a zombie's doing. Arguments as above."""
    return now_s < confirmed_s + session_timeout_s * SAFE_PART
