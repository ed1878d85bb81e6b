"""One processor and its outbox: each method is called until it is done, or can do nothing now.

What is raised is blamed on the class and the method. What may be sent is looked at where it is
offered, so that a processor finds the line that offers what cannot be.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from onyx.base.seams import Clock
from onyx.codec.refusals import fits_alone, refusal, refused_rows
from onyx.codec.segments import bytes_each
from onyx.errors import UserFunctionError, describe_type
from onyx.flow.columns.record_batch import Columns
from onyx.flow.leaves import result_columns
from onyx.functions.returning import item_by_item
from onyx.processors import Context, Inbox, Outbox, Processor
from onyx.program.failure import blamed

logger = logging.getLogger("onyx.task")

CALLS_IN_VAIN_MAX = 100_000
"""So many calls one after another may do nothing."""
SLOW_CALL_S = 0.1
"""A cooperative processor whose call takes longer is named in the log: others wait for it."""
ENTRIES_AT_ONCE = 1_024
"""So many entries are restored by one call, at most."""
MADE_MAX = 65_536
"""With so many segments made, a turn ends before the next item. Batches whose size Onyx chooses
rarely make more."""
OWN_SHARE = 4
"""When an item makes a part of that more, one in so many, it is finished apart."""
KEPT_BYTES_MAX = 536_870_912
"""What is kept of one method until it is done is smaller, as it would be encoded. Python takes some
times as much for it, and whoever has no end is found before a worker's memory is."""
Entries = Callable[[list[tuple[Any, Any]], list[Any]], None]
"""Takes entries of a snapshot, and keys that are gone from it."""


SEGMENTS_MAX = 1_024
"""At so many segments an outbox is full."""
ENTRIES_MAX = 1_024
"""So many entries of a snapshot are taken at once."""


class CallTurn(NamedTuple):
    """What a processor has done with an inbox."""

    taken: int
    """So many of the items it has taken, from the first on."""
    made: list[Any]
    """What it has offered."""
    failed: Sequence[tuple[int, Exception]] = ()
    """The items among those that have failed, by number, as the processor says."""
    error: UserFunctionError | None = None
    """The processor has raised, because of one of the items that it had: it is of no use any more.
    """
    is_large: bool = False
    """The first item that is left has been worked on, and makes more than is kept in memory. Some
    is among what was offered."""


class Calls:
    """Not thread-safe."""

    def __init__(
        self, processor: Processor, name: str, outbox: Outbox, context: Context, clock: Clock
    ) -> None:
        """`name`: of the class, for people."""
        self.processor = processor
        self._name = name
        self._outbox = outbox
        self._clock = clock
        self._named_slow = not processor.is_cooperative
        self._in_vain = 0
        processor.outbox, processor.context = outbox, context

    def overrides(self, method: str) -> bool:
        """Whether the class has a method of its own."""
        return getattr(type(self.processor), method) is not getattr(Processor, method)

    def init(self) -> None:
        """Begin."""
        self._call("init")

    def process(
        self, ordinal: int, items: Sequence[Any], made_max: int = MADE_MAX, first: int = 0
    ) -> CallTurn:
        """Have these items processed, until a call takes and offers nothing: then the processor
        waits for something, and what is left is for a later turn.

        Args:
            made_max: with so much made, the rest is for a later turn as well; 0: nothing is.
            first: number of the first item, for what the processor gives back.
        """
        inbox, self._in_vain = Inbox(items), 0
        # A record batch is one item, and gives back a value for each of its rows.
        current = None if isinstance(inbox.peek(), pa.RecordBatch) else lambda: first + inbox.last
        made: list[Any] = []
        weight, begun, taken, alone, before_it = 0, False, 0, False, 0
        while inbox:
            before = len(inbox)
            try:
                with item_by_item(current):
                    self._call("process", ordinal, inbox)
            except UserFunctionError as error:
                self._outbox.take()
                return CallTurn(taken, made, error=error)
            weight += self._outbox.segments
            offered, owes, took = self._outbox.take(), self._outbox.owes, before - len(inbox)
            assert took >= 0, "what was taken is not given back"
            made += offered
            taken += took
            if not (took or offered or owes or begun):
                return CallTurn(taken, made, inbox.failed)
            # Whether the first item was worked on, and is not done with.
            begun = owes or (not took and (begun or bool(offered)))
            self._moved("process", bool(took or offered))
            if not made_max:
                continue
            if alone and begun and weight - before_it >= made_max // OWN_SHARE:
                return CallTurn(taken, made, inbox.failed, is_large=True)
            if inbox and weight >= made_max and not alone:
                inbox.keep_first()
                alone, before_it = True, weight
        self._check_offered("process", self._outbox.owes)
        assert alone or taken == len(items), "what the engine has not taken back was taken"
        return CallTurn(taken, made, inbox.failed)

    def work_off(self, ordinal: int, item: Any) -> Iterator[list[Any]]:
        """Have one item processed to its end; what each call has offered, which may be nothing."""
        inbox = Inbox([item])
        while inbox:
            self._call("process", ordinal, inbox)
            yield self._outbox.take()
        self._check_offered("process", self._outbox.owes)

    def until_done(self, method: str, *arguments: Any) -> Iterator[list[Any]]:
        """Call a method until it says that it is done; what is offered, likewise."""
        return (made for _, made in self.each(method, *arguments))

    def all_of(self, method: str, *arguments: Any) -> list[Any]:
        """What is offered until a method is done, all kept in memory. Raises UserFunctionError: it
        is more than `KEPT_BYTES_MAX`."""
        kept, size_bytes = list[Any](), 0.0
        for made in self.until_done(method, *arguments):
            kept += made
            size_bytes += _size_bytes(made)
            if size_bytes > KEPT_BYTES_MAX:
                raise self._wrong(
                    method,
                    f"has offered more than {KEPT_BYTES_MAX >> 20} MiB, which are kept in memory "
                    "until it is done: with completes_in_pages = True in the class they are sent "
                    "in pages, and its state is saved in between",
                )
        return kept

    def each(self, method: str, *arguments: Any) -> Iterator[tuple[bool, list[Any]]]:
        """The calls of a method until it says that it is done: whether it is with this one, and
        what was offered."""
        self._in_vain, done = 0, False
        while not done:
            done = self._call(method, *arguments)
            if type(done) is not bool:
                raise self._wrong(method, f"returned {describe_type(done)}, not True or False")
            made = self._outbox.take()
            self._moved(method, done or bool(made))
            if done:
                self._check_offered(method, self._outbox.owes)
            yield done, made

    def save(self, take: Entries) -> None:
        """Have the state saved."""
        method, self._in_vain, done = "save_to_snapshot", 0, False
        while not done:
            done = self._call(method)
            entries, dropped = self._outbox.take_entries()
            if type(done) is not bool or self._outbox.take():
                raise self._wrong(
                    method, "returns True or False, and offers entries of the snapshot only"
                )
            self._moved(method, done or bool(entries) or bool(dropped))
            take(entries, dropped)
        self._check_offered(method, self._outbox.owes_entry)

    def restore(self, entries: Iterable[tuple[Any, Any]]) -> None:
        """Give back what was saved."""
        page: list[tuple[Any, Any]] = []
        for entry in entries:
            page.append(entry)
            if len(page) == ENTRIES_AT_ONCE:
                self._restore_page(page)
                page = []
        self._restore_page(page)
        for made in self.until_done("finish_snapshot_restore"):
            if made:
                raise self._wrong("finish_snapshot_restore", "offers nothing: nobody is ready")

    def close(self) -> None:
        """End. What is raised is logged: nobody can do anything about it."""
        try:
            self._call("close")
        except UserFunctionError as error:
            logger.error("%s", error, exc_info=error)

    def _restore_page(self, page: list[tuple[Any, Any]]) -> None:
        method, inbox = "restore_from_snapshot", Inbox(page)
        self._in_vain = 0
        while inbox:
            before = len(inbox)
            self._call(method, inbox)
            self._moved(method, len(inbox) < before)

    def _call(self, method: str, *arguments: Any) -> Any:
        begun_s = self._clock.monotonic_s()
        try:
            return getattr(self.processor, method)(*arguments)
        except BaseException as error:
            raise UserFunctionError(blamed(self._where(method), error)) from error
        finally:
            if not self._named_slow:
                self._note_time(method, self._clock.monotonic_s() - begun_s)

    def _note_time(self, method: str, took_s: float) -> None:
        if took_s > SLOW_CALL_S:
            self._named_slow = True
            logger.warning(
                "%s took %.1f s, and other tasks of the process wait for it: return sooner, or "
                "give the class is_cooperative = False",
                self._where(method),
                took_s,
            )

    def _moved(self, method: str, something: bool) -> None:
        self._in_vain = 0 if something else self._in_vain + 1
        if self._in_vain >= CALLS_IN_VAIN_MAX:
            raise self._wrong(
                method,
                f"was called {CALLS_IN_VAIN_MAX:,} times and neither took nor offered anything: it "
                "would be called for ever (what waits for something blocks, in a class with "
                "is_cooperative = False)",
            )

    def _check_offered(self, method: str, owes: bool) -> None:
        if owes:
            raise self._wrong(
                method, "is done, but what the outbox has refused was not offered again: it is lost"
            )

    def _wrong(self, method: str, what: str) -> UserFunctionError:
        return UserFunctionError(f"{self._where(method)} {what}")

    def _where(self, method: str) -> str:
        return f"{method} of processor {self._name}"


def _size_bytes(made: list[Any]) -> float:
    if made and isinstance(made[0], Columns):
        return sum(bytes_each(each) * len(each) for each in made if len(each))
    return bytes_each(made) * len(made) if made else 0.0


def outbox_of(
    takes: Literal["dicts", "arrow"],
    segments_max: int = SEGMENTS_MAX,
    entries_max: int = ENTRIES_MAX,
) -> Outbox:
    """The outbox of a task that has segments, or columns."""
    accept = _accept_columns if takes == "arrow" else _accept_segment
    return Outbox(accept, segments_max, entries_max)


def _accept_segment(item: Any) -> tuple[Any, int]:
    if type(item) is not dict or not fits_alone(item):
        error = refusal(item)
        if error is not None:
            raise error
    return item, 1


def _accept_columns(item: Any) -> tuple[Any, int]:
    columns = None if isinstance(item, list | tuple) else result_columns(item)
    if columns is None:
        raise UserFunctionError(
            f"the outbox of a task over columns is offered {describe_type(item)}: offer a record "
            "batch, or what has the Arrow C stream interface"
        )
    found = refused_rows(columns)
    if found:
        raise found[0][1]
    return columns, len(columns)
