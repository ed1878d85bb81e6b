"""The container of this process, as the kernel counts: how much memory it holds, how much it may,
how many processes were killed for want of it; and how many cores it may keep busy.

A container with several processes survives that one of them is killed: its runtime sees nothing and
restarts nothing. But the kernel counts, in the memory cgroup of the container: `oom_kill` of
`memory.events`, or of `memory.oom_control` in the first version of cgroups, and for the whole
machine in `/proc/vmstat` where a process is in no memory cgroup of its own. It counts before it
sends SIGKILL, so that whoever sees the death finds it counted.

Rejected: the log of the kernel (a container may not read it), and notification by `eventfd` (the
first version only).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_SOFT_LIMIT = "memory.soft_limit_in_bytes"
_NO_LIMIT_BYTES = 1 << 60
"""The first version of cgroups writes some such number for no limit."""


class ContainerMemory:
    """The memory cgroup in which this process is.

    Args:
        root: of the file system.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._files = [
            (folder / events, folder / limit)
            for folder, events, limit in self._folders()
            if _counted(folder / events) is not None
        ]

    @property
    def of_container(self) -> bool:
        """Whether the count is of this process's own cgroup, and not of the machine."""
        return bool(self._files)

    @property
    def folder(self) -> Path | None:
        """The folder of the cgroup, where it is mounted; None outside of containers."""
        return self._files[0][0].parent if self._files else None

    def count(self) -> int | None:
        """Processes killed since the cgroup was made, or the machine started; None: nobody
        counts."""
        found = (_counted(events) for events, _ in self._files)
        counted = next((each for each in found if each is not None), None)
        return _counted(self._root / "proc/vmstat") if counted is None else counted

    def limit_bytes(self) -> int | None:
        """Memory that the cgroup may use; None when there is no limit, or nobody knows."""
        found = (_bound(limit) for _, limit in self._files)
        return next((each for each in found if each is not None), None)

    def held_bytes(self) -> int | None:
        """Memory that the cgroup holds, with the files that the kernel keeps for it; None outside
        of containers."""
        for events, _ in self._files:
            first = events.name == "memory.oom_control"
            name = "memory.usage_in_bytes" if first else "memory.current"
            text = _text(events.with_name(name)).strip()
            if text.isdecimal():
                return int(text)
        return None

    def held_share(self) -> float | None:
        """What it holds without files that the kernel may drop, of what it may: until the kernel
        slows it down (`memory.high`, the soft limit of the first version) or kills. None: nothing
        bounds it."""
        held, bounds = self.held_bytes(), [self.limit_bytes()]
        if held is None:
            return None
        for events, _ in self._files:
            first = events.name == "memory.oom_control"
            bounds.append(_bound(events.with_name(_SOFT_LIMIT if first else "memory.high")))
            droppable = "total_inactive_file" if first else "inactive_file"
            held -= _named(events.with_name("memory.stat"), droppable) or 0
        known = [each for each in bounds if each]
        return max(0, held) / min(known) if known else None

    def _folders(self) -> Iterator[tuple[Path, str, str]]:
        """Where the cgroup of this process is mounted, with the names of its two files."""
        for folder, first in _folders_with("memory", self._root):
            if first:
                yield folder, "memory.oom_control", "memory.limit_in_bytes"
            else:
                yield folder, "memory.events", "memory.max"


def cores(root: Path = Path("/")) -> int:
    """Cores that may be busy here: of those that the system lets this process run on, as many whole
    ones as the limit of its container is worth, and of the groups around that.

    Args:
        root: of the file system.
    """
    affinity = getattr(os, "sched_getaffinity", None)  # macOS has none
    found: list[float] = [len(affinity(0)) if affinity is not None else os.cpu_count() or 1]
    for group, first in _folders_with("cpu", root):
        for folder in (group, *group.parents):
            if first:
                names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
                limit = [_text(folder / name).strip() for name in names]
            else:
                limit = _text(folder / "cpu.max").split()
            if len(limit) == 2 and all(map(str.isdecimal, limit)) and int(limit[1]):
                found.append(int(limit[0]) / int(limit[1]))
    return max(1, int(min(found)))


def _folders_with(controller: str, root: Path) -> Iterator[tuple[Path, bool]]:
    """Where the cgroups of this process are that may have a controller; True: of the first
    version."""
    paths = dict(_cgroups(_text(root / "proc/self/cgroup")))
    for mount, top, controllers in _mounts(_text(root / "proc/self/mountinfo")):
        if controllers is None and "" in paths:
            path = paths[""]
        elif controllers is not None and controller in controllers and controller in paths:
            path = paths[controller]
        else:
            continue
        yield root / _below(mount, top, path).lstrip("/"), controllers is not None


def _cgroups(text: str) -> Iterator[tuple[str, str]]:
    """Path by controller, of `/proc/self/cgroup`; the second version has the empty name."""
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for each in controllers.split(","):
            yield each, path


def _mounts(text: str) -> Iterator[tuple[str, str, list[str] | None]]:
    """Mounts of cgroups: where, which part of the tree, controllers (None: second version)."""
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")
        if len(fields) < 5 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        yield fields[4], fields[3], None if kind[0] == "cgroup2" else kind[2].split(",")


def _below(mount: str, root: str, path: str) -> str:
    """A cgroup's folder. A container sees its own part of the tree only, and may be told a path
    that begins above it."""
    inside = PurePosixPath(path)
    if ".." in inside.parts:
        return mount
    if inside.is_relative_to(root):
        return str(PurePosixPath(mount) / inside.relative_to(root))
    return mount


def _counted(file: Path) -> int | None:
    return _named(file, "oom_kill")


def _named(file: Path, wanted: str) -> int | None:
    """The number beside a name in a file of such lines."""
    for line in _text(file).splitlines():
        name, _, value = line.partition(" ")
        if name == wanted and value.strip().isdecimal():
            return int(value)
    return None


def _bound(file: Path) -> int | None:
    text = _text(file).strip()
    return int(text) if text.isdecimal() and int(text) < _NO_LIMIT_BYTES else None


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8", "replace")
    except OSError:
        return ""
