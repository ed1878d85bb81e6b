"""Helpers for tests of the log: waiting for what it delivers, a log in a folder, and ending
sessions from outside."""

from __future__ import annotations

import queue
import threading
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from msgspec.structs import replace
from tests.support.patience import WAIT_S

from onyx.ids import GroupId
from onyx.log.local import requests as to
from onyx.log.local.frames import PROTOCOL, LogQuestion, framed, reach
from onyx.log.local.log import LocalGroupLog
from onyx.log.local.server import LocalLogServer
from onyx.log.zookeeper.dialler import TlsHandler
from onyx.log.zookeeper.group_log import ZooKeeperGroupLog
from onyx.settings import LogSettings, Settings, ZooKeeperSettings


class Inbox:
    """What a callback of the log was given, in order."""

    def __init__(self) -> None:
        self._items: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def __call__(self, item: Any) -> None:
        self._items.put(item)

    def take(self, count: int = 1) -> list[Any]:
        """The next `count` items; waits for them."""
        return [self._items.get(timeout=WAIT_S) for _ in range(count)]

    def names(self, count: int) -> list[str]:
        """Names of the next `count` entries: of markers, or else of their commands."""
        return [getattr(entry.command, "id", entry.command.NAME) for entry in self.take(count)]

    def take_until(self, wanted: Any) -> list[Any]:
        """Items up to and with `wanted`."""
        items = self.take()
        while items[-1] != wanted:
            items += self.take()
        return items

    @property
    def is_empty(self) -> bool:
        return self._items.empty()


def settings_for(
    address: str,
    session_timeout_s: float = 6.0,
    tenancy: str | None = None,
    log: LogSettings | None = None,
) -> Settings:
    """Settings of a tenancy of its own."""
    return Settings(
        tenancy_id=tenancy or uuid.uuid4().hex,
        zookeeper=ZooKeeperSettings(address=address, session_timeout_s=session_timeout_s),
        log=log or LogSettings(),
    )


@contextmanager
def served(folder: Path, kept: bool = False) -> Iterator[LocalLogServer]:
    """A server of the log in a folder, for the time of a block."""
    with LocalLogServer(folder, kept) as server:
        yield server


def settings_of(
    folder: Path, session_timeout_s: float = 6.0, log: LogSettings | None = None
) -> Settings:
    """Settings that lead to the log in a folder."""
    return Settings(
        tenancy_id="test",
        zookeeper=ZooKeeperSettings(session_timeout_s=session_timeout_s),
        log=replace(log or LogSettings(), folder=str(folder)),
    )


def end_session(log: LocalGroupLog, settings: Settings) -> None:
    """End the session of a log in a folder on the server, as its expiry would."""
    session, timeout_s = log._connection._session, log.session_timeout_s
    hello = to.Greeting(PROTOCOL, settings.tenancy_id, session, timeout_s, log.group)
    with closing(reach(Path(settings.log.folder), WAIT_S)) as other:
        other.setblocking(True)
        for number, request in enumerate((hello, to.EndSession())):
            other.sendall(framed(LogQuestion(number, request)))
            assert other.recv(1_000)


def expire_session(log: ZooKeeperGroupLog, address: str) -> None:
    """End the session of a log on the server, as its expiry would."""
    files = log._session._dialler._certificates
    client = KazooClient(
        address,
        client_id=log._session._client.client_id,
        handler=TlsHandler(files) if files else None,
    )
    client.start()
    client.stop()
    client.close()


def pulse_gone(observer: ZooKeeperGroupLog, group: GroupId) -> threading.Event:
    """An event that is set when an observer hears that a pulse is gone."""
    gone = threading.Event()
    observer.watch_pulse(group, lambda _: gone.set())
    return gone
