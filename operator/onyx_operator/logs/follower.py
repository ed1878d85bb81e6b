"""Follows the log of one cluster: one subscription, which folds it into one replica.

All that blocks (connecting, reading, appending) happens on a few threads of this cluster's own, so
that a ZooKeeper that cannot be reached stalls nobody else. Methods belong to the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from onyx.client.client import Client
from onyx.errors import LogReplaced, OnyxError, Unavailable
from onyx.ids import GroupId, Position
from onyx.log.interface import ClientLog, Origin
from onyx.log.tenancy import TenancyTaken, Usage
from onyx.replica.command import Entry
from onyx.replica.commands import GroupLeaveCluster
from onyx.replica.state import Replica
from onyx.settings import Settings
from onyx_operator.logs.state import CONNECTING, TAKEN, Trouble

Connect = Callable[[Settings], ClientLog]
Heir = Callable[[str, Settings], Awaitable[bool]]
"""Whether the log of an owner belongs to that of some settings now."""
Servers = Callable[[Settings], Awaitable[Sequence[str]]]
"""What the servers of a log say that do not serve, a line each."""
T = TypeVar("T")

CHECK_INTERVAL_S = 4.0
"""Period at which it is asked whether ZooKeeper still answers."""
ANSWER_TIMEOUT_S = 3.0
"""A log that has not answered by then is said to be lost, ten seconds after it was at the latest:
before it comes the interval, behind it the longest wait for the page of a server. The question goes
on for as long as a session may last, longer than whoever looks on should wait for a reason."""
REOPEN_S = 5.0
"""Wait before a log that could not be opened is tried again."""
ARRIVAL_TIMEOUT_S = 20.0
"""Longest wait for our own entry to come back by the subscription."""
_CAUSES = (("disk full", "DiskFull"), ("no quorum", "NoQuorum"))
"""Words of a server of `onyx zookeeper` on its page `/readyz`, and what is wrong then."""

logger = logging.getLogger(__name__)


class Listener(msgspec.Struct, frozen=True):
    """What whoever has a log followed wants to hear."""

    heard: Callable[[Entry, Replica], None]
    """An entry, with the replica after it; on the log's thread."""
    moved: Callable[[Replica, Replica], None]
    """The replica is another one: before, after. On the event loop."""
    turned: Callable[[], None]
    """The log was found or lost. On the event loop."""


class Follower:
    """The log of one cluster. `connect` opens it."""

    def __init__(
        self,
        settings: Settings,
        connect: Connect,
        threads_max: int,
        listener: Listener,
        heir: Heir,
        servers: Servers,
    ) -> None:
        self._settings = settings
        self._connect = connect
        self._heir, self._servers = heir, servers
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(threads_max, "onyx-log-view")
        self._client: Client | None = None
        self._following = contextlib.ExitStack()
        self._newest = Replica()
        """The replica on the thread of the log."""
        self.replica = self._newest
        """The replica on the event loop: the newest one that was published."""
        self.usage: Usage | None = None
        """What the tenancy held some seconds ago."""
        self._closed = self._broken = False
        self._silent = frozenset[GroupId]()
        """The members, if none of them lived at the last look."""
        self._is_published = True
        """False as long as a `_publish` is to come, which takes whatever has been read by then."""
        self._arrivals: list[tuple[Position, asyncio.Future[None]]] = []
        self._poke = asyncio.Event()
        self.trouble: Trouble | None = Trouble(CONNECTING, f"connecting to {self._where()}")
        self._task = asyncio.create_task(self._follow(), name="onyx-log-view")

    def opened(self) -> Client:
        """The client of the log.

        Raises:
            Unavailable: the log cannot be used now.
        """
        if self._client is None or self.trouble is not None:
            raise Unavailable(self.trouble.message if self.trouble else "the log is closed")
        return self._client

    async def arrived(self, position: Position) -> None:
        """Wait until an entry of ours is seen in the log.

        Raises:
            Unavailable: it does not come.
        """
        if self.replica.version >= position:
            return
        arrived: asyncio.Future[None] = self._loop.create_future()
        self._arrivals.append((position, arrived))
        try:
            async with asyncio.timeout(ARRIVAL_TIMEOUT_S):
                await arrived
        except TimeoutError as error:
            raise Unavailable(f"entry {position} of {self._where()} does not arrive") from error

    async def ask(self, function: Callable[..., T], *arguments: Any) -> T:
        """Do what blocks, on behalf of a job, whose fault it is not that the log is another one.

        Raises:
            Unavailable: the log cannot be reached.
        """
        try:
            return await self._in_thread(function, *arguments)
        except LogReplaced as error:
            self._poke.set()
            raise Unavailable(str(error)) from error
        except Unavailable:
            self._poke.set()
            raise

    async def _in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        if self._closed:
            raise Unavailable("the log is closed")
        return await self._loop.run_in_executor(self._threads, function, *arguments)

    async def close(self) -> None:
        """Stop following; the session ends in the background."""
        if not self._closed:
            self._closed = True
            self._threads.submit(self._close_log)
            self._threads.shutdown(wait=False)
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _follow(self) -> None:
        while not self._closed:
            try:
                try:
                    await self._in_thread(self._open)
                    await self._stay()
                finally:
                    with contextlib.suppress(Unavailable):
                        await self._in_thread(self._close_log)
            except TenancyTaken as error:
                if await self._inherits(error.owner):
                    continue
                self._set_trouble(Trouble(TAKEN, str(error)))
            except OnyxError as error:
                await self._unreachable(error)
            except Exception as error:
                logger.exception("following the log at %s failed", self._where())
                self._set_trouble(Trouble("LogUnreachable", f"{type(error).__name__}: {error}"))
            await asyncio.sleep(REOPEN_S)

    async def _inherits(self, former: str) -> bool:
        """Whether the tenancy is ours now, because its owner is gone."""
        try:
            return await self._heir(former, self._settings) and await self._in_thread(
                self._take_over, former
            )
        except OnyxError as error:
            logger.warning("who has the log at %s is not known: %s", self._where(), error)
            return False

    def _take_over(self, former: str) -> bool:
        with contextlib.closing(self._connect(replace(self._settings, tenancy_owner=""))) as log:
            logger.info("the log at %s was that of %s", self._where(), former)
            return log.pass_on(former, self._settings.tenancy_owner)

    async def _stay(self) -> None:
        """While the session can be used, with breaks; another error ends it, such as LogReplaced:
        what this client knew is of a log that is gone. What `_deliver` raises ends it too, and
        `_close_log` raises it."""
        assert self._client is not None
        while not self._broken:
            try:
                self.usage = await self._answer(self._client.log.usage)
                await self._in_thread(self._declare_dead)
                self._set_trouble(None)
            except Unavailable as error:
                await self._unreachable(error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CHECK_INTERVAL_S):
                    await self._poke.wait()
            self._poke.clear()

    async def _answer(self, question: Callable[[], T]) -> T:
        """The answer of the log; while it takes long, what is wrong is said."""
        asking = asyncio.ensure_future(self._in_thread(question))
        try:
            answered, _ = await asyncio.wait({asking}, timeout=ANSWER_TIMEOUT_S)
            if not answered:
                await self._unreachable(Unavailable(f"no answer for {ANSWER_TIMEOUT_S:g} s"))
            return await asking
        finally:
            asking.cancel()

    def _open(self) -> None:
        """On a thread: connect, read all there is, and follow from there."""
        client = Client(
            self._connect(self._settings),
            self._settings.job_scheduler,
            tenancy=self._settings.tenancy_id,
            limits=self._settings.log,
        )
        client.log.on_session(lambda _: self._look())
        self._client = client
        self._newest = client.replica()
        self._broken = False
        following = client.follow(self._deliver, self._newest, self._break)
        self._following.enter_context(following)
        if self._closed:
            self._close_log()
        else:
            self._loop.call_soon_threadsafe(self._publish)

    def _declare_dead(self) -> None:
        """On a thread: write that groups have left when none lives that could. Members watch each
        other, so what died at once stays, with its jobs, until somebody joins. It takes two looks:
        a new session may be with a server that lags behind."""
        if self._client is None:
            return
        log, members = self._client.log, self._newest.groups
        silent = frozenset[GroupId]() if any(map(log.pulse_exists, members)) else frozenset(members)
        for group in sorted(silent & self._silent):
            logger.warning("the log at %s: no worker lives, %s is gone", self._where(), group)
            log.append(GroupLeaveCluster(id=group))
        self._silent = silent

    def _close_log(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with client:
                self._following.close()

    def _deliver(self, item: Entry | Origin, replica: Replica) -> None:
        """On the log's thread: the next entry."""
        self._newest = replica
        if isinstance(item, Entry):
            self._listener.heard(item, replica)
        if self._is_published:
            self._is_published = False
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._publish)

    def _break(self) -> None:
        """On the log's thread: `_deliver` has raised, and no more entries come."""
        self._broken = True
        self._look()

    def _look(self) -> None:
        """On the log's thread: whether the log answers is to be asked at once."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._poke.set)

    def _publish(self) -> None:
        """Take over the newest replica."""
        # Before the replica is taken: an entry that comes after that is published once more.
        self._is_published = True
        old, self.replica = self.replica, self._newest
        self._listener.moved(old, self.replica)
        position = self.replica.version
        for at, arrived in self._arrivals:
            if at <= position and not arrived.done():
                arrived.set_result(None)
        self._arrivals = [each for each in self._arrivals if each[0] > position]

    async def _unreachable(self, error: OnyxError) -> None:
        """The log cannot be used: why, by what we see and by what the servers say."""
        said = await self._servers(self._settings)
        words = " ".join(said)
        cause = next((cause for sign, cause in _CAUSES if sign in words), "Unreachable")
        message = "; ".join((str(error), *said))
        self._set_trouble(Trouble("LogUnreachable", message, cause))

    def _set_trouble(self, trouble: Trouble | None) -> None:
        before, self.trouble = self.trouble, trouble
        if (trouble is None) != (before is None):
            logger.info("the log at %s is %s", self._where(), "lost" if trouble else "found")
        if (trouble and trouble.cause) != (before and before.cause) or bool(trouble) != bool(
            before
        ):
            self._listener.turned()

    def _where(self) -> str:
        return f"{self._settings.zookeeper.address}, tenancy {self._settings.tenancy_id}"
