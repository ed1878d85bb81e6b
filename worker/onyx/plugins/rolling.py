"""Base of outputs that gather segments into units and publish each unit whole.

A unit is a part (`parts.writer`) or a transaction (`transactions`). What both need is the same:
limits after which a unit ends, one commit a unit under exactly-once, a fence that waits until this
incarnation may act, and an end after the first failure.

Invariants, which the subclasses rely on:

* Units are committed and published in the order of writing, so `durable()` is a prefix of it.
* A unit is committed at most once, under one token. A commit whose answer was lost is repeated with
  the same token, never with a new one: two tokens would publish the segments twice.
* Nothing is published and nobody is fenced off unless `context.permitted()` was true just before.
  An incarnation that may have been declared dead must not judge others, because its list of live
  incarnations may be older than theirs. The store's own fence covers the time after the check.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec

from onyx.errors import OnyxError, OutputFailed, StateError, Unavailable, UserError, describe
from onyx.ids import GroupId
from onyx.plugins.protocol import Commit, PluginContext, Token

TRANSACTION_BYTES_MAX = 16_777_216
"""The state log is written and read in pieces of this size."""


class RollLimits(msgspec.Struct, frozen=True):
    """A part or transaction ends when it reaches any of these."""

    size_bytes: int = 134_217_728
    segments: int = 1_000_000
    age_s: float = 20.0
    """Until then its segments are not acked, and no reader sees them. Nobody in the job waits for
    it: inputs that have little room left, and the end of a job, ask for a flush."""


ROLL_LIMITS = RollLimits()
"""The limits of outputs that name none."""


BUNDLE_LIMITS = RollLimits(age_s=5.0)
"""The limits of parts that a Spark stage in the middle of a job waits for."""


TRANSACTION_LIMITS = RollLimits(4_194_304, 10_000, 1.0)
"""The limits of outputs whose parts are transactions: these are in memory and, to be written
exactly once, in the state log."""


class RollOptions(Protocol):
    """Options of an output that rolls."""

    @property
    def roll_bytes(self) -> int:
        """Size in bytes."""

    @property
    def roll_segments(self) -> int:
        """Number of segments."""

    @property
    def roll_seconds(self) -> float:
        """Age in seconds."""


def roll_limits(options: RollOptions) -> RollLimits:
    """The limits that a job gives."""
    return RollLimits(options.roll_bytes, options.roll_segments, options.roll_seconds)


class Unit(Protocol):
    """Segments that are published together."""

    opened_s: float
    """Monotonic time of its first segment."""
    segments: int
    token: Token | None
    """Under which it is committed; None before the first attempt."""
    committed: bool
    """False with a token: the outcome of the commit is unknown."""

    @property
    def size_bytes(self) -> int:
        """Size until now, about."""

    def make_token(self) -> Token:
        """What any worker needs to publish it."""


class RollingWriter:
    """An output (`protocol.Output`, `protocol.TransactionalOutput`) but for its units."""

    cooperative = False
    """Publishing waits for a disk or a server."""

    def __init__(self, context: PluginContext, limits: RollLimits) -> None:
        self._context = context
        self._limits = limits
        self._flushing = False
        self._live: Sequence[GroupId] | None = None
        """All but these are to be fenced off as soon as this incarnation may act."""
        self._durable = 0
        self._broken: Exception | None = None
        self._commit: Commit | None = None

    def durable(self) -> int:
        """Segments in published units, in the order of writing."""
        return self._durable

    def flush(self) -> None:
        """Publish what there is now; while that is not permitted, as soon as it is."""
        self._flushing = True
        self.tick()

    def tick(self) -> None:
        """Publish what is due."""
        raise NotImplementedError

    def fence(self, live: Sequence[GroupId]) -> None:
        """Fence off all incarnations that are not `live`, now or as soon as that is permitted."""
        with self._guarded():
            self._live = live
            self._tend_fence()

    def _fence_off(self, live: Sequence[GroupId]) -> None:
        """Make it impossible for incarnations that are not `live` to publish what they staged."""
        raise NotImplementedError

    def _tend_fence(self) -> None:
        """Carry out a fence that was put off."""
        if self._live is not None and self._context.permitted():
            self._fence_off(self._live)
            self._live = None

    def _begin(self, commit: Commit) -> None:
        """A new allocation version. A fence that was put off is asked for again, with others."""
        self._flushing = False
        self._live = None
        self._commit = commit

    def _commit_once(self, unit: Unit) -> None:
        """Commit a unit under exactly-once; nothing if that is done."""
        if self._commit is None or unit.committed:
            return
        if unit.token is None:
            unit.token = unit.make_token()
        self._commit(unit.token, unit.segments)
        unit.committed = True

    def _is_due(self, unit: Unit | None) -> bool:
        limits = self._limits
        return unit is not None and (
            unit.segments >= limits.segments
            or unit.size_bytes >= limits.size_bytes
            or self._context.clock.monotonic_s() - unit.opened_s >= limits.age_s
        )

    @contextlib.contextmanager
    def _guarded(self, may_refuse: bool = False) -> Iterator[None]:
        """After a failure the writer stays broken, because the state of its unit is unknown.
        Unavailable is no failure: nothing is lost, and the call may be repeated.

        Args:
            may_refuse: a UserError is about the segments of this call, and none of them was taken.

        Raises:
            OutputFailed: instead of a UserError about what was taken before, or about the store.
        """
        if self._broken is not None:
            raise self._broken
        try:
            yield
        except Unavailable:
            raise
        except Exception as error:
            if may_refuse and isinstance(error, UserError) and not isinstance(error, OutputFailed):
                raise
            self._broken = self._failed(error)
            if self._broken is error:
                raise
            raise self._broken from error

    def _failed(self, error: Exception) -> Exception:
        if isinstance(error, OutputFailed | StateError):
            return error
        if isinstance(error, UserError):
            return OutputFailed(str(error))
        if isinstance(error, OnyxError):
            return error
        return OutputFailed(f"{self._context.where}: {describe(error)}")
