"""fsync for directory entries: a name that is in a directory after a loss of power.

`fsync` of a file makes its bytes durable, but not the entry that names it: that belongs to the
directory. Whoever creates or renames a file syncs the directory after it.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path


def make_durable_directory(directory: Path, mode: int | None = None) -> None:
    """Make a directory that survives a loss of power, with its missing parents.

    Arguments:
        mode: of the directory if it is not there yet, whatever the umask; None leaves it to that,
            as it is left for parents that are missing.

    Raises:
        OSError: it cannot be made.
    """
    missing = list(itertools.takewhile(lambda each: not each.exists(), _upwards(directory)))
    if not missing:
        return
    directory.mkdir(0o777 if mode is None else 0o700, parents=True, exist_ok=True)
    if mode is not None:
        directory.chmod(mode)
    for each in missing:
        sync_directory(each.parent)


def sync_directory(directory: Path) -> None:
    """Make the entries of a directory durable: files created, renamed or removed in it before.

    Raises:
        OSError: the directory is gone, or the disk fails.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _upwards(directory: Path) -> list[Path]:
    absolute = directory.absolute()
    return [absolute, *absolute.parents]
