"""The links of this group with the groups that it shares a job with.

Of two groups that share a job, the one with the smaller id dials. So there is one connection for
each pair, whichever group reads of the job first.

Any thread may call. `_lock` guards the table and is never held while a link is called.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

import msgspec

from onyx.ids import GroupId
from onyx.tls.files import CertificateFiles
from onyx.transport.counters import Counters
from onyx.transport.grpc_client import STOP_TIMEOUT_S, Dialler
from onyx.transport.inbox import BoundedInbox
from onyx.transport.link import Link
from onyx.transport.stream import Ends, Surroundings


class _Connection(msgspec.Struct, frozen=True):
    link: Link
    dialler: Dialler | None
    """None where the other side dials."""


class Links:
    """The links of one process, and the thread that breaks those on which nothing comes."""

    def __init__(
        self,
        tenancy: str,
        group: GroupId,
        around: Surroundings,
        certificates: CertificateFiles | None,
    ) -> None:
        self._tenancy = tenancy
        self._group = group
        self._around = around
        self._certificates = certificates
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._connections: dict[GroupId, _Connection] = {}
        self._past = Counters()
        self._stopped = threading.Event()
        self._monitor = threading.Thread(target=self._watch, name="onyx-heartbeats", daemon=True)

    def start(self) -> None:
        """Start to look for links on which nothing comes."""
        self._monitor.start()

    def stop(self) -> None:
        """Close all links, and open none any more."""
        self._stopped.set()
        self.connect({})
        self._monitor.join(STOP_TIMEOUT_S)

    def connect(self, groups: Mapping[GroupId, str]) -> None:
        """The groups (and their addresses) with which this one shares a job now: links to others
        are closed, new ones opened."""
        opened: list[_Connection] = []
        with self._lock:
            wanted = {} if self._stopped.is_set() else groups
            parted = [group for group in self._connections if group not in wanted]
            closed = [self._connections.pop(group) for group in parted]
            for group, address in wanted.items():
                if group != self._group and group not in self._connections:
                    connection = self._connection(group, address)
                    self._connections[group] = connection
                    opened.append(connection)
            self._changed.notify_all()
        self._close(closed)
        for connection in opened:
            if connection.dialler is not None:
                connection.dialler.start()

    def find(self, group: GroupId, timeout_s: float) -> Link | None:
        """The link with a group; waits up to so many seconds for there to be one."""
        with self._lock:
            self._changed.wait_for(
                lambda: group in self._connections or self._stopped.is_set(), timeout_s
            )
            connection = self._connections.get(group)
        return connection.link if connection is not None else None

    def get(self, group: GroupId) -> Link | None:
        """The link with a group, if there is one."""
        connection = self._connections.get(group)
        return None if connection is None else connection.link

    def counters(self) -> Counters:
        """Totals of all links, those that are closed included."""
        total = Counters()
        with self._lock:
            total.add(self._past)
            for connection in self._connections.values():
                total.add(connection.link.counters)
        return total

    def silent_s(self) -> dict[GroupId, float]:
        """Seconds since each connected group was last heard from."""
        with self._lock:
            links = list(self._connections.items())
        return {group: connection.link.silent_s() for group, connection in links}

    def inbox_opened(self, inbox: BoundedInbox) -> None:
        """Grant credit to the senders of other groups that came before this inbox."""
        for link in self._links():
            link.inbox_opened(inbox)

    def inbox_closed(self, inbox: BoundedInbox) -> None:
        """Drop what still arrives for this inbox."""
        for link in self._links():
            link.inbox_closed(inbox)

    def _connection(self, there: GroupId, address: str) -> _Connection:
        link = Link(Ends(self._tenancy, self._group, there), self._around)
        if there < self._group:
            return _Connection(link, None)
        around = self._around
        dialler = Dialler(link, address, around.settings, self._certificates, around.randomness)
        return _Connection(link, dialler)

    def _close(self, connections: list[_Connection]) -> None:
        diallers = [each.dialler for each in connections if each.dialler is not None]
        for connection in connections:
            connection.link.close()
        for dialler in diallers:
            dialler.stop()
        for dialler in diallers:
            dialler.join()
        with self._lock:
            for connection in connections:
                self._past.add(connection.link.counters)

    def _links(self) -> list[Link]:
        with self._lock:
            return [connection.link for connection in self._connections.values()]

    def _watch(self) -> None:
        while not self._stopped.wait(self._around.settings.heartbeat_interval_s / 2):
            for link in self._links():
                link.break_if_silent()
