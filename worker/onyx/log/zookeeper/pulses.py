"""Pulses: the ephemeral node of this incarnation, and watches on those of others.

The pulse is the fence of its group: it goes with the session, and every append and document of the
group checks it ("Fencing" in docs/architecture.md).

Invariant: a watched group whose pulse is gone is reported, once. A ZooKeeper watch fires once, and
with type NONE when the connection breaks. So it is armed again after every event that is not a
deletion, and every watch is armed again after a reconnect; arming reads whether the node exists.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kazoo.exceptions import NodeExistsError
from kazoo.protocol.states import EventType, WatchedEvent

from onyx.errors import Fenced
from onyx.ids import GroupId
from onyx.log.interface import Session
from onyx.log.paths import Paths
from onyx.log.zookeeper.session import ZooKeeperSession


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

    def exists(self, group: GroupId) -> bool:
        """Whether the group's pulse is there now."""
        path = self._paths.pulse(group)
        return self._session.perform(lambda client: client.exists_async(path)) is not None

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
