"""How long a group may act without hearing from ZooKeeper.

Invariant: a group acts only while its session cannot have expired. The server expires a session
`timeout` after it last heard from the client, which is not before the client *sent* the last
request that was answered. Acting for 2/3 of the timeout after that moment is therefore safe by a
third of it, whatever the network does.

Rejected: counting from the moment at which the client notices the broken connection. A client whose
packets are dropped may notice after half of the timeout.

The lease keeps an idle zombie quiet; it does not fence. A process that is frozen inside a step
wakes up after its lease: the fences hold then (see "Fencing" in docs/architecture.md).
"""

from __future__ import annotations

from typing import Protocol

from onyx.base.seams import Clock

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
    """Whether the session cannot have expired yet. Arguments as above."""
    return now_s < confirmed_s + session_timeout_s * SAFE_PART


class ConfirmedSession(Protocol):
    """The session whose age decides."""

    @property
    def session_timeout_s(self) -> float:
        """The time-out as negotiated with the server."""
        ...

    def confirmed_s(self) -> float:
        """Monotonic time at which the last answered request was sent."""
        ...


class Lease:
    """The lease of one incarnation. Any thread may ask; the group's thread and the log change it.

    It ends in two ways. Time runs out: `permitted` looks at the clock at each call, because no
    event comes to a process that is frozen. Or the group says so: `pause`, which `resume` takes
    back, and `end`, which nothing takes back.
    """

    def __init__(self, clock: Clock, session: ConfirmedSession) -> None:
        self._clock = clock
        self._session = session
        self._paused = False
        self._ended = False

    def permitted(self) -> bool:
        """Whether this incarnation may act now. Each batch asks several times, so this does at once
        what `silent_s` does by way of others."""
        if self._paused or self._ended:
            return False
        # Who is frozen behind this line acts late all the same, however often the clock is read:
        # the fences hold then.
        now_s, session = self._clock.monotonic_s(), self._session
        return permitted(now_s, session.confirmed_s(), session.session_timeout_s)

    def silent_s(self) -> float | None:
        """Seconds for which ZooKeeper has not answered, once time has run out; else None."""
        now_s, heard_s = self._clock.monotonic_s(), self._session.confirmed_s()
        held = permitted(now_s, heard_s, self._session.session_timeout_s)
        return None if held else now_s - heard_s

    def remaining_s(self) -> float:
        """Seconds until time runs out; 0 when it has."""
        return pause_delay_s(
            self._clock.monotonic_s(), self._session.confirmed_s(), self._session.session_timeout_s
        )

    def pause(self) -> None:
        """Permit nothing until `resume`."""
        self._paused = True

    def resume(self) -> None:
        """The session has survived a pause."""
        self._paused = False

    def end(self) -> None:
        """The incarnation is over: permit nothing any more."""
        self._ended = True
