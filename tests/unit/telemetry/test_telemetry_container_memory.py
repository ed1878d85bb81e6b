"""What the kernel counts is found in whatever way cgroups are mounted."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from onyx.telemetry.collectors import MemoryKillsCollector
from onyx.telemetry.container import ContainerMemory
from onyx.telemetry.metrics import PrometheusGroupMetrics
from onyx.telemetry.processes import ProcessPages

V2 = "30 23 0:26 {root} /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw,nsdelegate\n"
V1 = (
    "34 31 0:31 {root} /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n"
    "35 31 0:32 {root} /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
)
HYBRID = V1 + "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
POD = "/kubepods/burstable/pod1/worker"


def written(root: Path, path: str, text: str) -> None:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def machine(root: Path, mounts: str, cgroups: str, kills: int = 7) -> None:
    written(root, "proc/self/mountinfo", mounts)
    written(root, "proc/self/cgroup", cgroups)
    written(root, "proc/vmstat", f"nr_free_pages 12\noom_kill {kills}\n")


@pytest.mark.parametrize(
    ("mounts", "cgroups", "folder"),
    [
        (V2.format(root="/"), "0::/\n", "sys/fs/cgroup"),
        (V2.format(root="/"), f"0::{POD}\n", f"sys/fs/cgroup{POD}"),
        (V2.format(root=POD), f"0::{POD}\n", "sys/fs/cgroup"),
        (V2.format(root="/kubepods"), f"0::{POD}\n", "sys/fs/cgroup/burstable/pod1/worker"),
        (V2.format(root="/../.."), "0::/../../other\n", "sys/fs/cgroup"),
        (V1.format(root=POD), f"4:memory:{POD}\n3:cpuset:{POD}\n", "sys/fs/cgroup/memory"),
        (V1.format(root="/"), "4:memory:/a\n3:cpuset:/b\n", "sys/fs/cgroup/memory/a"),
        (HYBRID.format(root="/"), "4:memory:/a\n0::/b\n", "sys/fs/cgroup/memory/a"),
        (V1.format(root="/"), "9:cpu,memory:/a:b\n", "sys/fs/cgroup/memory/a:b"),
    ],
)
def test_the_cgroup_of_this_process_is_read(
    tmp_path: Path, mounts: str, cgroups: str, folder: str
) -> None:
    machine(tmp_path, mounts, cgroups)
    if "- cgroup2" in mounts and "memory rw" not in mounts:
        written(tmp_path, f"{folder}/memory.events", "low 0\noom 9\noom_kill 3\noom_group_kill 1\n")
        written(tmp_path, f"{folder}/memory.max", "536870912\n")
        written(tmp_path, f"{folder}/memory.current", "4096\n")
    else:
        written(tmp_path, f"{folder}/memory.oom_control", "under_oom 0\noom_kill 3\n")
        written(tmp_path, f"{folder}/memory.limit_in_bytes", "536870912\n")
        written(tmp_path, f"{folder}/memory.usage_in_bytes", "4096\n")
    kills = ContainerMemory(tmp_path)

    assert (kills.of_container, kills.count(), kills.limit_bytes()) == (True, 3, 536_870_912)
    assert kills.held_bytes() == 4_096


@pytest.mark.parametrize("limit", ["max", "9223372036854771712", "", "-1"])
def test_no_limit_is_none(tmp_path: Path, limit: str) -> None:
    machine(tmp_path, V2.format(root="/"), "0::/\n")
    written(tmp_path, "sys/fs/cgroup/memory.events", "oom_kill 0\n")
    written(tmp_path, "sys/fs/cgroup/memory.max", limit)

    assert ContainerMemory(tmp_path).limit_bytes() is None


@pytest.mark.parametrize("text", ["", "oom_kill\n", "oom_kill many\n", "oom 3\n", "\x00\xff"])
def test_without_a_count_of_the_container_that_of_the_machine_is_taken(
    tmp_path: Path, text: str
) -> None:
    machine(tmp_path, V2.format(root="/"), "0::/\n")
    written(tmp_path, "sys/fs/cgroup/memory.events", text)
    kills = ContainerMemory(tmp_path)

    assert (kills.of_container, kills.count()) == (False, 7)


@pytest.mark.parametrize("text", ["", "nonsense", "a - b\n - cgroup2 x y\n", "0:::\n:\n"])
def test_nobody_who_counts_is_none(tmp_path: Path, text: str) -> None:
    assert ContainerMemory(tmp_path / "nothing").count() is None
    machine(tmp_path, text, text)
    (tmp_path / "proc/vmstat").unlink()
    assert ContainerMemory(tmp_path).count() is None


def test_a_container_has_the_metric_once_and_a_machine_has_none(tmp_path: Path) -> None:
    machine(tmp_path, V2.format(root="/"), "0::/\n")
    alone = MemoryKillsCollector(ContainerMemory(tmp_path))
    assert list(alone.collect()) == []
    written(tmp_path, "sys/fs/cgroup/memory.events", "oom_kill 4\n")
    collector = MemoryKillsCollector(ContainerMemory(tmp_path))
    registry = CollectorRegistry()
    registry.register(collector)
    pages = ProcessPages([], lambda _: True, collector)
    for shown in (registry, registry.restricted_registry(["onyx_memory_kills_total"])):
        assert "onyx_memory_kills_total 4.0" in generate_latest(shown).decode()  # type: ignore[arg-type]
    for wanted, expected in (["onyx_memory_kills_total"], 1), (["onyx_peers"], 0), ([], 1):
        found = pages.registry.restricted_registry(wanted).collect()
        assert len(list(found)) == expected
    plain = generate_latest(PrometheusGroupMetrics((), "1").registry).decode()
    assert "onyx_memory_kills" not in plain, "no process shows another zero"
