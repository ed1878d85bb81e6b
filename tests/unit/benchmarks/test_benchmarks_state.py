"""Benchmarks of state: what is fed to it, and how its times and sizes are read off."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest
from benchmarks import memory, onyx_run, recovery


@pytest.fixture
def functions(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The functions of the jobs."""
    monkeypatch.syspath_prepend(str(onyx_run.JOBS))
    return importlib.import_module("bench_state")


def test_a_source_fills_the_state_and_is_the_same_when_read_again(functions: ModuleType) -> None:
    reader = functions.FillingReader(0, 5, 100, 3)
    first, rest = reader.read(3), reader.read(10)
    assert [each["key"] for each in first + rest] == [f"fill-{n}" for n in range(5)]
    assert {len(each["payload"]) for each in first} == {100}
    assert functions.FillingReader(3, 5, 100, 3).read(10) == rest
    assert not reader.exhausted()


def test_after_filling_a_source_trickles_over_few_groups(functions: ModuleType) -> None:
    reader = functions.FillingReader(5, 5, 100, 3)
    assert reader.read(10) == []
    reader.started_ns -= 25_000_000
    found = reader.read(4)
    assert [each["key"] for each in found] == [f"trickle-{n % 3}" for n in range(5, 9)]
    assert all(functions.trickles(None, {"segment": each}) for each in found)


def test_results_are_told_with_time_and_process(
    functions: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(functions.Results, "path", tmp_path / "results-7.txt")
    monkeypatch.setattr(functions.time, "monotonic", lambda: 1.5)
    functions.tell([{"process": 1, "key": "a"}, {"process": 2, "key": "b"}])
    with open(functions.Results.path, "a") as file:
        file.write("2.5 1 unfinis")
    assert recovery.results(tmp_path) == [(1.5, 1, "a"), (1.5, 2, "b")]


@pytest.mark.parametrize(
    ("reported", "first"),
    [
        ([(11.0, 1, "a")], None),
        ([(9.0, 1, "a"), (9.5, 2, "a"), (10.5, 2, "b")], None),
        ([(9.0, 1, "a"), (10.5, 2, "b"), (16.5, 2, "a"), (16.0, 3, "c")], 16.0),
    ],
    ids=["only of the dead", "before the kill, and of other groups", "two took over"],
)
def test_the_first_result_is_that_of_whoever_took_over_a_group(
    reported: recovery.Results, first: float | None
) -> None:
    assert recovery.first_of({"a", "c"}, reported, dead=1, since_s=10.0) == first


def test_figures_of_a_recovery_count_from_the_kill_and_from_the_new_allocation() -> None:
    small = recovery.Recovery(1_000, 1.0, 2.0, noticed_s=6.0, ready_s=6.5, first_result_s=7.0)
    large = recovery.Recovery(
        9_000, 1_000.0, 60.0, noticed_s=6.0, ready_s=38.0, first_result_s=39.0
    )
    result, restored = recovery.figures(small, large)
    assert (result.value, result.ok) == (7.0, True)
    assert (restored.name, restored.value, restored.ok) == (
        "1.05 GB of state restored",
        32.0,
        False,
    )


def test_growth_counts_from_the_end_of_the_first_quarter() -> None:
    samples = [(float(second), mib) for second, mib in enumerate([10, 50, 80, 81, 82, 85, 82, 80])]
    assert memory.growth_while_passing(samples, {"from_s": 0.0, "to_s": 16.0}) == 3.5


def test_the_size_of_a_folder_is_that_of_all_its_files(tmp_path: Path) -> None:
    assert onyx_run.size_mib(tmp_path / "absent") == 0
    (tmp_path / "log" / "one").mkdir(parents=True)
    (tmp_path / "log" / "one" / "chunk").write_bytes(bytes(2**20))
    (tmp_path / "log" / "chunk").write_bytes(bytes(2**19))
    assert onyx_run.size_mib(tmp_path) == 1.5
