"""Input `iterator`: whatever a Python iterator gives, once, by way of a journal.

The iterator runs on a thread of its own, because nobody knows how long its next element takes. What
it gives waits in a queue of limited length until the writer of the journal takes it, as much as is
there at a time.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import Any

import pyarrow as pa

from onyx.errors import OnyxError, describe_type
from onyx.flow.batch import Segments
from onyx.flow.columns.record_batch import Columns
from onyx.plugins.options import function_error, task_error
from onyx.plugins.protocol import PluginContext
from onyx.plugins.segment_runs import gathered
from onyx.plugins.sources.journalled_input import JournalledInput
from onyx.plugins.sources.options import IteratorOptions
from onyx.plugins.sources.protocol import LiveSource, Portion

AHEAD_SEGMENTS_MAX = 10_000
"""Segments that the iterator is ahead of the journal; an element may be more."""
END_TIMEOUT_S = 2.0


def iterator_input(context: PluginContext, options: IteratorOptions) -> JournalledInput:
    """The input `iterator`."""

    def opener(context: PluginContext, partition: int, cursor: Any) -> IteratorSource:
        fn = context.resolve(options.fn)
        arguments = (partition,) if options.partitions > 1 else ()
        return IteratorSource(
            context, options.fn, lambda at: fn(at, *arguments), cursor, options.repeat_seconds
        )

    return JournalledInput(context, options, options.partitions, opener, examine=True)


class IteratorSource(LiveSource):
    """Without acks."""

    def __init__(
        self,
        context: PluginContext,
        name: str,
        make: Callable[[Any], Any],
        cursor: Any,
        repeat_s: float | None = None,
    ) -> None:
        """
        Args:
            name: of the function, for errors.
            make: makes the iterator that goes on behind a cursor.
            repeat_s: make it again so long after it has ended.
        """
        self._context = context
        self._name = name
        self._make = make
        self._cursor = cursor
        self._repeat_s = repeat_s
        self._paired: bool | None = None
        """Whether elements have cursors; None before the first."""
        self._changed = threading.Condition()
        self._ahead: list[Segments] = []
        self._count = 0
        """Segments in it."""
        self._ahead_cursor: Any = None
        self._error: OnyxError | None = None
        self._ended = False
        self._closed = False
        self._thread: threading.Thread | None = None

    def receive(self, wait_s: float) -> Portion | None:
        """What the iterator has given so far."""
        if self._thread is None and not self._ended:
            self._thread = threading.Thread(
                target=self._run, name=f"onyx-iterator-{self._context.task}", daemon=True
            )
            self._thread.start()
        with self._changed:
            if self._ahead_cursor is None and self._error is None and not self._ended:
                self._changed.wait(wait_s)
            runs, cursor = self._ahead, self._ahead_cursor
            self._ahead, self._count, self._ahead_cursor = [], 0, None
            if cursor is not None:
                self._changed.notify_all()
                return Portion(gathered(runs), cursor=cursor)
            error, self._error = self._error, None
        if error is not None:
            self._thread = None
            raise error
        return None

    def ack(self, handles: Sequence[Any]) -> None:
        """There is nobody to tell."""

    def fail(self, handles: Sequence[Any], after_s: float) -> None:
        """There is nobody to tell: what is not in the journal is behind its cursor."""

    def exhausted(self) -> bool:
        """Whether the iterator has ended, and is not made again."""
        with self._changed:
            return self._ended and self._ahead_cursor is None

    def close(self) -> None:
        """Let the iterator go as soon as it gives something."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(END_TIMEOUT_S)

    # --- the iterator's thread ------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._closed:
                with closing(_elements(self._make(self._cursor))) as elements:
                    for element in elements:
                        if not self._give(*self._read(element)):
                            return
                with self._changed:
                    if self._repeat_s is None:
                        self._ended = True
                        self._changed.notify_all()
                        return
                    self._changed.wait_for(lambda: self._closed, self._repeat_s)
        except OnyxError as error:
            self._fail(error)
        except BaseException as error:
            self._fail(function_error(self._context, self._name, error))

    def _fail(self, error: OnyxError) -> None:
        """After Unavailable the iterator is made again, behind the last cursor."""
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def _read(self, element: Any) -> tuple[Segments, Any]:
        """What an element holds, and the cursor behind it."""
        given, cursor = element, None
        if type(element) is tuple and len(element) == 2:
            given, cursor = element
            if cursor is None:
                what = f"{self._name} gave a pair without a cursor (None)"
                raise task_error(self._context, what)
        if type(given) is dict:
            run: Segments = [given]
        elif isinstance(given, pa.RecordBatch):
            run = Columns.of(given)
        elif type(given) is list:
            run = given
        else:
            raise task_error(
                self._context,
                f"{self._name} gave {describe_type(given)}; it gives segments (dicts), lists of "
                "them or record batches, or pairs of these and the cursor behind them",
            )
        paired = cursor is not None
        if self._paired not in (None, paired) or not (paired or type(self._cursor or 0) is int):
            what = f"{self._name} gave something with a cursor and something without one"
            raise task_error(self._context, f"{what}; give all of them a cursor, or none")
        self._paired = paired
        return run, cursor if paired else (self._cursor or 0) + len(run)

    def _give(self, run: Segments, cursor: Any) -> bool:
        """Leave an element to the writer; whether more is wanted."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._count < AHEAD_SEGMENTS_MAX)
            if self._closed:
                return False
            self._ahead.append(run)
            self._count += len(run)
            self._ahead_cursor = self._cursor = cursor
            self._changed.notify_all()
            return True


def _elements(made: Any) -> Generator[Any, None, None]:
    """The elements of an iterator or of an asynchronous one."""
    if hasattr(made, "__aiter__"):
        yield from _awaited(made)
        return
    elements = iter(made)
    try:
        yield from elements
    finally:
        getattr(elements, "close", lambda: None)()


def _awaited(made: Any) -> Iterator[Any]:
    with asyncio.Runner() as runner:
        elements = aiter(made)

        async def following() -> tuple[Any, ...]:
            async for each in elements:
                return (each,)
            return ()

        try:
            while found := runner.run(following()):
                yield found[0]
        finally:
            if hasattr(elements, "aclose"):
                runner.run(elements.aclose())
