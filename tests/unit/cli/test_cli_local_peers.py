"""How many processes and peers run a job on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onyx.cli import local_peers
from onyx.cli.local_peers import Crew, crew_here, fewest_peers, peers_of_processes
from onyx.model.job import CatalogEntry, Job
from onyx.model.parsing.job import parse_mapping
from onyx.settings import Settings

MIB = 2**20


@pytest.fixture(autouse=True)
def eight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_peers, "cores", lambda: 8)


def job_of(
    folder: Path, *more: dict[str, Any], spec: dict[str, Any] | None = None, **work: Any
) -> Job:
    """A job that reads the files of a folder, and with whatever else."""
    read = {"name": "read", "type": "input", "plugin": "files"}
    read["options"] = {"path": f"{folder}/*.jsonl", "format": "jsonl"}
    tasks = [
        read,
        {"name": "work", "type": "function", "fn": "m:f", **work},
        {"name": "write", "type": "output", "plugin": "files", "options": {"path": "out"}},
        *more,
    ]
    edges = [["read", "work"], ["work", "write"], *([each["name"], "work"] for each in more)]
    return parse_mapping(
        {
            "apiVersion": "onyx.dev/v1beta1",
            "kind": "OnyxJob",
            "metadata": {"name": "job"},
            "spec": {"workflow": edges, "catalog": tasks, **(spec or {})},
        }
    )


def files(folder: Path, *sizes: int) -> Path:
    """Files of so many MiB, without a byte on the disk."""
    for number, size in enumerate(sizes):
        with (folder / f"{number}.jsonl").open("wb") as file:
            file.truncate(size * MIB)
    return folder


@pytest.mark.parametrize(
    ("sizes", "processes"),
    [
        ((), 1),
        ((0, 0), 1),
        ((20, 20), 1),  # another process would cost more than it saves
        ((40, 40), 2),
        ((131, 132), 2),
        ((1000,), 1),  # a file is read by one process
        ((1000, 10, 10), 1),
        ((500, 300, 200), 2),
        ((10,) * 20, 6),
        ((100,) * 20, 8),  # no more than cores
    ],
)
def test_each_process_has_files_enough_to_gain(
    tmp_path: Path, sizes: tuple[int, ...], processes: int
) -> None:
    crew = crew_here(job_of(files(tmp_path, *sizes)), Settings(), None, None)
    assert crew.peers == [3] * processes
    assert crew.fewest == (processes == 1)
    said = f"{processes} processes for {len(sizes)} files of {sum(sizes):,} MiB"
    assert crew.why == ("" if processes == 1 else f"{said} (--processes 1 for one)")


WINDOW = {
    "windows": [{"id": "w", "task": "work", "type": "global", "aggregation": "count"}],
    "triggers": [{"windowId": "w", "id": "t", "type": "watermark", "emit": "rows"}],
}
REQUESTS = {"name": "ask", "type": "input", "plugin": "requests"}
ALONE = {
    "a task with one peer": {"maxPeers": 1},
    "a number of peers": {"nPeers": 1},
    "requests": {"more": [REQUESTS]},
    "a window without groups": {"spec": WINDOW},
    "Spark": {"spec": {"engine": "spark"}},
}


@pytest.mark.parametrize("given", ALONE.values(), ids=ALONE)
def test_a_job_that_cannot_use_them_has_one_process(tmp_path: Path, given: dict[str, Any]) -> None:
    job = job_of(
        files(tmp_path, 100, 100),
        *given.get("more", ()),
        **{key: value for key, value in given.items() if key != "more"},
    )
    crew = crew_here(job, Settings(), None, None)
    assert (len(crew.peers), crew.why) == (1, "")


def test_a_task_with_a_few_peers_bounds_the_processes(tmp_path: Path) -> None:
    job = job_of(files(tmp_path, *[100] * 6), maxPeers=3)
    assert crew_here(job, Settings(), None, None).peers == [3, 3, 3]


def test_what_is_given_is_taken_and_nothing_is_said(tmp_path: Path) -> None:
    job = job_of(files(tmp_path, 100, 100))
    assert crew_here(job, Settings(), None, 1) == Crew([3], fewest=True)
    assert crew_here(job, Settings(), None, 3) == Crew([3, 3, 3])
    assert crew_here(job, Settings(), 4, None) == Crew([4])
    assert crew_here(job, Settings(), 4, 2) == Crew([2, 2])


def test_relative_paths_count_from_the_folder_of_data(tmp_path: Path) -> None:
    files(tmp_path, 100, 100)
    job = job_of(Path())
    assert len(crew_here(job, Settings(data_dir=str(tmp_path)), None, None).peers) == 2


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (CatalogEntry("f", "function", fn="m:f", max_peers=8), ["spec.catalog[1].maxPeers"]),
        (CatalogEntry("f", "function", fn="m:f", min_peers=8, max_peers=8), []),
        (CatalogEntry("f", "function", fn="m:f", max_peers=1), []),
        (CatalogEntry("f", "function", fn="m:f"), []),
    ],
    ids=["more", "all", "one", "any"],
)
def test_a_limit_that_a_run_does_not_reach_is_said(entry: CatalogEntry, said: list[str]) -> None:
    ends = (CatalogEntry("read", "input", plugin="p"), CatalogEntry("write", "output", plugin="p"))
    job = Job("j", (("read", "f"), ("f", "write")), (ends[0], entry, ends[1]))
    assert [each.path for each in fewest_peers(job)] == said


@pytest.mark.parametrize(
    ("peers", "processes", "least", "expected"),
    [(None, 1, 1, [3]), (None, 3, 1, [3, 3, 3]), (None, 2, 4, [6, 6]), (4, 3, 1, [2, 1, 1])],
)
def test_each_process_has_peers_for_all_tasks_unless_their_number_is_given(
    peers: int | None, processes: int, least: int, expected: list[int]
) -> None:
    tasks = (
        CatalogEntry("read", "input", plugin="files", min_peers=least),
        CatalogEntry("work", "function", fn="m:f", min_peers=least),
        CatalogEntry("write", "output", plugin="files", min_peers=least),
    )
    job = Job("job", (("read", "work"), ("work", "write")), tasks)
    assert peers_of_processes(job, peers, processes) == expected
