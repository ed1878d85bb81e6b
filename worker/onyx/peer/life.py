"""What the parts of one incarnation share: its process, its connections, its queue and its lease.

The parts are made from one `Life` each, so that none is given a row of things which the next one is
given as well. None of this outlives the incarnation, but the process.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from onyx.ids import GroupId, PeerId
from onyx.log.interface import GroupLog
from onyx.peer.background import Background
from onyx.peer.context import Context
from onyx.peer.event_queue import EventQueue
from onyx.peer.group_telemetry import GroupTelemetry
from onyx.peer.lease import Lease
from onyx.requests.mailboxes import MailboxRegistry
from onyx.transport.interface import Transport

EVENTS_MAX = 10_000
"""Events that wait for a group's thread, above which who brings them waits."""


class Life(msgspec.Struct, frozen=True):
    """One life of a group, as its parts see it."""

    context: Context
    """The process, which has other lives before and after."""
    log: GroupLog
    transport: Transport
    events: EventQueue
    """What happens, for the thread of the group."""
    lease: Lease
    """How long the parts may act without hearing from ZooKeeper."""
    background: Background
    """Runs what may block."""
    telemetry: GroupTelemetry
    mailboxes: MailboxRegistry
    """Where requests of clients are handed over to inputs."""
    replace_peer: Callable[[PeerId], None]
    """Gives up a virtual peer and offers a new one in its place."""

    @property
    def group(self) -> GroupId:
        """The id of the group in this life."""
        return self.log.group


def new_life(
    context: Context,
    log: GroupLog,
    transport: Transport,
    replace_peer: Callable[[PeerId], None],
) -> Life:
    """A life that begins; `log` and `transport` are of this incarnation alone."""
    return Life(
        context,
        log,
        transport,
        EventQueue(EVENTS_MAX),
        Lease(context.clock, log),
        Background(log.group),
        GroupTelemetry(log.group, context.metrics, context.recorder),
        MailboxRegistry(),
        replace_peer,
    )
