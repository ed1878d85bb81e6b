"""What a task is whose work is an object.

A processor is made anew for each allocation version of its job, restored, and used by one thread at
a time. No method is called while another one is not done, but for those that
`completes_in_pages` names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, TypeVar

from onyx.functions.retry import Fail, Retry, asked_by
from onyx.processors.building import FlatMapper, Traverser
from onyx.processors.context import Context
from onyx.processors.inbox import Inbox
from onyx.processors.outbox import Outbox

T = TypeVar("T")


class Processor:
    """Base class. Override what is needed: at least `process_item`, or `process`.

    A method that returns a bool is called again until that is True, with room in the outbox.
    """

    is_cooperative: ClassVar[bool] = True
    """Whether all methods return soon, so that the task shares a thread with others. False: they
    may block, and the task has a thread of its own."""
    saves_changes: ClassVar[bool] = False
    """Whether `save_to_snapshot` offers only what has changed since it was called last. False: it
    offers everything, and what it does not offer is gone."""
    completes_in_pages: ClassVar[bool] = False
    """Whether state may be saved, and what was offered be sent, between two calls of `complete`, of
    `complete_edge` and of `try_process`. False: what one of these offers is kept in memory until it
    is done."""

    outbox: Outbox
    """Takes what is sent; there from `init` on."""
    context: Context
    """Where the processor runs; there from `init` on."""

    def init(self) -> None:
        """Called first, before anything is restored."""

    def process(self, ordinal: int, inbox: Inbox[Any]) -> None:
        """Work on what has come from one task, and remove from the inbox what is done with. Called
        again until it is empty.

        Args:
            ordinal: number of the task that it comes from (`context.parents`).
            inbox: segments, or record batches where the task has columns.
        """
        while inbox and (done := self.process_item(ordinal, inbox.peek())):
            if done is True or asked_by(done) is None:
                inbox.remove()
            else:
                inbox.fail(done)

    def process_item(self, ordinal: int, item: Any) -> bool | Fail | Retry:
        """Work on one item; False: call again with the same one. `onyx.FAIL` or an `onyx.Retry`, of
        an item that has changed nothing yet: it is to be read again."""
        raise NotImplementedError("a processor has process_item or process")

    def try_process(self) -> bool:
        """Called before each inbox, and now and then while none comes."""
        return True

    def try_process_watermark(self, watermark: int) -> bool:
        """Event time has come to this many milliseconds since 1970."""
        return True

    def complete_edge(self, ordinal: int) -> bool:
        """Nothing more comes from one of the tasks."""
        return True

    def complete(self) -> bool:
        """Nothing more comes. What was saved is forgotten when it is done."""
        return True

    def save_to_snapshot(self) -> bool:
        """Offer the state to the snapshot, by `outbox.offer_to_snapshot`."""
        return True

    def restore_from_snapshot(self, inbox: Inbox[tuple[Any, Any]]) -> None:
        """Take entries that were saved, each a key and a value, from the inbox. Called again until
        it is empty, and with the next ones. The same key may come twice, from two processors."""
        raise NotImplementedError("a processor that saves its state restores it")

    def finish_snapshot_restore(self) -> bool:
        """All entries have come, if there were any."""
        return True

    def close(self) -> None:
        """Called last, unless the process dies."""

    # Building blocks.

    def try_emit(self, item: Any) -> bool:
        """Offer an item to the outbox; False: return, and try again at the next call."""
        return self.outbox.offer(item)

    def emit_from(self, traverser: Traverser[Any]) -> bool:
        """Offer what is left of a traverser; False: return, and go on with it at the next call."""
        return traverser.offer_all(self.outbox.offer)

    def save_from(self, traverser: Traverser[tuple[Any, Any]]) -> bool:
        """Offer what is left of a traverser of keys and values to the snapshot, likewise."""
        return traverser.offer_all(lambda entry: self.outbox.offer_to_snapshot(*entry))

    def flat_mapper(self, fn: Callable[[T], Iterable[Any]]) -> FlatMapper[T]:
        """What sends all that a function makes of an item."""
        return FlatMapper(self.try_emit, fn)
