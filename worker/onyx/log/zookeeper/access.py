"""Access lists of a tenancy in ZooKeeper: one user, of the digest scheme, with a password.

Every node of a tenancy is created with an access list that names only this user. What is above
tenancies may be listed by everybody, and belongs to who closed it (`above`).

A node keeps the list that it was created with. So a tenancy that was created without a user is
refused to a process that has one: its entries would stay open to all, under settings that promise
otherwise.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from kazoo.security import ACL, Id, Permissions, make_acl, make_digest_acl_credential

from onyx.errors import SettingsError
from onyx.settings import ZooKeeperSettings

EVERYBODY = make_acl("world", "anyone", read=True)


class Password(str):
    """A text that libraries may print with `repr`, as kazoo does with each request."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'<hidden>'"


class Access(msgspec.Struct, frozen=True):
    """What a client shows, and the lists that it gives to nodes; empty without a user."""

    user: str = ""
    auth_data: tuple[tuple[str, Password], ...] = ()
    own: tuple[Any, ...] | None = None
    """The access list of all nodes of a tenancy; None means that everybody may do everything."""

    @property
    def closed(self) -> tuple[Any, ...] | None:
        """The access list of nodes above a tenancy."""
        return None if self.own is None else (*self.own, EVERYBODY)

    def read_by(self, other: Access) -> tuple[Any, ...] | None:
        """The access list of a node that another user may read."""
        if self.own is None:
            return None
        return (*self.own, *(ACL(Permissions.READ, each.id) for each in other.own or ()))


def read_access(settings: ZooKeeperSettings) -> Access:
    """The access that some settings name.

    Raises:
        SettingsError: one of the two is missing or cannot be used.
    """
    user, file = settings.auth_user, settings.auth_password_file
    if not user and not file:
        return Access()
    if not user or not file:
        missing = "AUTH_USER" if file else "AUTH_PASSWORD_FILE"
        raise SettingsError(
            f"ONYX_ZOOKEEPER_{missing} must be set too: a user and the file with its password"
        )
    if ":" in user:
        raise SettingsError(f"ONYX_ZOOKEEPER_AUTH_USER={user!r}: a user has no ':' in its name")
    password = _read_password(file)
    digest = Password(make_digest_acl_credential(user, password))
    return Access(
        user,
        (("digest", Password(f"{user}:{password}")),),
        (ACL(Permissions.ALL, Id("digest", digest)),),
    )


def _read_password(file: str) -> str:
    where = f"ONYX_ZOOKEEPER_AUTH_PASSWORD_FILE={file}"
    try:
        password = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise SettingsError(f"{where}: the file cannot be read: {why}") from None
    if not password:
        raise SettingsError(f"{where}: the file is empty; it must hold the password")
    return password
