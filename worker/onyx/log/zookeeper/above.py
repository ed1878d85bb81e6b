"""What lies above the tenancies of a ZooKeeper, and how it is closed to strangers.

A server keeps all its nodes in memory, and those that it makes by itself (`/`, `/zookeeper`,
`/zookeeper/quota`) are everybody's: whoever reaches the port can fill it. So a process with a user
closes them: they, and `/onyx`, are that user's, and others may read. It looks at each start, for
nodes that were open before. Without a user nothing changes.

In a `/` that is closed, no other program makes nodes of its own. So it is closed if there is
nothing in it but ours, unless `ONYX_ZOOKEEPER_CLOSE_ROOT` says otherwise; `onyx zookeeper` closes
its own always. `/onyx` is nobody else's and is closed in any case. Its owner admits tenancies of
others to it (`onyx admit`), each under the access list of its user.

Paths are those of the connect string: below a path that it ends with, the nodes of ZooKeeper itself
are not seen, and whoever owns that ZooKeeper closes them.
"""

from __future__ import annotations

import logging
from contextlib import closing
from functools import partial
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError
from kazoo.security import Permissions

from onyx.errors import UserError
from onyx.log.paths import ABOVE, Paths
from onyx.log.zookeeper.access import Access
from onyx.log.zookeeper.session import Denied, ZooKeeperSession
from onyx.log.zookeeper.usage import Counted
from onyx.settings import CloseRoot, ZooKeeperSettings
from onyx.tls.files import CertificateFiles

logger = logging.getLogger("onyx.log")

ROOT = "/"
OF_SERVER = ("/zookeeper", "/zookeeper/quota", f"/zookeeper/quota{ABOVE}")
"""Nodes that a server makes by itself, open to all, and one where it counts (`usage`)."""
OURS = frozenset((ABOVE[1:], "zookeeper"))
"""What `/` has in it when nobody else uses the ZooKeeper."""
SHOWN_MAX = 5


def make_above(session: ZooKeeperSession, close_root: CloseRoot) -> None:
    """Make `/onyx`, and close it and what is above it if this process shows a user.

    Raises:
        UserError: it may not be made.
        Fenced, Unavailable: as `ZooKeeperSession.perform`.
    """
    make(session, ABOVE, session.access.closed)
    if session.access.own is not None:
        _close(session, ABOVE)
        close_server(session, close_root)


def close_server(session: ZooKeeperSession, close_root: CloseRoot) -> bool:
    """Close the nodes of the server itself; whether nobody but their owner may add any now.

    Raises:
        Fenced, Unavailable: as `ZooKeeperSession.perform`.
    """
    if close_root == "never" or not _is_open(session, (ROOT, *OF_SERVER)):
        return close_root != "never"
    others = sorted(set(session.perform(lambda client: client.get_children_async(ROOT))) - OURS)
    if others and close_root == "alone":
        shown = ", ".join(others[:SHOWN_MAX]) + (", ..." if others[SHOWN_MAX:] else "")
        logger.warning(
            "everybody may fill ZooKeeper at %s: its / is open, and stays so because others have "
            "nodes there (%s). Set ONYX_ZOOKEEPER_CLOSE_ROOT to always, which keeps them from "
            "making more such nodes, or to never",
            session.address,
            shown,
        )
        return False
    closed = [_close(session, path) for path in (ROOT, *OF_SERVER)]
    return all(closed)


def close_server_of(
    zookeeper: ZooKeeperSettings, certificates: CertificateFiles | None = None
) -> bool:
    """Close the nodes of the server at an address, as `close_server`, in a session for that."""
    with closing(ZooKeeperSession(zookeeper, "onyx-close", True, certificates)) as session:
        return close_server(session, zookeeper.close_root)


def admit(zookeeper: ZooKeeperSettings, tenancy: str, other: Access) -> None:
    """Make the node of a tenancy that belongs to another user.

    Raises:
        UserError: there is such a tenancy, or this process may not add one.
        Unavailable: no ZooKeeper answered.
    """
    root = Paths(tenancy).root
    with closing(ZooKeeperSession(zookeeper, "onyx-admit", True)) as session:
        make_above(session, zookeeper.close_root)
        try:
            session.perform(lambda client: client.create_async(root, b"", acl=other.own))
            Counted(session, Paths(tenancy)).begin(session.access.admitting(other))
        except NodeExistsError:
            raise UserError(
                f"{root} is there already in ZooKeeper at {session.address}: choose another tenancy"
            ) from None
        except Denied:
            raise UserError(
                f"ZooKeeper at {session.address}: only the user to whom {ABOVE} belongs adds "
                f"tenancies, and ONYX_ZOOKEEPER_AUTH_USER is {session.access.user!r}"
            ) from None


def make(session: ZooKeeperSession, path: str, acl: tuple[Any, ...] | None) -> None:
    """Make a node where it is missing, and those above it.

    Raises:
        UserError: it is missing, and this process may not make it.
        Fenced, Unavailable: as `ZooKeeperSession.perform`.
    """
    if session.perform(lambda client: client.exists_async(path)) is not None:
        return
    try:
        session.perform(lambda client: client.ensure_path_async(path, acl))
    except Denied:
        raise UserError(_not_admitted(session, path)) from None


def _not_admitted(session: ZooKeeperSession, path: str) -> str:
    above, _, name = path.rpartition("/")
    missing = f"ZooKeeper at {session.address} has no {path}, and this process may not make it: "
    if not above:
        return (
            f"{missing}its / belongs to another user. Let that user make {path} with all rights "
            "for yours, or end ONYX_ZOOKEEPER_ADDRESS with a path that is yours, such as /team"
        )
    user = session.access.user
    if not user:
        return (
            f"{missing}{above} belongs to a user, and this process shows none. Set "
            "ONYX_ZOOKEEPER_AUTH_USER and ONYX_ZOOKEEPER_AUTH_PASSWORD_FILE"
        )
    return (
        f"{missing}{above} belongs to another user than {user}, or to that one with another "
        "password. Let its owner run "
        f"`onyx admit {name} --user {user} --password-file FILE`"
    )


def _is_open(session: ZooKeeperSession, paths: tuple[str, ...]) -> bool:
    return any(_open_version(session, path) is not None for path in paths)


def _open_version(session: ZooKeeperSession, path: str) -> int | None:
    """The version of an access list by which everybody may do more than read; None of another, and
    of a node that is not there."""
    try:
        acl, stat = session.perform(lambda client: client.get_acls_async(path))
    except (NoNodeError, Denied):
        return None
    is_open = any(each.id.scheme == "world" and each.perms & ~Permissions.READ for each in acl)
    return int(stat.aversion) if is_open else None


def _close(session: ZooKeeperSession, path: str) -> bool:
    """Close a node if it is open; False if this process may not."""
    closed = session.access.closed
    assert closed is not None, "closed by who shows a user"
    while (seen := _open_version(session, path)) is not None:
        try:
            session.perform(partial(_set_acls, path, closed, seen))
        except BadVersionError:  # somebody else closes it at this moment
            continue
        except Denied:
            logger.warning(
                "everybody may fill ZooKeeper at %s: %s is open, and this process may not close "
                "it; let its owner do so",
                session.address,
                path,
            )
            return False
    return True


def _set_acls(path: str, acl: tuple[Any, ...], version: int, client: KazooClient) -> Any:
    return client.set_acls_async(path, acl, version)
