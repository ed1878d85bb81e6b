"""What a live source is: something that gives segments once, such as a queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

from onyx.plugins.protocol import PluginContext

if TYPE_CHECKING:
    import pyarrow as pa

    from onyx.flow.formats import Segments
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


@runtime_checkable
class LiveSource(Protocol):
    """One partition of a source, open. One thread at a time calls it.

    Errors say what Onyx does: Unavailable is tried again later, any other one ends the job.
    """

    def receive(self, wait_s: float) -> Portion | None:
        """What has come; waits for it so long. None: nothing has. With 0 it does not wait."""
        ...

    def ack(self, handles: Sequence[Any]) -> None:
        """These messages are safe: the source may forget them. After Unavailable the same handles
        come again."""
        ...

    def fail(self, handles: Sequence[Any]) -> None:
        """These messages were given in vain: give them again, to whoever asks next."""
        ...

    def exhausted(self) -> bool:
        """Whether everything was given and nothing will ever follow."""
        ...

    def close(self) -> None:
        """Leave the source. What was not acked it gives again."""
        ...


OpenSource = Callable[[PluginContext, int, Any], LiveSource]
"""Opens a partition by its number, behind the last cursor that the journal holds (None: from the
beginning, or it has none). May block, and raises like `LiveSource.receive`."""
