"""A name for a user id that has none, as a container may be given any id.

Hadoop, on which Spark stands, asks the system for the name of the user and refuses to start without
one; no setting or variable of Hadoop, Spark or Java goes before that. `libnss_wrapper` (a package
of every distribution) answers from a file of our own instead of `/etc/passwd`, which nobody may
write on a read-only root file system.
"""

from __future__ import annotations

import glob
import os
import pwd
from pathlib import Path

from onyx.errors import SettingsError

NAME = "onyx"
LIBRARIES = ("/usr/lib*", "/usr/lib/*", "/usr/local/lib")
"""Folders, as patterns, in which the library may be."""


def environment(scratch: Path) -> dict[str, str]:
    """Variables with which a program finds a name for this user; none when there is one already.

    Args:
        scratch: folder for a file of users, and the home of this one.

    Raises:
        SettingsError: there is no name and no library to give one.
    """
    user = os.getuid()
    try:
        pwd.getpwuid(user)
        return {}
    except KeyError:
        pass
    found = sorted(path for each in LIBRARIES for path in glob.glob(f"{each}/libnss_wrapper.so"))
    if not found:
        raise SettingsError(
            f"Spark does not start for user {user}, who has no name: add the user to /etc/passwd "
            "of the image, or install libnss-wrapper in it"
        )
    users = scratch / "passwd"
    known = Path("/etc/passwd").read_text(encoding="utf-8", errors="replace")
    users.write_text(f"{known}{NAME}:x:{user}:{os.getgid()}::{scratch}:/bin/false\n", "utf-8")
    return {
        "LD_PRELOAD": " ".join(filter(None, [os.environ.get("LD_PRELOAD"), found[0]])),
        "NSS_WRAPPER_PASSWD": str(users),
        "NSS_WRAPPER_GROUP": "/etc/group",
    }
