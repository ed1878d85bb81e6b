"""A memory cgroup with a limit, where this machine lets us make one."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from onyx.telemetry.container import ContainerMemory


@contextlib.contextmanager
def memory_cgroup(limit_bytes: int) -> Iterator[Callable[[], None]]:
    """What a process that begins (`preexec_fn`) calls to be in there; skips the test where none can
    be made."""
    parent = ContainerMemory().folder
    if parent is None:
        pytest.skip("this process is in no memory cgroup")
    folder = parent / f"onyx-test-{uuid.uuid4().hex[:8]}"
    limits = ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.max"]
    try:
        folder.mkdir()
        for limit in (each for each in limits if (folder / each).exists()):
            (folder / limit).write_text(str(limit_bytes))
    except OSError as error:
        with contextlib.suppress(OSError):
            folder.rmdir()
        pytest.skip(f"no memory cgroup can be made: {error}")
    try:
        yield lambda: _enter(folder)
    finally:
        with contextlib.suppress(OSError):  # zombies leave it late
            folder.rmdir()


def _enter(folder: Path) -> None:
    (folder / "cgroup.procs").write_text(str(os.getpid()))
