"""What a live source is: something that gives segments once, such as a queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

from onyx.plugins.protocol import PluginContext

if TYPE_CHECKING:
    import pyarrow as pa

    from onyx.flow.batch import Segments
    from onyx.flow.segment import Segment


class Portion(msgspec.Struct, frozen=True):
    """What a source gives at a time: messages, of which each is some segments, mostly one."""

    segments: list[Segment] | pa.RecordBatch | Sequence[Segments]
    """All of them in order: dicts, or columns, or runs of either as the engine has them."""
    handles: Sequence[Any] = ()
    """For each message what the source knows it by (`LiveSource.ack`); empty without acks."""
    ids: Sequence[str] = ()
    """For each message an id that is the same whenever it is given again; empty without ids."""
    counts: Sequence[int] | None = None
    """Segments of each message; None: one each."""
    cursor: Any = None
    """JSON value from which the source goes on behind all of this; None without one."""
    deliveries: Sequence[int] = ()
    """How often each message has been given, this time too; empty: nobody counts."""
    refused: Mapping[int, str] = msgspec.field(default_factory=dict)
    """Messages that are no segments, by their numbers in the portion, and why: with `onFailure:
    source` they have failed for good."""


@runtime_checkable
class MeasuredSource(Protocol):
    """What a source has in addition if it knows how much it holds."""

    @property
    def pending(self) -> int | None:
        """Messages that were not given yet, about; None: not known. Asked from any thread at any
        time, so it says what was learned last and asks nobody."""
        ...


def pending_of(source: object) -> int | None:
    """Messages that a source says to have; None: it does not say."""
    return source.pending if isinstance(source, MeasuredSource) else None


@runtime_checkable
class LiveSource(Protocol):
    """One partition of a source, open. One thread at a time calls it.

    Errors say what Onyx does: Unavailable is tried again later, any other one ends the job. What
    has a body here may be left out by a class that has this one as its base.
    """

    @property
    def lease_s(self) -> float | None:
        """With `mode: native`: seconds after which the source gives a message again of which it
        has heard nothing (`working`). None: it waits. Asked after each call of `receive`."""
        return None

    def receive(self, wait_s: float) -> Portion | None:
        """What has come; waits for it so long. None: nothing has. With 0 it does not wait."""
        ...

    def ack(self, handles: Sequence[Any]) -> None:
        """These messages are safe: the source may forget them. After Unavailable the same handles
        come again."""
        ...

    def fail(self, handles: Sequence[Any], after_s: float) -> None:
        """These messages were given in vain: give them again, to whoever asks next, but not before
        so many seconds. 0: the owner leaves; otherwise their processing has failed, and may
        succeed the next time (`onFailure: source`)."""
        ...

    def term(self, handles: Sequence[Any], reasons: Sequence[str]) -> None:
        """These messages have failed for good, each with why (`onFailure: source`): never give them
        again. A source that has dead letters puts them there."""
        raise TypeError(f"{type(self).__name__} has no method term(handles, reasons)")

    def working(self, handles: Sequence[Any]) -> None:
        """These messages are still worked on: do not give them to anybody else. Called on another
        thread than the other methods, but never at once with one of them."""
        return

    def exhausted(self) -> bool:
        """Whether everything was given and nothing will ever follow."""
        ...

    def close(self) -> None:
        """Leave the source. What was not acked it gives again."""
        ...


OpenSource = Callable[[PluginContext, int, Any], LiveSource]
"""Opens a partition by its number, behind the last cursor that the journal holds (None: from the
beginning, or it has none). May block, and raises like `LiveSource.receive`."""
