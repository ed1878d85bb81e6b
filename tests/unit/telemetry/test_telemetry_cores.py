"""As many cores as this process may keep busy, whatever says how many."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from onyx.telemetry.container import cores

V2 = "30 23 0:26 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw,nsdelegate\n"
V1 = "34 31 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
POD = "/kubepods/pod1/worker"


def written(root: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


@pytest.fixture(autouse=True)
def eight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("200000 100000", 2),
        ("250000 100000", 2),  # two and a half keep two busy
        ("50000 100000", 1),
        ("1600000 100000", 8),
        ("max 100000", 8),
        ("", 8),
        ("nonsense", 8),
        ("100000 0", 8),
    ],
)
def test_a_container_has_as_many_as_its_limit_is_worth(
    tmp_path: Path, limit: str, expected: int
) -> None:
    place = f"sys/fs/cgroup{POD}"
    mounts = {"proc/self/mountinfo": V2, "proc/self/cgroup": f"0::{POD}\n"}
    written(tmp_path, {**mounts, f"{place}/cpu.max": limit})
    assert cores(tmp_path) == expected


def test_a_limit_of_a_group_around_it_counts(tmp_path: Path) -> None:
    written(tmp_path, {"proc/self/mountinfo": V2, "proc/self/cgroup": f"0::{POD}\n"})
    written(tmp_path, {f"sys/fs/cgroup{POD}/cpu.max": "max 100000"})
    written(tmp_path, {"sys/fs/cgroup/kubepods/cpu.max": "300000 100000"})
    assert cores(tmp_path) == 3


@pytest.mark.parametrize(("quota", "expected"), [("400000", 4), ("-1", 8)])
def test_the_first_version_of_cgroups_has_two_files(
    tmp_path: Path, quota: str, expected: int
) -> None:
    written(tmp_path, {"proc/self/mountinfo": V1, "proc/self/cgroup": "1:cpu,cpuacct:/a\n"})
    folder = "sys/fs/cgroup/cpu/a"
    written(
        tmp_path, {f"{folder}/cpu.cfs_quota_us": quota, f"{folder}/cpu.cfs_period_us": "100000"}
    )
    assert cores(tmp_path) == expected


def test_without_a_container_it_is_what_the_system_lets_it_run_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cores(tmp_path) == 8
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 5)
    assert cores(tmp_path) == 5
