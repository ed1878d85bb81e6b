"""Access lists of a tenancy in ZooKeeper: one user, of the digest scheme, with a password.

Every node of a tenancy is created with an access list that names only this user. What is above
tenancies may be listed by everybody, and belongs to who closed it (`above`).

A node keeps the list that it was created with. So a tenancy that was created without a user is
refused to a process that has one: its entries would stay open to all, under settings that promise
otherwise.

Whoever owns what is above may keep tenancies apart: each has a user of its own name then, whose
password follows from that name and the owner's. So the owner comes into all of them and remembers
nothing, and no tenancy leads to another one. The owner's digest in each list was rejected: every
process of every tenancy would have it.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

import msgspec
from kazoo.security import ACL, Id, Permissions, make_acl, make_digest_acl_credential

from onyx.errors import SettingsError
from onyx.settings import ZooKeeperSettings

EVERYBODY = make_acl("world", "anyone", read=True)
_COST = {"n": 2**14, "r": 8, "p": 1}
"""The cost of scrypt: 16 MiB and some 50 ms for each guess at the owner's password, by who has
another one that follows from it."""


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
    above: tuple[Any, ...] | None = None
    """The access list of the owner of what is above, if that is another user."""

    @property
    def owners(self) -> tuple[Any, ...] | None:
        """The access list of nodes for the owner of what is above alone."""
        return self.above or self.own

    @property
    def closed(self) -> tuple[Any, ...] | None:
        """The access list of nodes above a tenancy."""
        return None if self.owners is None else (*self.owners, EVERYBODY)

    @property
    def shown(self) -> tuple[Any, ...] | None:
        """The access list of nodes that their owner shows to the tenancy."""
        if self.above is None:
            return self.own
        return (*self.above, *(ACL(Permissions.READ, each.id) for each in self.own or ()))

    def admitting(self, other: Access) -> Access:
        """The access of the owner of what is above to the tenancy of another user."""
        return Access(other.user, (*self.auth_data, *other.auth_data), other.own, self.own)


def read_access(settings: ZooKeeperSettings, tenancy: str = "") -> Access:
    """The access that some settings name.

    Args:
        settings: user and file with the password.
        tenancy: where `auth_per_tenancy` is set, its user too; empty: only the owner of them all.

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
    owner = _access(user, _read_password(file))
    if not (settings.auth_per_tenancy and tenancy):
        return owner
    return owner.admitting(_access(*account_of(tenancy, settings)))


def account_of(tenancy: str, settings: ZooKeeperSettings) -> tuple[str, Password]:
    """User and password of a tenancy that is kept apart, for the owner of what is above.

    Raises:
        SettingsError: the owner's password cannot be read.
    """
    owner, user = _read_password(settings.auth_password_file), f"tenancy-{tenancy}"
    drawn = hashlib.scrypt(owner.encode(), salt=user.encode(), **_COST)
    return user, Password(base64.urlsafe_b64encode(drawn).decode().rstrip("="))


def _access(user: str, password: str) -> Access:
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
