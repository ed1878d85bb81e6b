"""What errors of a file system mean to whoever writes."""

from __future__ import annotations

import errno
import os

FULL = (errno.ENOSPC, errno.EDQUOT)
UNUSABLE = (
    errno.EACCES,
    errno.EEXIST,  # of a folder: its name is taken, by a link to nowhere for example
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENOTDIR,
    errno.EPERM,
    errno.EROFS,
)


def is_full(error: BaseException) -> bool:
    """Whether a disk was full. Java and Spark have only the system's text for it."""
    return any(os.strerror(number) in str(error) for number in FULL)
