"""Follows the log: a pure state machine from events to requests.

It lists the children of the log with a watch, fetches those after its position (several at a time)
and delivers them in order. Two invariants:

* *No entry is skipped.* Numbers of sequential nodes may have gaps, so "next" is the lowest child
  greater than the position, never position + 1. Only when that is not the very next number may
  entries have been collected as garbage. Then the origin is read, and the reader jumps to it if it
  is ahead. Waiting for the exact next number was rejected: a reader that falls behind a collection
  would wait for ever.
* *A watch is always armed.* It fires once; when a connection breaks it fires with type NONE and is
  gone, even if the same session comes back. So every cause in `Cause` lists again, which arms it
  again. The slow poll also reads the origin when nothing is listed, because a log may have been
  collected entirely.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from onyx.codec.entries import decode_entry
from onyx.ids import Position
from onyx.log.interface import Origin
from onyx.replica.command import Entry

FETCHES_MAX = 128
"""Entries asked for or waiting for an earlier one."""


class Cause(enum.Enum):
    """Why the children are listed."""

    START = "start"
    CHANGED = "changed"
    """The watch fired because the log changed."""
    NONE = "none"
    """The watch fired because the connection broke; it is no longer armed."""
    CONNECTED = "connected"
    """Connected again."""
    POLL = "poll"
    AGAIN = "again"
    """An entry that was listed is not there."""


@dataclass(frozen=True, slots=True)
class ListChildren:
    """Request: the numbers of the entries in the log, and a watch on their change.

    If the cause is CHANGED, numbers after the reader's position are enough, and some of them may
    turn out not to be there: a whole listing costs as much as the log is long.
    """

    cause: Cause = field(default=Cause.START, compare=False)


class GetEntry(msgspec.Struct, frozen=True):
    """Request: the data of one entry."""

    position: Position


class ReadOrigin(msgspec.Struct, frozen=True):
    """Request: the origin, if its position is greater than this one."""

    above: Position


class Deliver(msgspec.Struct, frozen=True):
    """Give the reader the next entry, or an origin to start again from."""

    item: Entry | Origin


Action = ListChildren | GetEntry | ReadOrigin | Deliver
Actions = tuple[Action, ...]


class LogTail:
    """A reader's position in the log. Every `on_...` returns what to do now, in order.

    Replies to requests of a broken connection may be given, late too, or withheld: entries never
    change, and `on_connected` asks again for everything.
    """

    def __init__(self, after: Position) -> None:
        self.position = after
        """Last position delivered."""
        self._ahead: deque[Position] = deque()
        """Listed and not delivered, ascending."""
        self._asked: set[Position] = set()
        self._arrived: dict[Position, bytes] = {}
        self._listing = False
        self._list_again: Cause | None = None
        """Why to list once more after the listing under way."""
        self._polled = False
        """The listing under way asks for the origin if it finds nothing."""
        self._asking_origin = False
        self._question: Position | None = None
        """Lowest child when the origin was asked for: the answer speaks of no other."""
        self._explained: Position | None = None
        """Lowest child of which the origin has said that nothing before it was collected."""

    def start(self) -> Actions:
        """Ask for what is there; to be called once."""
        return self.relist(Cause.START)

    def on_watch(self, cause: Cause) -> Actions:
        """The watch fired: CHANGED or NONE."""
        return self.relist(cause)

    def on_poll(self) -> Actions:
        """The slow timer fired, in case a watch or a reply was lost."""
        return self._ask_again(Cause.POLL)

    def on_connected(self) -> Actions:
        """The connection is back: replies of the old one need not come."""
        return self._ask_again(Cause.CONNECTED)

    def on_children(self, positions: Iterable[Position]) -> Actions:
        """The listing was answered."""
        self._listing = False
        # Joined and not replaced: a listing of a former connection may be answered late, and lacks
        # what a newer one had. What is gone meanwhile is taken out by `on_entry`.
        self._ahead = deque(sorted({*self._ahead, *(p for p in positions if p > self.position)}))
        polled, self._polled = self._polled, False
        cause, self._list_again = self._list_again, None
        again = () if cause is None else self.relist(cause)
        if not self._ahead and polled:
            return again + self._ask_origin()
        return again + self._advance()

    def on_entry(self, position: Position, data: bytes | None) -> Actions:
        """An entry was read, or (None) it is no longer there."""
        # A reply of a connection that broke, or to an entry that an origin has passed over.
        if position not in self._asked:
            return ()
        self._asked.discard(position)
        if data is None:
            self._ahead.remove(position)
            return self.relist(Cause.AGAIN) + self._advance()
        self._arrived[position] = data
        return self._advance()

    def on_origin(self, origin: Origin | None) -> Actions:
        """The origin was read; None if it is not ahead of what was asked for."""
        if not self._asking_origin:
            return ()
        self._asking_origin = False
        if origin is None or origin.position <= self.position:
            # Of the child that was the lowest when it was asked, not of the one that is so now: a
            # collection may have happened in between.
            self._explained = self._question
            return self._advance()
        self._jump(origin.position)
        return (Deliver(origin), *self._advance())

    def relist(self, cause: Cause) -> Actions:
        """List the children and arm the watch, whatever the cause."""
        self._polled = self._polled or cause in (Cause.START, Cause.CONNECTED, Cause.POLL)
        if self._listing:
            # CHANGED lists the least, so any other cause replaces it, and it replaces none.
            if self._list_again in (None, Cause.CHANGED):
                self._list_again = cause
            return ()
        self._listing = True
        return (ListChildren(cause),)

    def on_gap(self, first: Position) -> Actions:
        """The lowest child is not the next number: ask the origin."""
        return self._ask_origin()

    def _ask_again(self, cause: Cause) -> Actions:
        # Replies to what was asked may never come, so nothing may wait for one.
        self._listing = False
        self._list_again = None
        self._asked.clear()
        self._asking_origin = False
        return self.relist(cause) + self._advance()

    def _ask_origin(self) -> Actions:
        if self._asking_origin:
            return ()
        self._asking_origin = True
        self._question = self._ahead[0] if self._ahead else None
        return (ReadOrigin(self.position),)

    def _advance(self) -> Actions:
        """Deliver what has arrived in order, then ask for more."""
        actions: list[Action] = []
        while self._ahead and self._may_follow(self._ahead[0]):
            position = self._ahead[0]
            if position not in self._arrived:
                break
            self._ahead.popleft()
            actions.append(Deliver(decode_entry(position, self._arrived.pop(position))))
            self.position = position
        if self._ahead and not self._may_follow(self._ahead[0]):
            return (*actions, *self.on_gap(self._ahead[0]))
        return (*actions, *self._fetch())

    def _may_follow(self, first: Position) -> bool:
        return first == self.position + 1 or first == self._explained

    def _fetch(self) -> Actions:
        requests: list[Action] = []
        for position in self._ahead:
            if len(self._asked) + len(self._arrived) >= FETCHES_MAX:
                break
            if position not in self._asked and position not in self._arrived:
                self._asked.add(position)
                requests.append(GetEntry(position))
        return tuple(requests)

    def _jump(self, position: Position) -> None:
        self.position = position
        while self._ahead and self._ahead[0] <= position:
            self._ahead.popleft()
        self._arrived = {p: data for p, data in self._arrived.items() if p > position}
        self._asked = {p for p in self._asked if p > position}
