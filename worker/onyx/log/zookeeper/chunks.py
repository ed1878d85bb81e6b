"""Documents under their content address (SHA-256), split where they are larger than a node may be.

A node holds one tag byte and then either the document itself or the digests of its pieces. Pieces
are stored before the list that names them, so a document whose node exists is complete. Writing is
idempotent, and reading checks what was read.
"""

from __future__ import annotations

import hashlib

from kazoo.exceptions import NodeExistsError, NoNodeError

from onyx.errors import InvariantViolated, Unavailable, UserError
from onyx.log.paths import Paths
from onyx.log.zookeeper.session import ZooKeeperSession

_WHOLE, _LIST = b"\x00", b"\x01"
_DIGEST_BYTES = 32


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

    def put(self, data: bytes) -> str:
        """Store a document; returns its digest in hex.

        Raises:
            UserError: it has more pieces than one list can name.
        """
        digest = hashlib.sha256(data)
        if len(data) <= self._piece_bytes:
            self._create(digest.hexdigest(), _WHOLE + data)
            return digest.hexdigest()
        starts = range(0, len(data), self._piece_bytes)
        if len(starts) * _DIGEST_BYTES > self._piece_bytes:
            raise UserError(f"a document of {len(data)} bytes is too large for the log's chunks")
        pieces = [self.put(data[start : start + self._piece_bytes]) for start in starts]
        self._create(digest.hexdigest(), _LIST + bytes.fromhex("".join(pieces)))
        return digest.hexdigest()

    def get(self, digest: str) -> bytes:
        """The document.

        Raises:
            Unavailable: it is not there.
            InvariantViolated: what is there is something else.
        """
        data = self._read(digest)
        if hashlib.sha256(data).hexdigest() != digest:
            raise InvariantViolated(f"chunk {digest} in ZooKeeper holds other content")
        return data

    def delete(self, digest: str) -> None:
        """Remove a document that nothing names any more; harmless when it is not there."""
        try:
            stored = self._load(digest)
        except Unavailable:
            return
        self._remove(digest)
        if stored[:1] == _LIST:
            for piece in _pieces(stored):
                self._remove(piece)

    def _read(self, digest: str) -> bytes:
        stored = self._load(digest)
        if stored[:1] == _LIST:
            return b"".join(self._load(piece)[1:] for piece in _pieces(stored))
        return stored[1:]

    def _load(self, digest: str) -> bytes:
        path = self._paths.chunk(digest)
        try:
            data, _ = self._session.perform(lambda client: client.get_async(path))
        except NoNodeError as error:
            raise Unavailable(f"chunk {digest} is not in ZooKeeper") from error
        return bytes(data)

    def _create(self, digest: str, data: bytes) -> None:
        path = self._paths.chunk(digest)
        try:
            self._session.perform(lambda client: client.create_async(path, data))
        except NodeExistsError:
            return

    def _remove(self, digest: str) -> None:
        path = self._paths.chunk(digest)
        try:
            self._session.perform(lambda client: client.delete_async(path))
        except NoNodeError:
            return


def _pieces(stored: bytes) -> list[str]:
    return [
        stored[start : start + _DIGEST_BYTES].hex()
        for start in range(1, len(stored), _DIGEST_BYTES)
    ]
