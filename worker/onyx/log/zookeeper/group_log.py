"""The log of one incarnation of a peer group: its pulse, and appends that the pulse fences.

The pulse is an ephemeral node, and the fence of its group: it goes with the session, and every
append and document of the group checks it ("Fencing" in docs/architecture.md). Pulses of others are
watched.

Invariant: a watched group whose pulse is gone is reported, once. A ZooKeeper watch fires once, and
with type NONE when the connection breaks. So it is armed again after every event that is not a
deletion, and every watch is armed again after a reconnect; arming reads whether the node exists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NodeExistsError, NoNodeError
from kazoo.protocol.states import EventType, WatchedEvent

from onyx.errors import Fenced
from onyx.ids import GroupId, Position
from onyx.log.append_queue import Append, Reply
from onyx.log.appends import GroupAppends
from onyx.log.interface import Session
from onyx.log.paths import Paths
from onyx.log.zookeeper.log import ZooKeeperLog
from onyx.log.zookeeper.session import ZooKeeperSession
from onyx.replica.command import Command
from onyx.reports.measures import ZooKeeperMeasures
from onyx.settings import Settings
from onyx.tls.files import CertificateFiles


class ZooKeeperGroupLog(ZooKeeperLog):
    """The log of one incarnation of a peer group; dead for good once its session is lost."""

    def __init__(
        self,
        settings: Settings,
        group: GroupId,
        identity: int | None = None,
        certificates: CertificateFiles | None = None,
    ) -> None:
        super().__init__(settings, group, identity, certificates)
        self.group = group
        self.session_timeout_s = self._session.session_timeout_s
        self._pulses = Pulses(self._session, self._paths)
        self._appends = GroupAppends(group, settings.log, self._session.loop, self._start)
        self._session.on_session(self._appends.on_session)

    def register_pulse(self) -> None:
        """Create this incarnation's pulse; to be called before the first append."""
        self._pulses.register(self.group)

    def append(self, commands: Sequence[Command], parent: Position | None = None) -> None:
        """Enqueue for writing, in order, each exactly once in effect."""
        self._session.check()
        self._appends.append(commands, parent)

    def watch_pulse(self, group: GroupId, gone: Callable[[GroupId], None]) -> None:
        """Call `gone` once when the pulse is deleted, or at once if it is not there."""
        self._pulses.watch(group, gone)

    def unwatch_pulse(self, group: GroupId) -> None:
        """Do not call `gone` any more."""
        self._pulses.unwatch(group)

    def on_session(self, listener: Callable[[Session], None]) -> None:
        """Call this at every change of the session, on the log's thread."""
        self._appends.listen(listener)

    def call(self, function: Callable[[], None]) -> None:
        """Run this on the log's thread: proves that the thread moves."""
        self._session.loop.call(function)

    def traffic(self) -> ZooKeeperMeasures:
        """What has passed between this process and ZooKeeper, in this session."""
        return self._session.traffic.measures()

    def confirmed_s(self) -> float:
        """Monotonic time at which the server last confirmed the session (for the lease)."""
        return self._session.confirmed_s()

    def close(self) -> None:
        """Write what was enqueued (if that takes no longer than `CLOSE_FLUSH_S`), then leave."""
        self._appends.flush()
        super().close()

    def _start(self, request: Append, answered: Callable[[Reply], None]) -> None:
        def start(client: KazooClient) -> Any:
            transaction = client.transaction()
            if request.fence is not None:
                transaction.check(self._paths.pulse(request.fence), -1)
            self._chunks.touch(transaction, request.chunks)
            for payload in request.payloads:
                transaction.create(self._paths.entry_prefix, payload, sequence=True)
            return transaction.commit_async()

        entries = len(request.payloads)
        self._session.send(start, lambda answer: answered(self._reply(answer, entries)))

    def _reply(self, answer: Any, entries: int) -> Reply:
        reply = _reply(answer, entries)
        if reply is Reply.UNKNOWN and isinstance(answer, list):
            denied = any(isinstance(result, NoAuthError) for result in answer)
            self._session.fail(self._session.denied() if denied else self._origins.recreated())
        return reply


def _reply(answer: Any, entries: int) -> Reply:
    """What a transaction's answer means: a list of results, the last ones of the entries, or the
    exception of a break."""
    if not isinstance(answer, list):
        return Reply.UNKNOWN
    if any(isinstance(each, NoNodeError) for each in answer[: len(answer) - entries]):
        return Reply.PULSE_GONE
    failed = any(isinstance(result, Exception) for result in answer)
    return Reply.UNKNOWN if failed else Reply.WRITTEN


class Pulses:
    """The pulses of a tenancy as seen by one group."""

    def __init__(self, session: ZooKeeperSession, paths: Paths) -> None:
        self._session = session
        self._paths = paths
        self._watched: dict[GroupId, Callable[[GroupId], None]] = {}
        """Touched on the loop only."""
        session.on_session(self._on_session)

    def register(self, group: GroupId) -> None:
        """Create the pulse; it goes with the session.

        Raises:
            Fenced: another session has a pulse of this name, so this incarnation is not new.
        """
        path = self._paths.pulse(group)
        try:
            self._session.perform(lambda client: client.create_async(path, ephemeral=True))
        except NodeExistsError as error:
            stat = self._session.perform(lambda client: client.exists_async(path))
            if stat is None or stat.ephemeralOwner != self._session.id:
                raise Fenced(f"group {group} has a pulse of another session") from error

    def watch(self, group: GroupId, gone: Callable[[GroupId], None]) -> None:
        """Call `gone` once, on the loop, when the pulse is not there (any more)."""

        def begin() -> None:
            self._watched[group] = gone
            self._arm(group)

        self._session.loop.call(begin)

    def unwatch(self, group: GroupId) -> None:
        """Do not call `gone` any more."""
        self._session.loop.call(lambda: self._watched.pop(group, None) and None)

    def _arm(self, group: GroupId) -> None:
        if group in self._watched:
            path = self._paths.pulse(group)
            self._session.send(
                lambda client: client.exists_async(path, watch=self._on_event),
                lambda answer: self._on_answer(group, answer),
            )

    def _on_answer(self, group: GroupId, answer: Any) -> None:
        if answer is None:
            self._gone(group)

    def _on_event(self, event: WatchedEvent) -> None:
        """On kazoo's thread. Without a path it is news of the session: `_on_session` re-arms."""
        if event.path is None:
            return
        group = GroupId(event.path.rpartition("/")[2])
        if event.type == EventType.DELETED:
            self._session.loop.call(lambda: self._gone(group))
        else:
            self._session.loop.call(lambda: self._arm(group))

    def _gone(self, group: GroupId) -> None:
        listener = self._watched.pop(group, None)
        if listener is not None:
            listener(group)

    def _on_session(self, session: Session) -> None:
        if session is Session.CONNECTED:
            for group in sorted(self._watched):
                self._arm(group)
