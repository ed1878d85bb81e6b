"""Messages from other threads to a task: posted to its mailbox, read at the start of a step."""

from __future__ import annotations

from concurrent.futures import Future

import msgspec

from onyx.base.runs import Numbers
from onyx.ids import AllocationVersion
from onyx.ledger.returns import Trees
from onyx.transport.lookups import Found, LookUp
from onyx.transport.state_queries import StateAnswer, StateQuery


class Rewire(msgspec.Struct, frozen=True):
    """The job's allocation has a new version."""

    version: AllocationVersion


class Ready(msgspec.Struct, frozen=True):
    """All peers of the job are ready for this version."""

    version: AllocationVersion


class Seal(msgspec.Struct, frozen=True):
    """This peer was elected to seal the output task."""


class Stop(msgspec.Struct, frozen=True):
    """Leave the task."""

    reason: str


class Completions(msgspec.Struct, frozen=True):
    """Trees of this input peer that are complete (`retries_max` 0), or that a flow condition asks
    to be read again, at most so many times."""

    version: AllocationVersion
    roots: Numbers
    retries_max: int


class Returns(msgspec.Struct, frozen=True):
    """What functions give back for trees of this input peer, before their completions."""

    version: AllocationVersion
    trees: Trees


class Query(msgspec.Struct, frozen=True):
    """A client asks for the state of a window and waits for the answer."""

    query: StateQuery
    answer: Future[StateAnswer]


Message = Rewire | Ready | Seal | Stop | Completions | Returns | Query | LookUp | Found
