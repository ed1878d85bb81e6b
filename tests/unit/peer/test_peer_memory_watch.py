"""Batches shrink while a container has little memory left, and grow again. Cgroups are files in a
folder here."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.clocks import ManualClock

from onyx.model.job import CatalogEntry
from onyx.peer.watch.memory_watch import HALVINGS_MAX, MemoryWatch
from onyx.task.batching import PENDING_MIN, BatchSizing
from onyx.telemetry.container import ContainerMemory

MIB = 1 << 20
V2 = "30 23 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n"
V1 = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
NAMES = {
    2: ("", "memory.events", "memory.max", "memory.high", "memory.current", "inactive_file"),
    1: (
        "memory/", "memory.oom_control", "memory.limit_in_bytes", "memory.soft_limit_in_bytes",
        "memory.usage_in_bytes", "total_inactive_file",
    ),
}  # fmt: skip
NONE = {2: "max", 1: "9223372036854771712"}


class Container:
    """A cgroup of either version, a watch over it, and two tasks."""

    def __init__(self, root: Path, version: int, limit: int | None, high: int | None) -> None:
        self.version, self.root = version, root
        (root / "proc/self").mkdir(parents=True)
        (root / "proc/self/mountinfo").write_text(V2 if version == 2 else V1)
        (root / "proc/self/cgroup").write_text("0::/\n" if version == 2 else "4:memory:/\n")
        self.clock, self.returned = ManualClock(), 0
        _, events, most, soft, _, _ = NAMES[version]
        self.write(events, "oom_kill 0\n")
        self.write(most, NONE[version] if limit is None else str(limit))
        self.write(soft, NONE[version] if high is None else str(high))
        self.holds(0)
        self.watch = MemoryWatch(ContainerMemory(root), self.clock, 0.8, self.give_back)
        fixed = {"batch_size": 100, "max_pending": 1_000}
        self.tasks = [
            BatchSizing(CatalogEntry("read", "input", plugin="files")),
            BatchSizing(CatalogEntry("write", "output", plugin="files", **fixed)),  # type: ignore[arg-type]
        ]

    def write(self, name: str, text: str) -> None:
        folder = self.root / "sys/fs/cgroup" / NAMES[self.version][0]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)

    def holds(self, held: int, files: int = 0) -> None:
        *_, name, inactive = NAMES[self.version]
        self.write(name, str(held))
        self.write("memory.stat", f"anon 1\n{inactive} {files}\n")

    def give_back(self) -> None:
        self.returned += 1

    def look(self, seconds: int = 1) -> tuple[int, int]:
        """The sizes of the batches of the two tasks."""
        for _ in range(seconds):
            self.watch.look(self.tasks)
            self.clock.advance(1.0)
        return self.tasks[0].segments_max, self.tasks[1].segments_max


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("limit", "high"), [(None, 100 * MIB), (100 * MIB, None), (300 * MIB, 100 * MIB)]
)
def test_batches_shrink_before_the_kernel_acts_and_grow_again(
    tmp_path: Path, version: int, limit: int | None, high: int | None
) -> None:
    container = Container(tmp_path, version, limit, high)
    assert container.look() == (128, 100)
    container.holds(81 * MIB)
    assert container.look() == (64, 50)
    assert container.look() == (32, 25)
    assert container.returned == 2
    container.holds(70 * MIB)
    assert container.look(5) == (32, 25), "neither much nor little"
    container.holds(50 * MIB)
    assert container.look() == (64, 50)
    assert container.look(5) == (128, 100)
    assert container.returned == 2


def test_what_is_in_flight_shrinks_too_and_something_is_left(tmp_path: Path) -> None:
    container = Container(tmp_path, 2, None, MIB)
    container.holds(2 * MIB)
    assert container.look(20) == (128 >> HALVINGS_MAX, 100 >> HALVINGS_MAX)
    pending = [each.pending_max for each in container.tasks]
    assert pending == [PENDING_MIN >> HALVINGS_MAX, 1_000 >> HALVINGS_MAX]


def test_files_that_the_kernel_may_drop_do_not_count(tmp_path: Path) -> None:
    container = Container(tmp_path, 2, 100 * MIB, None)
    container.holds(95 * MIB, files=60 * MIB)
    assert container.look() == (128, 100)


@pytest.mark.parametrize("held", ["", "rubbish"])
def test_where_nothing_bounds_or_says_it_nothing_shrinks(tmp_path: Path, held: str) -> None:
    container = Container(tmp_path, 2, None, None)
    container.holds(1 << 50)
    assert container.look(3) == (128, 100)
    container.write("memory.high", "1000")
    container.write("memory.current", held)
    assert container.look(3) == (128, 100)


def test_what_is_free_goes_back_when_the_last_task_has_gone(tmp_path: Path) -> None:
    container = Container(tmp_path, 2, None, None)
    container.look(3)
    assert not container.returned
    container.tasks.clear()
    for _ in range(3):
        container.watch.look(container.tasks)
        container.clock.advance(1.0)
    assert container.returned == 1
