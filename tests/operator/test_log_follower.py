"""The operator's follower of a log: a mistake of a listener costs no entry."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.log.markers import marker
from tests.support.log.memory_log import MemoryLog
from tests.support.patience import WAIT_S

from onyx.ids import Position
from onyx.replica.command import Entry
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
        await asyncio.wait_for(found.wait(), WAIT_S)
        writer = log.client()
        writer.append(marker("a"))
        last = writer.append(marker("b"))
        await asyncio.wait_for(following.arrived(last), WAIT_S)
        assert following.replica.version == last
        await following.close()

    asyncio.run(versions())
    assert heard[0] == 0
