"""Workloads: the same data and the same answer for all, and figures of those that ran."""

from __future__ import annotations

import argparse
import importlib
import json
from pathlib import Path

import pytest
import yaml
from benchmarks import data, harness, onyx_run, onyx_ways, workload
from benchmarks.figures import Size
from benchmarks.workload import Goal, Workload

from onyx.model.parsing.job import parse_manifest
from onyx.rights import Rights

JOBS = Path(workload.__file__).parent / "jobs"


EVERY_WORKLOAD = [(letter, kind) for letter in "abc" for kind in ("workload", "columns")]


def made(letter: str, kind: str = "workload") -> Workload:
    module = importlib.import_module(f"benchmarks.workload_{letter}")
    found: Workload = getattr(module, kind)()
    return found


@pytest.mark.parametrize(
    ("make", "lines", "first"),
    [
        (data.segments, [5, 6], '{"id":0,"name":"user-339563-abcdefgh","n":970}'),
        (data.words, [1, 1], "w3 w1 w39 w1 w14 w4 w1 w11 w1 w6"),
        (data.events, [5, 6], '{"key":"k331","ts":1700000040485,"v":0}'),
    ],
    ids=["segments", "words", "events"],
)
def test_the_data_is_the_same_each_time_and_split_in_two(
    make: object, lines: list[int], first: str, bench_data: Path
) -> None:
    assert callable(make)
    found = make(11)
    texts = [path.read_text() for path in sorted(found.folder.glob("part-*"))]
    assert [text.count("\n") for text in texts] == lines
    assert texts[0].splitlines()[0] == first
    assert make(11) == found


def test_events_are_out_of_order_within_a_bound(bench_data: Path) -> None:
    found = data.events(1_000)
    times = [
        json.loads(line)["ts"]
        for path in sorted(found.folder.glob("part-*"))
        for line in path.read_text().splitlines()
    ]
    behind = [max(times[: at + 1]) - each for at, each in enumerate(times)]
    assert 0 < max(behind) < data.DISORDER_MS


@pytest.mark.parametrize("program", ["plain", "pyarrow_loop"])
@pytest.mark.parametrize("name", ["segments", "words", "windows"])
@pytest.mark.usefixtures("bench_data", "programs")
def test_loops_agree_with_the_answer_of_the_generator(
    program: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {"segments": data.segments, "words": data.words, "windows": data.events}[name](2_000)
    tally = importlib.import_module("bench_tasks").Answer
    monkeypatch.setattr(tally, "count", 0)
    monkeypatch.setattr(tally, "total", 0)
    read = made.as_parquet() if program == "pyarrow_loop" else made
    loop = getattr(importlib.import_module(program), name)
    assert loop(str(read.folder)) == made.answer


@pytest.mark.parametrize(("letter", "kind"), EVERY_WORKLOAD)
def test_every_way_of_onyx_is_a_valid_job(
    letter: str, kind: str, bench_data: Path, tmp_path: Path
) -> None:
    found = made(letter, kind)
    records = found.data(20)
    for name, each in found.onyx.items():
        folder = tmp_path / name
        folder.mkdir()
        each.command(records, folder)
        parse_manifest((folder / "job.yaml").read_bytes(), name)


@pytest.mark.parametrize(("letter", "kind"), EVERY_WORKLOAD)
def test_goals_and_quick_runs_name_programs_of_the_workload(letter: str, kind: str) -> None:
    found = made(letter, kind)
    ours = {*found.onyx, "plain", "pyarrow"}
    named = {name for goal in found.goals for name in (goal.over, goal.under)} | set(found.quick)
    assert named <= {*found.onyx, *found.peers}
    assert "pyflink" in found.peers
    assert {"spark", "spark-arrow"} & set(found.peers)
    assert all(goal.over in ours or goal.under in ours for goal in found.goals)


def test_onyx_runs_the_manifest_with_data_peers_and_guarantee_filled_in(
    tmp_path: Path, bench_data: Path
) -> None:
    three = onyx_ways.Way("b.yaml", "", processes=3, guarantee="exactly-once")
    contender = onyx_ways.contenders({"three": three}, ["bench_sums"], onyx_ways.emitted)
    command = contender["three"].command(data.words(20), tmp_path)
    assert list(command[-4:]) == ["--processes", "3", "--modules", "bench_sums"]
    job = parse_manifest((tmp_path / "job.yaml").read_bytes(), "job.yaml")
    read, split, count, write = job.catalog
    assert job.guarantee == "exactly-once"
    assert [each.n_peers for each in (read, split, count, write)] == [3, 3, 3, 3]
    assert read.options["path"] == data.words(20).pattern
    assert write.options["path"] == str(tmp_path / "out")


def test_a_way_may_read_parquet_and_have_batches_of_a_size(
    tmp_path: Path, bench_data: Path
) -> None:
    way = onyx_ways.Way("a.yaml", "", parquet=True, batch_size=250)
    contender = onyx_ways.contenders({"way": way}, ["bench_tasks"], onyx_ways.shares)["way"]
    contender.command(data.segments(20), tmp_path)
    job = parse_manifest((tmp_path / "job.yaml").read_bytes(), "job.yaml")
    assert [entry.batch_size for entry in job.catalog] == [250] * 3
    folder = Path(job.catalog[0].options["path"]).parent
    assert sorted(path.name for path in folder.iterdir()) == ["part-0.parquet", "part-1.parquet"]


def test_what_windows_emitted_is_counted_by_key_and_extent(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    parts = [
        [{"group": "a", "lower": 0, "state": 3}, {"group": "a", "lower": 60, "state": 5}],
        [{"group": "b", "lower": 0, "state": 1}, {"group": "a", "lower": 0, "state": 4}],
    ]
    for number, part in enumerate(parts):
        text = "".join(json.dumps(each) + "\n" for each in part)
        (tmp_path / "out" / f"{number}.jsonl").write_text(text)
    assert onyx_ways.emitted("", tmp_path) == (3, 13)


@pytest.mark.parametrize("path", sorted(JOBS.glob("*.yaml")), ids=lambda path: path.stem)
def test_jobs_of_the_benchmarks_are_valid(path: Path) -> None:
    name = yaml.safe_load(path.read_text())["metadata"]["name"]
    assert parse_manifest(path.read_bytes(), path.name).name == name


def contender(name: str) -> harness.Contender:
    return harness.Contender(name, lambda data, folder: [], lambda output, folder: (0, 0))


EVERY = Workload(
    "", data.segments, {"plain": contender("plain"), "slow": contender("slow"),
                        "gone": harness.Absent("gone", "not installed")},
    {"ours": contender("ours")},
    (Goal("ours", "slow", 1.0, ""), Goal("ours", "spark", 1.0, "")), quick=["plain"],
)  # fmt: skip


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, ["plain", "slow", "gone", "ours"]),
        ({"peers": True}, ["plain", "slow", "gone"]),
        ({"size": Size.QUICK}, ["plain"]),
        ({"size": Size.TINY}, ["slow", "ours"]),
        ({"contender": ["slow", "ours"]}, ["slow", "ours"]),
        ({"contender": ["slow"], "size": Size.QUICK}, ["slow"]),
    ],
    ids=["all", "peers", "quick", "tiny", "named", "named and quick"],
)
def test_who_takes_part(options: dict[str, object], names: list[str]) -> None:
    given = {"contender": None, "peers": False, "size": Size.FULL} | options
    found = workload.chosen(EVERY, argparse.Namespace(**given))
    assert [each.name for each in found] == names


def test_figures_are_ratios_of_the_programs_that_ran() -> None:
    done = harness.Run(1.0, 0.6, 1, "")
    peer = harness.result(contender("peer"), [(0.5, done), (0.7, done)])
    ours = harness.result(contender("ours"), [(0.9, done)])
    goals = (
        Goal("ours", "peer", 1.3, ""),
        Goal("peer", "ours", 0.7, ""),
        Goal("ours", "absent", 1.0, ""),
    )
    dearer, cheaper = workload.figures(goals, [peer, ours])
    assert (dearer.value, dearer.best) == (pytest.approx(1.5), pytest.approx(1.8))
    assert not dearer.ok
    assert (cheaper.value, cheaper.ok) == (pytest.approx(2 / 3), True)


def test_a_job_may_name_data_that_lie_beside_its_folder(tmp_path: Path) -> None:
    command = onyx_run.command(onyx_run.manifest("spark-window.yaml"), tmp_path, ())
    variables = dict(each.split("=", 1) for each in command[1:3])
    rights = Rights(paths=(variables["ONYX_JOB_PATHS"],))
    assert rights.why_not_path(f"{tmp_path.parent}/source/*.parquet") is None
