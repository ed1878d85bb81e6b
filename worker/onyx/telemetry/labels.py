"""Labels of metrics whose values are a closed set."""

from __future__ import annotations

from enum import StrEnum

from onyx.reports.stalls import Reason


class Stage(StrEnum):
    """Part of the work on one batch."""

    READ = "read"
    APPLY = "apply"
    WRITE = "write"


class PeerState(StrEnum):
    """What a virtual peer of this process is doing."""

    IDLE = "idle"
    """It has no task."""
    WARMING = "warming"
    """It has a task and cannot receive yet in the newest allocation version."""
    ALLOCATED = "allocated"
    """It has a task and works on it."""
    LEAVING = "leaving"
    """Its process has been asked to end."""


class RequestTransport(StrEnum):
    """The way on which a client has sent a request."""

    GRPC = "grpc"
    HTTP = "http"


class Direction(StrEnum):
    """The direction of frames, as this process sees it."""

    IN = "in"
    OUT = "out"


class Refusal(StrEnum):
    """Why a call from another process was not let in."""

    BUSY = "busy"
    """Too many calls were in their handshake; a member dials again."""
    CERTIFICATE = "certificate"
    """Its certificate does not carry the name of the workers."""
    GARBAGE = "garbage"
    """Its first message was neither a hello nor a question about state."""
    GROUP = "group"
    """It asked for another group, or shares no job with this one."""
    PROTOCOL = "protocol"
    """It runs another version of Onyx."""
    SILENT = "silent"
    """Its hello did not come in time."""
    TENANCY = "tenancy"
    """It belongs to another cluster."""
    TOKEN = "token"  # noqa: S105 - a reason
    """It is a client's, whose token opens no state."""


class Served(StrEnum):
    """How requests over HTTP were answered."""

    TAKEN = "2xx"
    REFUSED = "4xx"
    """The client has to change something, or to come again when there is room (429)."""
    FAILED = "5xx"
    GONE = "gone"
    """The client has closed the connection before there was an answer."""

    @classmethod
    def of(cls, code: int) -> Served:
        """By the status of the answer; 0: there was none."""
        return {2: cls.TAKEN, 4: cls.REFUSED, 5: cls.FAILED}.get(code // 100, cls.GONE)


CLOSED_LABELS: dict[str, frozenset[str]] = {
    "stage": frozenset(Stage),
    "state": frozenset(PeerState),
    "direction": frozenset(Direction),
    "reason": frozenset(Refusal),
    "cause": frozenset(Reason),
    "code": frozenset(Served),
    "transport": frozenset(RequestTransport),
    "level": frozenset(("ack", "journal", "none")),
    "status": frozenset(
        (
            "processed", "failed", "journalled", "accepted", "conflict", "invalid", "unknown",
            "unauthenticated", "denied", "busy", "unavailable", "timed-out",
        )
    ),
}  # fmt: skip
"""Labels whose values are fixed here. `fn` is closed by the commands that a registry is given.
`level` and `status` are those of `requests.request`, which takes longer to import than a command
line may; a test compares them."""
