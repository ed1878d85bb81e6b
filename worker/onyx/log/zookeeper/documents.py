"""Small versioned documents beside the log, written by compare-and-set on their version.

A group's write checks its pulse in the same transaction: an incarnation that was declared dead
cannot move a frontier ("Fencing" in docs/architecture.md). After a lost reply the document is read:
it is ours if it has the version that ours would have, and our content.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, NotEmptyError

from onyx.errors import Fenced, UserError
from onyx.ids import GroupId
from onyx.log.interface import ChunkGone, Document
from onyx.log.paths import Paths, document_name, folder_name
from onyx.log.zookeeper.chunks import Chunks
from onyx.log.zookeeper.session import AllOf, ReplyLost, ZooKeeperSession

ATTEMPTS_MAX = 10
DELETES_AT_ONCE = 100


class Documents:
    """The documents of a tenancy, as seen by one session.

    Args:
        document_bytes_max: Largest document.
        fence: Group whose pulse every write checks; None for clients.
    """

    def __init__(
        self,
        session: ZooKeeperSession,
        paths: Paths,
        chunks: Chunks,
        document_bytes_max: int,
        fence: GroupId | None = None,
    ) -> None:
        self._session = session
        self._paths = paths
        self._chunks = chunks
        self._bytes_max = document_bytes_max
        self._fence = fence

    def get(self, path: str) -> Document | None:
        """The document, or None if there is none."""
        node = self._paths.document(path)
        try:
            data, stat = self._session.perform(lambda client: client.get_async(node))
        except NoNodeError:
            return None
        return Document(bytes(data), stat.version)

    def put(
        self, path: str, data: bytes, version: int | None, names: Sequence[str] = ()
    ) -> int | None:
        """Create or replace; the new version, or None when somebody else was first.

        Args:
            names: digests of chunks that the document names.

        Raises:
            ChunkGone: one of them has been collected; nothing was written.
            Fenced: the pulse of the group is gone.
            UserError: the document is too large.
        """
        if len(data) > self._bytes_max:
            raise UserError(
                f"document {path} has {len(data)} bytes, at most {self._bytes_max} are kept; "
                "put large values into a chunk (`put_chunk`)"
            )
        written = 0 if version is None else version + 1
        for attempt in range(ATTEMPTS_MAX):
            try:
                done = self._try(path, data, version, names)
            except ReplyLost:
                continue
            if not done and attempt > 0:
                done = self.get(path) == Document(data, written)
            return written if done else None
        raise self._session.silent()

    def names(self, folder: str) -> Sequence[str]:
        """Sorted names of the documents in a folder."""
        children = self._children(folder)
        return sorted(name for child in children if (name := document_name(child)) is not None)

    def folders(self, folder: str) -> Sequence[str]:
        """Sorted names of the folders in a folder."""
        children = self._children(folder)
        return sorted(name for child in children if (name := folder_name(child)) is not None)

    def delete(self, path: str) -> None:
        """Delete a document and those in the folder of the same name; idempotent.

        Raises:
            Fenced: the pulse of the group is gone.
        """
        folder = self._paths.folder(path)
        nodes = [f"{folder}/={name}" for name in self.names(path)]
        for start in range(0, len(nodes), DELETES_AT_ONCE):
            self._delete(nodes[start : start + DELETES_AT_ONCE])
        self._delete([self._paths.document(path)])
        with suppress(NotEmptyError):  # folders are left, and what was written meanwhile
            self._delete([folder])

    def _children(self, folder: str) -> Sequence[str]:
        node = self._paths.folder(folder)
        try:
            found: Sequence[str] = self._session.perform(
                lambda client: client.get_children_async(node)
            )
        except NoNodeError:
            return ()
        return found

    def _delete(self, nodes: Sequence[str]) -> None:
        if self._fence is None:
            self._session.perform(
                lambda client: AllOf([client.delete_async(node) for node in nodes])
            )
            return
        pulse = self._paths.pulse(self._fence)

        def start(client: KazooClient, node: str) -> Any:
            transaction = client.transaction()
            transaction.check(pulse, -1)
            transaction.delete(node)
            return transaction.commit_async()

        for results in self._session.perform(
            lambda client: AllOf([start(client, node) for node in nodes])
        ):
            if isinstance(results[0], NoNodeError):
                raise Fenced(f"group {self._fence} was declared dead and may not delete documents")
            if isinstance(results[1], NotEmptyError):
                raise results[1]

    def _try(self, path: str, data: bytes, version: int | None, names: Sequence[str]) -> bool:
        node = self._paths.document(path)
        if version is None:
            self._session.ensure_path(node.rpartition("/")[0])

        def start(client: KazooClient) -> Any:
            transaction = client.transaction()
            if self._fence is not None:
                transaction.check(self._paths.pulse(self._fence), -1)
            self._chunks.touch(transaction, names)
            if version is None:
                transaction.create(node, data)
            else:
                transaction.set_data(node, data, version)
            return transaction.commit_async()

        results = self._session.attempt(start)
        if self._fence is not None and isinstance(results[0], NoNodeError):
            raise Fenced(f"group {self._fence} was declared dead and may not write {path}")
        if any(isinstance(each, NoNodeError) for each in results[:-1]):
            raise ChunkGone(f"what document {path} names was collected before; try again")
        outcome = results[-1]
        if isinstance(outcome, NodeExistsError | BadVersionError | NoNodeError):
            return False
        if isinstance(outcome, Exception):
            raise outcome
        return True
