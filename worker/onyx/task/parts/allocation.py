"""What belongs to one allocation version."""

from __future__ import annotations

import msgspec
from msgspec import field

from onyx.base.runs import Numbers
from onyx.flow.groups.checks import GroupChecks
from onyx.ledger.returns import Trees
from onyx.program.answering import NOBODY, Answering
from onyx.task.acking.owners import Owners
from onyx.task.acking.sender import AckSender
from onyx.task.channels.edges import Edges
from onyx.task.channels.event_time import EventTime
from onyx.task.channels.lookups import Lookups
from onyx.task.channels.outbox import Outbox
from onyx.task.channels.wiring import Site, Wiring
from onyx.task.delivery.end_of_input import EndOfInput
from onyx.task.sink.exactly_once import Committing
from onyx.task.source.batch_timeout import Filling
from onyx.task.state.keeper import StateKeeper
from onyx.transport.interface import Inbox


class Allocation(msgspec.Struct):
    """What belongs to one allocation version. Nothing of it outlives the version: what was in
    flight is replayed, and frames of an older version are refused."""

    wiring: Wiring
    outbox: Outbox
    acks: AckSender
    inbox: Inbox
    filling: Filling
    """The filling of batches from the inbox."""
    ends: EndOfInput
    group_checks: GroupChecks
    """What children cannot be sent."""
    edges: Edges | None = None
    """What has come to a processor."""
    event_time: EventTime | None = None
    """None where neither this task nor one downstream has windows that need it."""
    ready: bool = False
    """All peers of the job are ready for this version."""
    owners: Owners | None = None
    """The owners of partitions; known when the job is ready."""
    answering: Answering = NOBODY
    """Which trees are of requests; known when the job is ready."""
    exhaust_proposed: bool = False
    flush_again_s: float = 0.0
    """In a job with loops, when outputs are asked again to make durable what they hold."""
    flush_wanted: bool = False
    """The plugin of an output is to make durable what it holds."""
    committing: Committing | None = None
    """The commits of an exactly-once output."""
    keeper: StateKeeper | None = None
    """The state of a windowed task, once it is recovered."""
    lookups: Lookups | None = None
    """What is asked of another task for a batch."""
    retries: list[tuple[Site, Numbers, int]] = field(default_factory=list)
    """Retries to ask for, with how many there may be, that the transport has not taken yet."""
    reasons: list[tuple[Site, Trees]] = field(default_factory=list)
    """Why, for those of requests."""
