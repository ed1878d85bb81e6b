"""How files are opened, made durable and failed at in folders of a file system.

A folder below a root is one that no path can leave: names without separators, and no links. A path
is opened name by name, each relative to the folder before it and never through a link (`openat`,
`O_NOFOLLOW`). Operations are relative to the folder that is held open. So a link can neither
redirect a read, a write nor a removal, even if it is created at that very moment. Resolving a path
and checking that it is below the root was rejected: between check and use it may change. The root
itself may be a link: the operator of the worker has chosen it.

`fsync` of a file makes its bytes durable, but not the entry that names it: that belongs to the
directory. Whoever creates or renames a file syncs the directory after it.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

BY_UMASK = -1
"""A mode: whatever the umask leaves."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NO_LINK = _FOLDER | os.O_NOFOLLOW


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


@contextlib.contextmanager
def opened(root: Path | int, names: Sequence[str], make_mode: int | None = None) -> Iterator[int]:
    """A descriptor of a folder below a root.

    Arguments:
        root: a path, or the descriptor of a folder that is held open.
        names: of the folders on the way, each without a separator.
        make_mode: mode of folders that are missing and are then made, durably; `BY_UMASK`; None
            makes none.

    Raises:
        OSError: FileNotFoundError when it is not there; ENOTDIR or ELOOP for a file or a link.
    """
    folder = os.open(root, _FOLDER) if isinstance(root, Path) else os.dup(root)
    try:
        for name in names:
            inner = _entered(folder, name, make_mode)
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


def leads_to(path: Path, folder: int) -> bool:
    """Whether a path still leads to a folder that is held open."""
    try:
        return os.path.samestat(path.stat(), os.fstat(folder))
    except FileNotFoundError:
        return False


def remove_tree(folder: int, name: str) -> None:
    """Remove what has this name in an open folder as far as that is possible: a folder with all
    that is in it, of a link the link alone."""
    with contextlib.suppress(OSError):
        os.unlink(name, dir_fd=folder)
        return
    shutil.rmtree(name, ignore_errors=True, dir_fd=folder)


def _entered(folder: int, name: str, make_mode: int | None) -> int:
    """The folder of this name in another one."""
    assert name not in ("", ".", ".."), name
    assert "/" not in name, name
    try:
        return os.open(name, _NO_LINK, dir_fd=folder)
    except FileNotFoundError:
        if make_mode is None:
            raise
    with contextlib.suppress(FileExistsError):
        if make_mode == BY_UMASK:
            os.mkdir(name, dir_fd=folder)
            os.fsync(folder)
            return os.open(name, _NO_LINK, dir_fd=folder)
        os.mkdir(name, 0o700, dir_fd=folder)
        made = os.open(name, _NO_LINK, dir_fd=folder)
        try:
            os.fchmod(made, make_mode)  # whatever the umask is
        finally:
            os.close(made)
    os.fsync(folder)
    return os.open(name, _NO_LINK, dir_fd=folder)


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


def _upwards(directory: Path) -> Iterator[Path]:
    absolute = directory.absolute()
    yield absolute
    yield from absolute.parents


def is_full(error: BaseException) -> bool:
    """Whether a disk was full. Java and Spark have only the system's text for it."""
    return any(os.strerror(number) in str(error) for number in FULL)
