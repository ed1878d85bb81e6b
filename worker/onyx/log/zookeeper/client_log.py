"""The log of a client or the operator: it appends one command and waits for its position."""

from __future__ import annotations

from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError

from onyx.base.seams import SystemClock
from onyx.codec.entries import encode_entry
from onyx.ids import Position
from onyx.log.append_queue import check_size
from onyx.log.interface import ChunkGone
from onyx.log.paths import entry_position
from onyx.log.zookeeper.log import ZooKeeperLog
from onyx.replica.command import Command


class ZooKeeperClientLog(ZooKeeperLog):
    """The log of a client or the operator. Its session may be replaced by a new one."""

    def append(self, command: Command, by: str = "") -> Position:
        """Write a command and wait; when in doubt it is written again, which its id makes harmless.

        Raises:
            UserError: it is too large or cannot be encoded.
            ChunkGone: a chunk that it names has been collected; nothing was written.
            Unavailable: no answer in time; it may have been written or not.
        """
        data = encode_entry(command, by=by, at_ms=SystemClock().wall_ms() if by else 0)
        check_size(command, data, self._settings.entry_bytes_max)

        def start(client: KazooClient) -> Any:
            transaction = client.transaction()
            self._chunks.touch(transaction, command.chunks)
            transaction.create(self._paths.entry_prefix, data, sequence=True)
            return transaction.commit_async()

        *touched, written = results = self._session.perform(start)
        if any(isinstance(each, NoAuthError) for each in results):
            raise self._session.denied()
        if any(isinstance(each, NoNodeError) for each in touched):
            raise ChunkGone(f"what {command.NAME} names was collected before; try again")
        if isinstance(written, Exception):
            raise written
        position = entry_position(written)
        assert position is not None
        return position

    def pass_on(self, former: str, owner: str) -> bool:
        """Give the tenancy to another owner; False if it is not the former one's any more."""
        return self._origins.pass_on(former, owner)

    def other_tenancies(self) -> list[str]:
        """The tenancies that share the ZooKeeper with this one, in order."""
        above, _, own = self._paths.root.rpartition("/")
        found = self._session.perform(lambda client: client.get_children_async(above))
        return sorted(set(found) - {own})
