"""The origin: the replica that the log starts from, and the identity of the log.

The node `origin` has the position, the digest of the replica (a chunk) and the `czxid` of the log,
the number of the transaction that created it. When a log is made anew, positions start again, and a
replica that continued would be silently wrong. So every process compares the `czxid` when it
connects and in every listing.

Invariant: a reader that finds its next entry missing finds an origin that contains the entry. So a
collection moves the origin first, and then deletes entries from the lowest. Two collections at once
are harmless: the version check only lets the origin advance, and deleting is idempotent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NodeExistsError

from onyx.base.structs import prepared, stored
from onyx.errors import LogReplaced, Unavailable, UserError
from onyx.ids import NO_POSITION, Position
from onyx.log.interface import Origin
from onyx.log.paths import Paths, entry_positions
from onyx.log.zookeeper.above import make, make_above
from onyx.log.zookeeper.chunks import Chunks
from onyx.log.zookeeper.session import AllOf, ReplyLost, ZooKeeperSession
from onyx.settings import CloseRoot

READ_ATTEMPTS_MAX = 5
"""The replica of an origin may be deleted while it is read, when a newer origin replaces it."""
DELETES_AT_ONCE = 100
NUMBERS_AT_ONCE = 500
"""Nodes made and deleted in one transaction; each takes a hundred bytes of it."""
_FILLER = "number"


@prepared
class _Stored(msgspec.Struct, forbid_unknown_fields=True):
    position: int
    digest: str
    log_czxid: int


class Origins:
    """The origin of a tenancy.

    Args:
        close_root: whether a ZooKeeper is closed to everybody (`above`).
        expected_czxid: Identity of the log that this process knew before; None if it knew none.

    Raises:
        LogReplaced: the log was recreated since the origin was written or the identity was known.
    """

    def __init__(
        self,
        session: ZooKeeperSession,
        paths: Paths,
        chunks: Chunks,
        close_root: CloseRoot,
        expected_czxid: int | None = None,
    ) -> None:
        self._session = session
        self._paths = paths
        self._chunks = chunks
        self._close_root = close_root
        self.log_czxid = self._establish()
        if expected_czxid not in (None, self.log_czxid):
            raise self.recreated()

    def read(self, above: Position = NO_POSITION) -> Origin | None:
        """The origin if its position is greater than `above`.

        Raises:
            Unavailable: its replica cannot be read.
        """
        failure: Unavailable | None = None
        for _ in range(READ_ATTEMPTS_MAX):
            stored, _ = self._load()
            if stored.position <= above:
                return None
            try:
                return Origin(Position(stored.position), self._chunks.get(stored.digest))
            except Unavailable as error:
                failure = error
        assert failure is not None
        raise failure

    def collect(self, origin: Origin) -> bool:
        """Move the origin forward and delete the entries that it contains.

        Returns False when a later origin is there already (entries are deleted all the same).
        """
        moved = self._move(origin)
        stored, _ = self._load()
        self._delete_through(Position(stored.position))
        return moved

    def begin_with(self, origin: Origin) -> bool:
        """Begin an empty log with a replica; False if anything has ever been in it.

        A server numbers entries by how many nodes it has made below the log, and nobody can set
        that. So as many are made as the log had before, each deleted in the transaction that makes
        it. The origin is moved last: whoever is killed before may begin again.
        """
        old, version = self._load()
        if old.position != NO_POSITION:
            digest = hashlib.sha256(origin.replica).hexdigest()
            return (old.position, old.digest) == (origin.position, digest)
        digest = self._chunks.put(origin.replica)
        failed = 0
        while (left := self._left_to(origin.position + 1)) > 0:
            # Not repeated blindly: what is in doubt is counted again.
            try:
                self._session.attempt(partial(self._number, min(left, NUMBERS_AT_ONCE)))
            except ReplyLost:
                failed += 1
                if failed == READ_ATTEMPTS_MAX:
                    raise self._session.silent() from None
        # An entry that has come meanwhile has a number that is too low, or is in the way.
        empty = left == 0 and self._next_number() == (origin.position + 1, 0)
        return empty and self._replace(_Stored(origin.position, digest, self.log_czxid), version)

    def _left_to(self, following: int) -> int:
        """How many nodes are to be made until the next one has this number; -1 if it never has, or
        entries are there."""
        number, entries = self._next_number()
        return -1 if entries or number > following else following - number

    def _next_number(self) -> tuple[int, int]:
        """The number of the next entry, and how many there are."""
        stat = self._session.perform(lambda client: client.exists_async(self._paths.log))
        # As the server counts: each node that was made or deleted is a change.
        return (stat.cversion + stat.numChildren) // 2, stat.numChildren

    def _number(self, count: int, client: KazooClient) -> Any:
        transaction = client.transaction()
        for _ in range(count):
            transaction.create(f"{self._paths.log}/{_FILLER}")
            transaction.delete(f"{self._paths.log}/{_FILLER}")
        return transaction.commit_async()

    def establish(self, parameters: Mapping[str, str]) -> Mapping[str, str]:
        """Write the parameters of the replica before the first entry if nobody has; return those
        that hold."""
        path = self._paths.parameters
        data = msgspec.json.encode(dict(parameters))
        try:
            self._session.perform(lambda client: client.create_async(path, data))
        except NodeExistsError:
            data, _ = self._session.perform(lambda client: client.get_async(path))
        found: dict[str, str] = stored(data, dict[str, str], f"{path} in ZooKeeper", self._remedy)
        return found

    def claim(self, owner: str) -> str:
        """Write who has the tenancy if nobody has; return who it is."""
        path, data = self._paths.owner, owner.encode()
        try:
            self._session.perform(lambda client: client.create_async(path, data))
        except NodeExistsError:
            data, _ = self._session.perform(lambda client: client.get_async(path))
        return bytes(data).decode(errors="replace")

    def pass_on(self, former: str, owner: str) -> bool:
        """Give the tenancy to another owner; False if it is not the former one's any more."""
        path = self._paths.owner
        data, stat = self._session.perform(lambda client: client.get_async(path))
        if bytes(data) != former.encode():
            return False
        try:
            self._session.perform(
                lambda client: client.set_async(path, owner.encode(), stat.version)
            )
        except BadVersionError:
            return self.claim(owner) == owner
        return True

    def recreated(self) -> LogReplaced:
        """What to tell when the log is not the one that this process knows."""
        return LogReplaced(
            f"the log {self._paths.log} was deleted and made anew, or ZooKeeper lost its data: "
            "positions start again, so nothing may go on from what was known. Restore "
            f"ZooKeeper's data, or delete {self._paths.root} as a whole (this forgets all jobs) "
            "and start every worker again"
        )

    def _establish(self) -> int:
        session, paths = self._session, self._paths
        self._claim()
        for path in (paths.log, paths.pulses, paths.chunks, paths.documents):
            session.ensure_path(path)
        czxid: int = session.perform(lambda client: client.exists_async(paths.log)).czxid
        first = msgspec.json.encode(_Stored(NO_POSITION, "", czxid))
        try:
            session.perform(lambda client: client.create_async(paths.origin, first))
        except NodeExistsError:
            stored, _ = self._load()
            if stored.log_czxid != czxid:
                raise self.recreated() from None
        return czxid

    def _claim(self) -> None:
        """Make sure that the nodes of the tenancy belong to our user, if we have one."""
        session, paths = self._session, self._paths
        make_above(session, self._close_root)
        make(session, paths.root, session.access.own)
        if session.access.own is None:
            return
        found, _ = session.perform(lambda client: client.get_acls_async(paths.root))
        if tuple(found) != session.access.own:
            is_open = any(each.id.scheme == "world" for each in found)
            raise UserError(
                f"{paths.root} in ZooKeeper "
                + (
                    "was made without access control, and everybody can read and write what is "
                    "there"
                    if is_open
                    else f"belongs to another user than {session.access.user}"
                )
                + ". Choose another tenancy_id, or delete it as a whole (this forgets all jobs)"
            )

    def _load(self) -> tuple[_Stored, int]:
        data, stat = self._session.perform(lambda client: client.get_async(self._paths.origin))
        return stored(
            data, _Stored, f"{self._paths.origin} in ZooKeeper", self._remedy
        ), stat.version

    @property
    def _remedy(self) -> str:
        return f"restore it, or delete {self._paths.root} as a whole (this forgets all jobs)"

    def named(self) -> str:
        """The digest of the replica of the origin; empty when there is none."""
        return self._load()[0].digest

    def _move(self, origin: Origin) -> bool:
        while True:
            old, version = self._load()
            if old.position >= origin.position:
                same = hashlib.sha256(origin.replica).hexdigest() == old.digest
                return old.position == origin.position and same
            digest = self._chunks.put(origin.replica)
            if not self._replace(_Stored(origin.position, digest, self.log_czxid), version):
                continue
            if old.digest and old.digest != digest:
                self._chunks.delete(old.digest)
            return True

    def _replace(self, new: _Stored, version: int) -> bool:
        """False if there is another origin by now, or the replica has been collected."""

        def start(client: KazooClient) -> Any:
            transaction = client.transaction()
            self._chunks.touch(transaction, [new.digest])
            transaction.set_data(self._paths.origin, msgspec.json.encode(new), version)
            return transaction.commit_async()

        return not any(isinstance(each, Exception) for each in self._session.perform(start))

    def _delete_through(self, last: Position) -> None:
        children = self._session.perform(lambda client: client.get_children_async(self._paths.log))
        paths = [
            self._paths.entry(position)
            for position in sorted(entry_positions(children))
            if position <= last
        ]
        for start in range(0, len(paths), DELETES_AT_ONCE):
            self._delete(paths[start : start + DELETES_AT_ONCE])

    def _delete(self, paths: Sequence[str]) -> None:
        self._session.perform(lambda client: AllOf([client.delete_async(path) for path in paths]))
