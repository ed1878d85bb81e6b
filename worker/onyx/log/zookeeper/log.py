"""The log in ZooKeeper: what peer groups and clients have in common, and the log of a client or the
operator, which appends one command and waits for its position.

The parts each have one concern: `session` (connection), `subscription` (reading),
`documents`, `chunks`, `origins`. This module puts together those that both use; `group_log` appends
in its own way. Any thread may call; callbacks come on one thread. Who does not follow the log reads
many entries at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError

from onyx.codec.entries import decode_entry
from onyx.ids import NO_POSITION, GroupId, Position
from onyx.log.appends import entry_of_client
from onyx.log.interface import ChunkGone, Document, Origin, Reader, Session
from onyx.log.paths import Paths, entry_position, entry_positions
from onyx.log.tenancy import Usage, check_owner
from onyx.log.zookeeper.chunks import Chunks
from onyx.log.zookeeper.documents import Documents
from onyx.log.zookeeper.origins import Origins
from onyx.log.zookeeper.session import NODES_MAX, ZooKeeperSession, read_nodes
from onyx.log.zookeeper.subscription import Subscription
from onyx.log.zookeeper.usage import Counted
from onyx.replica.command import Command, Entry
from onyx.settings import Settings
from onyx.tls.files import CertificateFiles


class ZooKeeperLog:
    """Reading, documents and chunks.

    Args:
        settings: Uses `zookeeper`, `log` and `tenancy_id`.
        fence: Group whose pulse writes must check; None for a client.
        identity: The log that this process knew before, from `identity` of a former object.
        certificates: For TLS; None means those that the settings name.

    Raises:
        Unavailable: no ZooKeeper answered.
        TenancyTaken: the tenancy belongs to another owner than `tenancy_owner`.
        LogReplaced: the log was recreated; SettingsError: the address or tenancy is wrong.
    """

    def __init__(
        self,
        settings: Settings,
        fence: GroupId | None = None,
        identity: int | None = None,
        certificates: CertificateFiles | None = None,
    ) -> None:
        self._settings = settings.log
        self._paths = Paths(settings.tenancy_id)
        self._session = ZooKeeperSession(
            settings.zookeeper, "onyx-log", fence is None, certificates, settings.tenancy_id
        )
        try:
            piece_bytes = self._settings.chunk_bytes_max
            self._chunks = Chunks(self._session, self._paths, piece_bytes)
            self._documents = Documents(
                self._session, self._paths, self._chunks, piece_bytes, fence
            )
            self._counted = Counted(self._session, self._paths)
            self._origins = Origins(
                self._session, self._paths, self._chunks, settings.zookeeper.close_root, identity
            )
            check_owner(self, settings.tenancy_id, settings.tenancy_owner)
        except BaseException:
            self._session.close()
            raise

    @property
    def identity(self) -> int:
        """Distinguishes this log from one made anew under the same name."""
        return self._origins.log_czxid

    def read(self, after: Position, entries_max: int = 10_000) -> Sequence[Entry]:
        """Entries after a position that are there now; see the protocol."""
        return read_entries(self._session, self._paths, after, entries_max)

    def subscribe(
        self,
        after: Position,
        deliver: Callable[[Entry | Origin], None],
        failed: Callable[[BaseException], None] = lambda _: None,
    ) -> Callable[[], None]:
        """Follow the log; see the protocol."""
        self._session.check()
        subscription = Subscription(
            self._session,
            self._paths,
            self._origins,
            after,
            Reader(deliver, failed),
            self._settings.poll_interval_s,
        )
        return subscription.stop

    def origin(self, above: Position = NO_POSITION) -> Origin:
        """The origin, if its position is greater than `above`; else an empty one at -1."""
        return self._origins.read(above) or Origin(NO_POSITION, b"")

    def collect(self, origin: Origin) -> bool:
        """Start the log from a later replica and delete the entries that it contains."""
        return self._origins.collect(origin)

    def put_chunk(self, data: bytes, if_room: bool = False) -> str:
        """Store a document under its content address (SHA-256, hex)."""
        if not if_room:
            return self._chunks.put(data)
        return self._chunks.put(data, lambda more: self.usage().check_bytes(more))

    def usage(self) -> Usage:
        """What the tenancy holds, and what it may hold."""
        settings = self._settings
        return Usage(self._counted.held(), settings.tenancy_bytes_max, settings.tenancy_jobs_max)

    def get_chunk(self, digest: str) -> bytes:
        """Raises Unavailable when it is missing, InvariantViolated when it is not what it says."""
        return self._chunks.get(digest)

    def sweep_chunks(self, named: Callable[[], Collection[str]], age_s: float) -> int:
        """Delete the chunks that nothing names and nobody has put or named for a time; how many."""
        return self._chunks.sweep(
            lambda: {*named(), self._origins.named()}, int((time.time() - age_s) * 1000)
        )

    def get_document(self, path: str) -> Document | None:
        """The document at `folder/name`; None if there is none."""
        return self._documents.get(path)

    def put_document(
        self, path: str, data: bytes, version: int | None, names: Sequence[str] = ()
    ) -> int | None:
        """Create (`version` None) or replace a document if its version is still `version`."""
        return self._documents.put(path, data, version, names)

    def list_documents(self, folder: str) -> Sequence[str]:
        """Sorted names of the documents directly in a folder; empty when there is none."""
        return self._documents.names(folder)

    def list_folders(self, folder: str) -> Sequence[str]:
        """Sorted names of the folders directly in a folder; empty when there is none."""
        return self._documents.folders(folder)

    def delete_documents(self, path: str) -> None:
        """Delete the document and those directly in the folder of this name."""
        self._documents.delete(path)

    def establish(self, parameters: Mapping[str, str]) -> Mapping[str, str]:
        """Write the cluster's parameters if nobody has; return those that hold."""
        return self._origins.establish(parameters)

    def pulse_exists(self, group: GroupId) -> bool:
        """Whether the group's pulse is there now."""
        path = self._paths.pulse(group)
        return self._session.perform(lambda client: client.exists_async(path)) is not None

    def claim(self, owner: str) -> str:
        """Write who has the tenancy if nobody has; return who it is."""
        return self._origins.claim(owner)

    def close(self) -> None:
        """End the session and the threads."""
        self._session.close()


class ZooKeeperClientLog(ZooKeeperLog):
    """The log of a client or the operator. Its session may be replaced by a new one."""

    def append(self, command: Command, by: str = "") -> Position:
        """Write a command and wait; when in doubt it is written again, which its id makes harmless.

        Raises:
            UserError: it is too large or cannot be encoded.
            ChunkGone: a chunk that it names has been collected; nothing was written.
            Unavailable: no answer in time; it may have been written or not.
        """
        data = entry_of_client(command, by, self._settings)

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

    def begin_with(self, origin: Origin) -> bool:
        """Begin an empty log with a replica; False if anything has ever been in it."""
        return self._origins.begin_with(origin)

    def pass_on(self, former: str, owner: str) -> bool:
        """Give the tenancy to another owner; False if it is not the former one's any more."""
        return self._origins.pass_on(former, owner)

    def other_tenancies(self) -> list[str]:
        """The tenancies that share the ZooKeeper with this one, in order."""
        above, _, own = self._paths.root.rpartition("/")
        found = self._session.perform(lambda client: client.get_children_async(above))
        return sorted(set(found) - {own})

    def on_session(self, listener: Callable[[Session], None]) -> None:
        """Call this at every change of the session, on the log's thread."""
        self._session.on_session(listener)


def read_entries(
    session: ZooKeeperSession, paths: Paths, after: Position, entries_max: int
) -> list[Entry]:
    """The first entries after a position that are there now; those collected meanwhile are left
    out."""
    children = session.perform(lambda client: client.get_children_async(paths.log))
    wanted = sorted(p for p in entry_positions(children) if p > after)[:entries_max]
    entries: list[Entry] = []
    for start in range(0, len(wanted), NODES_MAX):
        entries.extend(_fetch(session, paths, wanted[start : start + NODES_MAX]))
    return entries


def _fetch(session: ZooKeeperSession, paths: Paths, positions: Sequence[Position]) -> list[Entry]:
    nodes = [paths.entry(position) for position in positions]
    found = session.perform(lambda client: read_nodes(client, nodes))
    return [
        decode_entry(position, data)
        for position, data in zip(positions, found, strict=True)
        if data is not None
    ]
