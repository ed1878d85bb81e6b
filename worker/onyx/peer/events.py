"""Events of a peer group: callbacks of the log, timers and proposals, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from onyx.ids import GroupId, PeerId, Position
from onyx.log.interface import Session
from onyx.replica.command import Command
from onyx.replica.entry import Entry
from onyx.replica.state import Replica


@dataclass(frozen=True, slots=True)
class EntryRead:
    """The next entry of the log."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class OriginRead:
    """The reader had fallen behind a garbage collection: this replica stands for what it missed."""

    position: Position
    replica: Replica


@dataclass(frozen=True, slots=True)
class PulseGone:
    """A watch or probe found that this group's pulse does not exist."""

    group: GroupId


@dataclass(frozen=True, slots=True)
class SessionChanged:
    """The ZooKeeper session was suspended, came back, or is lost."""

    session: Session


@dataclass(frozen=True, slots=True)
class PauseDue:
    """The timer asked for by `StartPauseTimer(suspension)` has elapsed."""

    suspension: int


@dataclass(frozen=True, slots=True)
class BackOffElapsed:
    """The wait asked for by `StartBackOff` is over."""


@dataclass(frozen=True, slots=True)
class AddPeers:
    """This process offers virtual peers."""

    peers: tuple[PeerId, ...]
    """New ids, never used before."""
    site: Mapping[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RemovePeer:
    """This process takes one of its virtual peers back."""

    peer: PeerId


@dataclass(frozen=True, slots=True)
class Propose:
    """A task of this group proposes an entry. Void when the peer no longer has the task."""

    peer: PeerId
    command: Command


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of this group to a question in the log. Void when it is no member."""

    command: Command


@dataclass(frozen=True, slots=True)
class Report:
    """Entries on behalf of the process before this one, which died (`peer/loss_reports`)."""

    commands: tuple[Command, ...]


@dataclass(frozen=True, slots=True)
class Leave:
    """The process has been asked to end (SIGTERM)."""


Event = (
    EntryRead
    | OriginRead
    | PulseGone
    | SessionChanged
    | PauseDue
    | BackOffElapsed
    | AddPeers
    | RemovePeer
    | Propose
    | Answer
    | Report
    | Leave
)
