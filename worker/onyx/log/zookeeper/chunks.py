"""Documents under their content address (SHA-256), compressed, and split where they are larger than
a node may be.

    chunks/<sha256>            empty; its version counts how often somebody was about to name it
    chunks/<sha256>/whole      one tag byte, then the packed document, or the digests of its pieces
    chunks/<sha256>/<sha256>   a piece

`whole` is written last, in a transaction that checks the pieces: what has it is complete.

A document that nothing names any more is deleted, and the same content may be wanted again at that
moment. So whoever writes its digest somewhere *touches* it in the same transaction, and a
deletion checks the version that was read before it was looked up what is named. Either the deletion
comes first, and the other one finds no document and puts it again; or the touch does, and the
deletion fails. No clock decides that. The age below which nothing is deleted only keeps documents
that are put and not named yet.

Rejected: counts of references, which a process that dies leaves wrong; a lock, whose holder may
wake up after it has lost it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError, NoNodeError

from onyx.codec.packed import pack, unpack
from onyx.errors import StateError, Unavailable, UserError
from onyx.log.paths import Paths
from onyx.log.zookeeper.session import AllOf, ZooKeeperSession

PIECES_MAX = 1_000
"""Pieces of one document; they are checked in one transaction."""
ATTEMPTS_MAX = 10
AT_ONCE = 100
"""Nodes looked at in one round trip."""
_INLINE, _PIECES = b"\x00", b"\x01"
_DIGEST_BYTES = 32
_WHOLE = "whole"
_ANY_VERSION = -1


class Chunks:
    """The content-addressed documents of a tenancy.

    Args:
        chunk_bytes_max: Largest piece; also bounds the list of pieces.
    """

    def __init__(self, session: ZooKeeperSession, paths: Paths, chunk_bytes_max: int) -> None:
        assert chunk_bytes_max >= _DIGEST_BYTES
        self._session = session
        self._paths = paths
        self._piece_bytes = chunk_bytes_max

    def put(self, data: bytes, check_room: Callable[[int], None] = lambda _: None) -> str:
        """Store a document, or touch it if it is there; returns its digest in hex.

        Args:
            check_room: called with the bytes that are about to be added; raises if they are too
                many.

        Raises:
            UserError: it is too large.
        """
        digest, packed = hashlib.sha256(data).hexdigest(), b""
        for _ in range(ATTEMPTS_MAX):
            if self._touched(digest):
                return digest
            packed = packed or pack(data)
            pieces = self._split(packed)
            check_room(len(packed))
            try:
                self._write(digest, packed, pieces)
                return digest
            except NoNodeError:  # collected while it was written
                continue
        raise Unavailable(f"chunk {digest} is deleted again and again; try again")

    def touch(self, transaction: Any, digests: Collection[str]) -> int:
        """Add to a transaction that these documents are there and about to be named; the number of
        operations added. Any that fails says that a document is gone."""
        for digest in digests:
            node = self._paths.chunk(digest)
            transaction.check(f"{node}/{_WHOLE}", _ANY_VERSION)
            transaction.set_data(node, b"")
        return 2 * len(digests)

    def get(self, digest: str) -> bytes:
        """The document.

        Raises:
            Unavailable: it is not there.
            StateError: what is there is something else.
        """
        stored = self._load(digest, _WHOLE)
        packed = stored[1:]
        if stored[:1] == _PIECES:
            packed = b"".join(self._load(digest, piece) for piece in _names(stored)[:PIECES_MAX])
        try:
            data = unpack(packed)
        except ValueError as error:
            raise self._damaged(digest, str(error)) from None
        if hashlib.sha256(data).hexdigest() != digest:
            raise self._damaged(digest, "it holds something else than its name says")
        return data

    def _damaged(self, digest: str, why: str) -> StateError:
        return StateError(
            f"chunk {self._paths.chunk(digest)} in ZooKeeper is damaged: {why}. Restore the data "
            "of ZooKeeper, or delete the chunk and submit its job again"
        )

    def delete(self, digest: str, version: int = _ANY_VERSION) -> bool:
        """Remove a document if nobody has touched it since it had this version; False if somebody
        has, or it is not there."""
        node = self._paths.chunk(digest)
        try:
            children = self._session.perform(lambda client: client.get_children_async(node))
        except NoNodeError:
            return False

        def start(client: KazooClient) -> Any:
            transaction = client.transaction()
            transaction.check(node, version)
            for child in children:
                transaction.delete(f"{node}/{child}")
            transaction.delete(node)
            return transaction.commit_async()

        return not _failed(self._session.perform(start))

    def sweep(self, named: Callable[[], Collection[str]], before_ms: int) -> int:
        """Delete the documents that nothing names and nobody has touched since a time by the clock
        of ZooKeeper (milliseconds); how many went.

        `named` reads through this session what is named now. It is called before the versions are
        read, which spares reading most of them, and again afterwards, which is what counts.
        """
        children = self._session.perform(
            lambda client: client.get_children_async(self._paths.chunks)
        )
        versions = self._untouched(sorted(set(children).difference(named())), before_ms)
        if not versions:
            return 0
        kept = frozenset(named())
        return sum(
            self.delete(digest, version)
            for digest, version in versions.items()
            if digest not in kept
        )

    def _untouched(self, digests: Sequence[str], before_ms: int) -> dict[str, int]:
        """The versions of those that were touched last before a time."""
        found: dict[str, int] = {}
        for start in range(0, len(digests), AT_ONCE):
            some = digests[start : start + AT_ONCE]
            for digest, stat in zip(some, self._stats(some), strict=True):
                if stat is not None and stat.mtime < before_ms:
                    found[digest] = stat.version
        return found

    def _stats(self, digests: Sequence[str]) -> Sequence[Any]:
        nodes = [self._paths.chunk(each) for each in digests]
        found: Sequence[Any] = self._session.perform(
            lambda client: AllOf([client.exists_async(node) for node in nodes])
        )
        return found

    def _split(self, packed: bytes) -> list[bytes]:
        """The pieces of a document; none if it fits into a node."""
        if len(packed) <= self._piece_bytes:
            return []
        starts = range(0, len(packed), self._piece_bytes)
        if len(starts) > min(PIECES_MAX, self._piece_bytes // _DIGEST_BYTES):
            raise UserError(f"a document of {len(packed)} bytes is too large for the log's chunks")
        return [packed[start : start + self._piece_bytes] for start in starts]

    def _touched(self, digest: str) -> bool:
        def start(client: KazooClient) -> Any:
            transaction = client.transaction()
            self.touch(transaction, [digest])
            return transaction.commit_async()

        return not _failed(self._session.perform(start))

    def _write(self, digest: str, packed: bytes, pieces: Sequence[bytes]) -> None:
        """Raises NoNodeError when it is deleted meanwhile."""
        node = self._paths.chunk(digest)
        self._create(node, b"")
        names = [hashlib.sha256(piece).digest() for piece in pieces]
        for name, piece in zip(names, pieces, strict=True):
            self._create(f"{node}/{name.hex()}", piece)
        whole = _PIECES + b"".join(names) if pieces else _INLINE + packed

        def start(client: KazooClient) -> Any:
            transaction = client.transaction()
            for name in names:
                transaction.check(f"{node}/{name.hex()}", _ANY_VERSION)
            transaction.create(f"{node}/{_WHOLE}", whole)
            return transaction.commit_async()

        results = self._session.perform(start)
        if any(isinstance(each, NoNodeError) for each in results):
            raise NoNodeError

    def _load(self, digest: str, name: str) -> bytes:
        path = f"{self._paths.chunk(digest)}/{name}"
        try:
            data, _ = self._session.perform(lambda client: client.get_async(path))
        except NoNodeError as error:
            raise Unavailable(f"chunk {digest} is not in ZooKeeper") from error
        return bytes(data)

    def _create(self, path: str, data: bytes) -> None:
        try:
            self._session.perform(lambda client: client.create_async(path, data))
        except NodeExistsError:
            return


def _failed(results: Sequence[Any]) -> bool:
    return any(isinstance(each, Exception) for each in results)


def _names(stored: bytes) -> list[str]:
    return [
        stored[start : start + _DIGEST_BYTES].hex()
        for start in range(1, len(stored), _DIGEST_BYTES)
    ]
