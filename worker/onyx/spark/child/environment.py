"""The environment of a process that runs Spark: variables, a Java, and a name for its user.

Hadoop, on which Spark stands, asks the system for the name of the user and refuses to start without
one, and a container may be given any user id; no setting or variable of Hadoop, Spark or Java goes
before that. `libnss_wrapper` (a package of every distribution) answers from a file of our own
instead of `/etc/passwd`, which nobody may write on a read-only root file system.
"""

from __future__ import annotations

import glob
import os
import pwd
import sys
from collections.abc import Mapping
from pathlib import Path

from onyx.errors import SettingsError
from onyx.java import java_home_for_spark
from onyx.rights import rights_of
from onyx.settings import from_environment
from onyx.spark.session import connect
from onyx.spark.session.masters import is_local

_ELSEWHERE = {
    "MASTER",
    "SPARK_API_MODE",
    "SPARK_CONNECT_MODE",
    "SPARK_CONNECT_MODE_ENABLED",
    "SPARK_LOCAL_REMOTE",
    "SPARK_REMOTE",
}
"""Variables by which PySpark runs elsewhere than the task says; some it sets by itself."""
USER_NAME = "onyx"
LIBRARIES = ("/usr/lib*", "/usr/lib/*", "/usr/local/lib")
"""Folders, as patterns, in which the library may be."""


def environment(
    master: str, scratch: str, taken: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Ours, with a Java that Spark can use and the modules that we can import.

    The child and Spark's own Python workers must find the user's code. Where Spark runs is for the
    job to say: a worker whose user has used Spark Connect would start no other master any more.

    Arguments:
        master: where Spark is to run.
        scratch: folder for temporary files.
        taken: `inherited()`, if the caller has asked for it.

    Raises:
        SettingsError: there is no Java that Spark can use, or this user has no name.
    """
    found = {
        **(inherited() if taken is None else taken),
        "TMPDIR": scratch,
        "JAVA_HOME": str(java_home_for_spark()),
        **named_user(Path(scratch)),
    }
    if not _shows_token(master, found):
        found.pop(connect.OF_PYSPARK, None)
    if is_local(master):  # a machine whose own name does not resolve is no obstacle
        found.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return found


def inherited() -> dict[str, str]:
    """What a child takes over from this process: variables, and the modules that we can import. A
    child that began with other ones serves no request of now."""
    return {
        **{name: value for name, value in os.environ.items() if name not in _ELSEWHERE},
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


def _shows_token(master: str, variables: Mapping[str, str]) -> bool:
    """Whether PySpark may have its own variable with a token, which it shows to any server behind
    TLS: one that a job names gets what the owner of the worker lets jobs name."""
    if connect.is_own(master, variables):
        return not variables.get(connect.FILE_VARIABLE)  # with both PySpark would speak TLS
    rights = rights_of(from_environment(variables))
    return rights.why_not_variable(connect.OF_PYSPARK) is None


def named_user(scratch: Path) -> dict[str, str]:
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
    users.write_text(f"{known}{USER_NAME}:x:{user}:{os.getgid()}::{scratch}:/bin/false\n", "utf-8")
    return {
        "LD_PRELOAD": " ".join(filter(None, [os.environ.get("LD_PRELOAD"), found[0]])),
        "NSS_WRAPPER_PASSWD": str(users),
        "NSS_WRAPPER_GROUP": "/etc/group",
    }
