"""Events of a peer group: callbacks of the log, timers and proposals, as data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from onyx.ids import GroupId, PeerId, Position
from onyx.log.interface import Session
from onyx.replica.command import Command
from onyx.replica.entry import Entry
from onyx.replica.state import Replica


class EntryRead(msgspec.Struct, frozen=True):
    """The next entry of the log."""

    entry: Entry


class OriginRead(msgspec.Struct, frozen=True):
    """The reader had fallen behind a garbage collection: this replica stands for what it missed."""

    position: Position
    replica: Replica


class PulseGone(msgspec.Struct, frozen=True):
    """A watch or probe found that this group's pulse does not exist."""

    group: GroupId


class SessionChanged(msgspec.Struct, frozen=True):
    """The ZooKeeper session was suspended, came back, or is lost."""

    session: Session


class PauseDue(msgspec.Struct, frozen=True):
    """The timer asked for by `StartPauseTimer(suspension)` has elapsed."""

    suspension: int


class BackOffElapsed(msgspec.Struct, frozen=True):
    """The wait asked for by `StartBackOff` is over."""


class AddPeers(msgspec.Struct, frozen=True):
    """This process offers virtual peers."""

    peers: tuple[PeerId, ...]
    """New ids, never used before."""
    site: Mapping[str, Any] = msgspec.field(default_factory=dict)
    tags: tuple[str, ...] = ()


class RemovePeer(msgspec.Struct, frozen=True):
    """This process takes one of its virtual peers back."""

    peer: PeerId


class Propose(msgspec.Struct, frozen=True):
    """A task of this group proposes an entry. Void when the peer no longer has the task."""

    peer: PeerId
    command: Command


class Answer(msgspec.Struct, frozen=True):
    """The answer of this group to a question in the log. Void when it is no member."""

    command: Command


class Report(msgspec.Struct, frozen=True):
    """Entries on behalf of the process before this one, which died (`peer/loss_reports`)."""

    commands: tuple[Command, ...]


class Leave(msgspec.Struct, frozen=True):
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
