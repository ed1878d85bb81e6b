"""`onyx admit`: make a tenancy for another user of a ZooKeeper that is closed.

The first user of a ZooKeeper closes it, so that nobody else can fill it, and adds the tenancies of
others. The command is theirs who have that user's password; it needs that of the other, because the
access list of a node holds a digest of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from msgspec.structs import replace

from onyx.cli.command_line import Argument, Option
from onyx.cli.options import ZooKeeperOption
from onyx.log.zookeeper.above import admit as admit_tenancy
from onyx.log.zookeeper.access import read_access
from onyx.processes.surroundings import settings


def admit(
    tenancy: Annotated[str, Argument("The tenancy to make.")],
    user: Annotated[str, Option("--user", "Who is to have it, ONYX_ZOOKEEPER_AUTH_USER there.")],
    password_file: Annotated[Path, Option("--password-file", "File with the password of --user.")],
    zookeeper: ZooKeeperOption = None,
) -> None:
    """Make a tenancy of ZooKeeper for another user.

    ONYX_ZOOKEEPER_AUTH_USER and ONYX_ZOOKEEPER_AUTH_PASSWORD_FILE are those of the user to whom
    /onyx belongs.
    """
    found = settings(zookeeper).zookeeper
    other = replace(found, auth_user=user, auth_password_file=str(password_file))
    admit_tenancy(found, tenancy, read_access(other))
    print(f"the tenancy {tenancy} is there for user {user}")
