"""Pages that follow what happens: parts that have changed, as server-sent events.

All who look at one address share one *channel*: it makes the page once a tick, however many look,
and sends what is otherwise than at the tick before. The last viewer takes the channel with him. A
viewer that does not read is left behind by its own bounded queue, and given the whole page later.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from onyx.console.pages import Console

logger = logging.getLogger("onyx.console")
TICK_S = 1.0
VIEWERS_MAX = 500
"""Streams at once, of all pages."""
QUEUE_MAX = 8
"""Ticks that wait for a viewer who reads slowly."""
SILENCE_TICKS = 15
"""After so many ticks without news a comment says to proxies that the stream lives."""

Address = tuple[str, tuple[tuple[str, str], ...]]


class TooManyViewers(Exception):
    """No more streams are taken."""


class LivePage:
    """The viewers of one address. On the thread of the event loop."""

    def __init__(self, console: Console, address: Address) -> None:
        self._console = console
        self._address = address
        self._last: dict[str, str] = {}
        self._viewers: dict[asyncio.Queue[str | None], bool] = {}
        """Whether each has been given all that there was."""
        self._quiet = 0
        self.task: asyncio.Task[None] | None = None

    @property
    def viewers(self) -> int:
        """How many look."""
        return len(self._viewers)

    def enter(self) -> asyncio.Queue[str | None]:
        """Another viewer, who gets the page as it is with the next tick."""
        queue: asyncio.Queue[str | None] = asyncio.Queue(QUEUE_MAX)
        self._viewers[queue] = False
        return queue

    def leave(self, queue: asyncio.Queue[str | None]) -> None:
        """One viewer fewer."""
        self._viewers.pop(queue, None)

    async def run(self) -> None:
        """Tick until nobody looks any more."""
        while self._viewers:
            await self._tick()
            await asyncio.sleep(TICK_S)

    async def _tick(self) -> None:
        path, query = self._address
        try:
            parts, is_live = await asyncio.to_thread(self._parts, path, dict(query))
        except Exception:
            logger.exception("a bug in the console: page %s cannot be made", path)
            return
        news = {id: text for id, text in parts.items() if self._last.get(id) != text}
        self._last = parts
        self._quiet = 0 if news else self._quiet + 1
        comment = self._quiet and self._quiet % SILENCE_TICKS == 0
        for queue, has_all in list(self._viewers.items()):
            what = news if has_all else parts
            if not what and not comment:
                continue
            try:
                queue.put_nowait(_event(what) if what else ": still here\n\n")
                self._viewers[queue] = True
                if not is_live:  # such as an entry of the archive, which could not be read before
                    queue.put_nowait(None)
            except asyncio.QueueFull:
                self._viewers[queue] = False

    def _parts(self, path: str, query: dict[str, str]) -> tuple[dict[str, str], bool]:
        page = self._console.page(path, query)
        texts = self._console.texts(page)
        parts = {each.id: text for each, text in zip(page.parts, texts, strict=True)}
        return parts, page.is_live


class LivePages:
    """All channels. On the thread of the event loop."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._channels: dict[Address, LivePage] = {}

    @property
    def viewers(self) -> int:
        """How many look at any page."""
        return sum(each.viewers for each in self._channels.values())

    async def follow(self, address: Address) -> AsyncIterator[str]:
        """What is sent to one viewer, until he goes.

        Raises:
            TooManyViewers: as many look as may.
        """
        if self.viewers >= VIEWERS_MAX:
            raise TooManyViewers
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = LivePage(self._console, address)
        queue = channel.enter()
        if channel.task is None:
            channel.task = asyncio.get_running_loop().create_task(channel.run())
            channel.task.add_done_callback(self._gone(address, channel))
        try:
            yield "retry: 3000\n\n"
            while (text := await queue.get()) is not None:
                yield text
        finally:
            channel.leave(queue)

    def _gone(self, address: Address, channel: LivePage) -> Callable[[object], None]:
        def gone(_: object) -> None:
            if channel.viewers:  # somebody has come while it ended
                channel.task = asyncio.get_running_loop().create_task(channel.run())
                channel.task.add_done_callback(gone)
            else:
                with suppress(KeyError):
                    del self._channels[address]

        return gone


def _event(parts: dict[str, str]) -> str:
    return f"data: {json.dumps(parts)}\n\n"
