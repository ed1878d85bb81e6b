"""The operator's follower of a log: a mistake of a listener costs no entry."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest
from tests.support.log.invariants import violations
from tests.support.log.markers import marker
from tests.support.log.memory_log import MemoryClientLog, MemoryLog, MemorySession
from tests.support.log.replica_log import ReplicaLog
from tests.support.patience import WAIT_S

from onyx.errors import Unavailable
from onyx.ids import GroupId, JobId, Position
from onyx.log.interface import Session
from onyx.log.tenancy import Usage
from onyx.replica.command import Command, Entry
from onyx.replica.state import Replica
from onyx.settings import Settings
from onyx_operator.logs import follower


async def nobody(former: str, settings: Settings) -> bool:
    return False


async def silent(_: Settings) -> list[str]:
    return []


def test_a_listener_that_raises_has_the_log_followed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "REOPEN_S", 0.01)
    log, heard = MemoryLog(), list[Position]()

    def hear(entry: Entry, _: Replica) -> None:
        heard.append(entry.position)
        if len(heard) == 1:
            raise ValueError("not this one")

    async def versions() -> None:
        found = asyncio.Event()
        listener = follower.Listener(hear, lambda *_: None, found.set)
        following = follower.Follower(
            Settings(), lambda _: log.client(), 2, listener, nobody, silent
        )
        async with asyncio.timeout(WAIT_S):
            await found.wait()
        writer = log.client()
        writer.append(marker("a"))
        last = writer.append(marker("b"))
        async with asyncio.timeout(WAIT_S):
            await following.arrived(last)
        assert following.replica.version == last
        await following.close()

    asyncio.run(versions())
    assert heard[0] == 0


def test_a_follower_that_is_closed_as_its_log_fails_ends() -> None:
    log = MemoryLog()

    def fail() -> None:
        raise Unavailable("for now")

    async def close() -> None:
        listener = follower.Listener(lambda *_: None, lambda *_: None, lambda: None)
        following = follower.Follower(
            Settings(), lambda _: log.client(), 2, listener, nobody, silent
        )
        async with asyncio.timeout(WAIT_S):
            while following.usage is None:
                await asyncio.sleep(0)
            await following.ask(list)  # it waits for its next look by now
            try:
                await following.ask(fail)
            except Unavailable:
                await following.close()
        assert following.trouble is None, "it has gone on after its end"

    asyncio.run(close())


def test_who_waits_for_an_entry_and_is_cancelled_as_it_arrives_ends() -> None:
    log = MemoryLog()

    async def arrive() -> bool:
        listener = follower.Listener(lambda *_: None, lambda *_: None, lambda: None)
        following = follower.Follower(
            Settings(), lambda _: log.client(), 2, listener, nobody, silent
        )
        async with asyncio.timeout(WAIT_S):
            last = log.client().append(marker("a"))
            waits = asyncio.create_task(following.arrived(last))
            while following.replica.version < last:
                await asyncio.sleep(0)
            waits.cancel()
            await asyncio.wait([waits])
            await following.close()
        return waits.cancelled()

    assert asyncio.run(arrive())


class Written(ReplicaLog):
    """What is said is in a log, too."""

    def __init__(self, log: MemoryLog) -> None:
        super().__init__()
        self._client = log.client()

    def tell(self, command: Command, *, writer: str = "", sequence: int = 0) -> Replica:
        self._client.append(command)
        return super().tell(command, writer=writer, sequence=sequence)


@pytest.mark.parametrize("alive", ["", "b"])
def test_of_workers_that_all_died_at_once_no_job_has_peers(
    alive: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each was watched by one that died too. While one lives, it writes what there is to write."""
    monkeypatch.setattr(follower, "CHECK_INTERVAL_S", 0.001)
    log, looks = MemoryLog(), list[GroupId]()
    Written(log).join("a", "b", "c", peers=2).submit()
    if alive:
        log.group(GroupId(alive)).register_pulse()

    def look(self: MemoryClientLog, group: GroupId) -> bool:
        looks.append(group)
        return MemorySession.pulse_exists(self, group)

    monkeypatch.setattr(MemoryClientLog, "pulse_exists", look)

    async def seen() -> Replica:
        listener = follower.Listener(lambda *_: None, lambda *_: None, lambda: None)
        following = follower.Follower(
            Settings(), lambda _: log.client(), 2, listener, nobody, silent
        )
        async with asyncio.timeout(WAIT_S):
            while len(looks) < 20 if alive else following.replica.groups or not looks:
                await asyncio.sleep(0)
        await following.close()
        return following.replica

    replica = asyncio.run(seen())
    assert replica.groups == (("a", "b", "c") if alive else ())
    peers = sum(map(len, replica.run(JobId("j")).allocation.values()))
    assert peers == (6 if alive else 0)
    assert violations(replica) == []


def test_a_log_that_takes_long_to_answer_is_lost_until_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(follower, "ANSWER_TIMEOUT_S", 0.01)
    answers, log = threading.Event(), MemoryLog()
    monkeypatch.setattr(MemoryClientLog, "usage", lambda _: answers.wait(WAIT_S) and Usage(0, 0, 0))

    async def troubles() -> list[str]:
        turned, found = asyncio.Event(), list[str]()
        listener = follower.Listener(lambda *_: None, lambda *_: None, turned.set)
        following = follower.Follower(
            Settings(), lambda _: log.client(), 2, listener, nobody, silent
        )
        async with asyncio.timeout(WAIT_S):
            for _ in range(2):
                await turned.wait()
                turned.clear()
                found.append(following.trouble.message if following.trouble else "")
                answers.set()
            await following.close()
        return found

    assert asyncio.run(troubles()) == ["no answer for 0.01 s", ""]


def test_whether_a_log_answers_is_asked_at_once_when_its_connection_breaks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(follower, "CHECK_INTERVAL_S", WAIT_S)
    heard, asked, log = list[Callable[[Session], None]](), list[MemoryClientLog](), MemoryLog()
    monkeypatch.setattr(MemoryClientLog, "on_session", lambda _, listener: heard.append(listener))
    monkeypatch.setattr(MemoryClientLog, "usage", lambda self: asked.append(self) or Usage(0, 0, 0))

    async def ask_twice() -> None:
        listener = follower.Listener(lambda *_: None, lambda *_: None, lambda: None)
        following = follower.Follower(
            Settings(), lambda _: log.client(), 2, listener, nobody, silent
        )
        async with asyncio.timeout(WAIT_S):
            while following.trouble:
                await asyncio.sleep(0)
            heard[0](Session.SUSPENDED)
            while len(asked) < 2:
                await asyncio.sleep(0)
        await following.close()

    asyncio.run(ask_twice())
