"""Follows the log: a `LogTail`, a pure state machine from events to requests, and what drives it
against ZooKeeper.

A listing transfers every name in the log. If every reader listed after each entry, a cluster with a
log of 10,000 entries would do little else. So only the first listing and those after a break are
whole. In between, the reader computes the next number from the status of the node, which has
constant size: `cversion` counts creations and deletions of children, so half of its sum with the
number of children is how many were ever created. The watch is then on that next node. Numbers that
turn out to be missing lead to a whole listing.

Everything runs on the session's loop, except that an origin is read on a thread of its own: it
takes several requests, at the start and after a collection.

The tail lists the children of the log with a watch, fetches those after its position (several at a
time) and delivers them in order. Two invariants:

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
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import EventType, WatchedEvent

from onyx.codec.entries import decode_entry
from onyx.errors import OnyxError
from onyx.ids import Position
from onyx.log.interface import Origin, Reader, Session
from onyx.log.paths import Paths, entry_positions
from onyx.log.zookeeper.origins import Origins
from onyx.log.zookeeper.session import NODES_MAX, ZooKeeperSession, read_nodes
from onyx.replica.command import Entry


class Subscription:
    """One reader that follows the log from when it is made until `stop`."""

    def __init__(
        self,
        session: ZooKeeperSession,
        paths: Paths,
        origins: Origins,
        after: Position,
        reader: Reader,
        poll_interval_s: float,
    ) -> None:
        self._session = session
        self._paths = paths
        self._origins = origins
        self._czxid = origins.log_czxid
        self._tail = LogTail(after)
        self._forgotten = False
        self._reader = reader
        self._forget_session = session.on_session(self._on_session)
        self._stop_poll = session.loop.every(poll_interval_s, lambda: self._run(self._tail.on_poll))
        session.loop.call(lambda: self._run(self._tail.start))

    def stop(self) -> None:
        """Deliver nothing more; a delivery that has begun is not waited for."""
        self._reader.stop()
        if not self._forgotten:
            self._forgotten = True
            self._stop_poll()
            self._forget_session()

    def _run(self, event: Callable[[], Actions]) -> None:
        if not self._reader.stopped:
            self._perform(event())

    def _perform(self, actions: Actions) -> None:
        wanted: list[Position] = []
        for action in actions:
            match action:
                case ListChildren(Cause.CHANGED):
                    self._look_ahead()
                case ListChildren():
                    self._list()
                case GetEntry(position):
                    wanted.append(position)
                case ReadOrigin(above):
                    threading.Thread(
                        target=self._read_origin, args=(above,), name="onyx-log-origin", daemon=True
                    ).start()
                case Deliver(item):
                    self._reader.give(item)
        for start in range(0, len(wanted), NODES_MAX):
            self._get(wanted[start : start + NODES_MAX])

    def _list(self) -> None:
        self._session.send(
            lambda client: client.get_children_async(
                self._paths.log, watch=self._on_watch, include_data=True
            ),
            self._on_children,
        )

    def _on_children(self, answer: Any) -> None:
        if isinstance(answer, Exception):
            self._check_identity(None if isinstance(answer, NoNodeError) else self._czxid)
            return
        children, stat = answer
        if self._check_identity(stat.czxid):
            self._run(lambda: self._tail.on_children(entry_positions(children)))

    def _look_ahead(self) -> None:
        self._session.send(lambda client: client.exists_async(self._paths.log), self._on_status)

    def _on_status(self, stat: Any) -> None:
        if isinstance(stat, Exception) or not self._check_identity(stat and stat.czxid):
            return
        following = Position((stat.cversion + stat.numChildren) // 2)
        path = self._paths.entry(following)
        self._session.send(
            lambda client: client.exists_async(path, watch=self._on_watch), self._on_following
        )
        numbers = range(self._tail.position + 1, following)
        self._run(lambda: self._tail.on_children([Position(number) for number in numbers]))

    def _on_following(self, stat: Any) -> None:
        """The next entry was there before its watch: it must be looked for without one."""
        if stat is not None and not isinstance(stat, Exception):
            self._run(lambda: self._tail.on_watch(Cause.AGAIN))

    def _check_identity(self, czxid: int | None) -> bool:
        """End the session's use if this is not the log that it began with (None: there is none)."""
        if czxid == self._czxid:
            return True
        self._session.fail(self._origins.recreated())
        return False

    def _get(self, positions: Sequence[Position]) -> None:
        paths = [self._paths.entry(position) for position in positions]
        self._session.send(
            lambda client: read_nodes(client, paths),
            lambda answer: self._on_entries(positions, answer),
        )

    def _on_entries(self, positions: Sequence[Position], answer: Any) -> None:
        """All events first, then what they ask for: so that the next entries are read together."""
        if isinstance(answer, Exception):
            return
        events = zip(positions, answer, strict=True)
        self._run(lambda: tuple(a for p, data in events for a in self._tail.on_entry(p, data)))

    def _read_origin(self, above: Position) -> None:
        try:
            origin = self._origins.read(above)
        except OnyxError:
            return  # the poll or the next connection asks again
        self._session.loop.call(lambda: self._run(lambda: self._tail.on_origin(origin)))

    def _on_watch(self, event: WatchedEvent) -> None:
        """On kazoo's thread. NONE: the connection broke and the watch is gone."""
        cause = Cause.NONE if event.type == EventType.NONE else Cause.CHANGED
        self._session.loop.call(lambda: self._run(lambda: self._tail.on_watch(cause)))

    def _on_session(self, session: Session) -> None:
        if session is Session.CONNECTED:
            self._run(self._tail.on_connected)


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
