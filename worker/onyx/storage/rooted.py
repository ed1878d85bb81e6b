"""Folders below a root that no path can leave: names without separators, and no links.

A path is opened name by name, each relative to the folder before it and never through a link
(`openat`, `O_NOFOLLOW`). Operations are relative to the folder that is held open. So a link can
neither redirect a read, a write nor a removal, even if it is created at that very moment. Resolving
a path and checking that it is below the root was rejected: between check and use it may change. The
root itself may be a link: the operator of the worker has chosen it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

BY_UMASK = -1
"""A mode: whatever the umask leaves."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NO_LINK = _FOLDER | os.O_NOFOLLOW


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
