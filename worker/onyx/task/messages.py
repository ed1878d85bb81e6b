"""Messages from other threads to a task: posted to its mailbox, read at the start of a step."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass

from onyx.ids import AllocationVersion
from onyx.ledger.returns import Trees
from onyx.runs import Numbers
from onyx.transport.lookups import Found, LookUp
from onyx.transport.state_queries import StateAnswer, StateQuery


@dataclass(frozen=True, slots=True)
class Rewire:
    """The job's allocation has a new version."""

    version: AllocationVersion


@dataclass(frozen=True, slots=True)
class Ready:
    """All peers of the job are ready for this version."""

    version: AllocationVersion


@dataclass(frozen=True, slots=True)
class Seal:
    """This peer was elected to seal the output task."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Leave the task."""

    reason: str


@dataclass(frozen=True, slots=True)
class Completions:
    """Trees of this input peer that are complete (`retries_max` 0), or that a flow condition asks
    to be read again, at most so many times."""

    version: AllocationVersion
    roots: Numbers
    retries_max: int


@dataclass(frozen=True, slots=True)
class Returns:
    """What functions give back for trees of this input peer, before their completions."""

    version: AllocationVersion
    trees: Trees


@dataclass(frozen=True, slots=True)
class Query:
    """A client asks for the state of a window and waits for the answer."""

    query: StateQuery
    answer: Future[StateAnswer]


Message = Rewire | Ready | Seal | Stop | Completions | Returns | Query | LookUp | Found
