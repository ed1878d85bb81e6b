"""Drives a `LogTail` against ZooKeeper: performs its requests and gives it the answers.

A listing transfers every name in the log. If every reader listed after each entry, a cluster with a
log of 10,000 entries would do little else. So only the first listing and those after a break are
whole. In between, the reader computes the next number from the status of the node, which has
constant size: `cversion` counts creations and deletions of children, so half of its sum with the
number of children is how many were ever created. The watch is then on that next node. Numbers that
turn out to be missing lead to a whole listing.

Everything runs on the session's loop, except that an origin is read on a thread of its own: it
takes several requests, at the start and after a collection.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import EventType, WatchedEvent

from onyx.errors import OnyxError
from onyx.ids import Position
from onyx.log.interface import Reader, Session
from onyx.log.paths import Paths, entry_positions
from onyx.log.tail import Actions, Cause, Deliver, GetEntry, ListChildren, LogTail, ReadOrigin
from onyx.log.zookeeper.origins import Origins
from onyx.log.zookeeper.session import NODES_MAX, ZooKeeperSession, read_nodes


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
