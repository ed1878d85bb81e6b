"""Outputs that write exactly once: every segment is in one visible part, whatever happens."""

from __future__ import annotations

import gc
import json
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.examples import some_of
from tests.support.jobs.bench import Bench, chain
from tests.support.servers.object_stores import ObjectStore

from onyx.errors import Unavailable
from onyx.program.phases import Phase
from onyx.task.sink.sink import Sink


@pytest.fixture(autouse=True)
def files_of_the_dead() -> Iterator[None]:
    """A process that dies closes nothing; here its files go when its task does."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


SEGMENTS = [{"n": n} for n in range(60)]


def twice(segment: dict[str, Any]) -> list[dict[str, Any]]:
    """Two of even ones, none of those that three divides."""
    if segment["n"] % 3 == 0:
        return []
    return [segment, {"n": -segment["n"]}][: 2 - segment["n"] % 2]


EXPECTED = sorted(leaf["n"] for segment in SEGMENTS for leaf in twice(segment))


def bench_of(path: str, peers: int = 2, **read: Any) -> Bench:
    job = chain(SEGMENTS, fn="m:twice", read=read, partitions=2, guarantee="exactly-once")
    write = job["catalog"][2]
    write |= {"plugin": "files", "fn": "m:same"}
    write["options"] = {"path": path, "format": "jsonl", "rollSegments": 7}
    functions = {"m:twice": twice, "m:same": lambda segment: segment}
    return Bench(job, functions, peers={"write": peers})


def numbers(folder: Path) -> list[int]:
    parts = [part.read_text() for part in folder.glob("part-*.jsonl")]
    return sorted(json.loads(line)["n"] for part in parts for line in part.splitlines())


def staged(folder: Path) -> list[Path]:
    return [path for path in (folder / ".staging").rglob("*") if path.is_file()]


@pytest.mark.parametrize("rounds", some_of(range(0, 100, 6)))
@pytest.mark.parametrize("who", ["read", "write"])
def test_nothing_is_written_twice_whenever_a_peer_dies(
    who: str, rounds: int, tmp_path: Path
) -> None:
    bench = bench_of(str(tmp_path / "out"))
    for _ in range(rounds):
        bench.round()
    bench.crash(bench.task(who))
    bench.settle()
    assert bench.completed
    assert numbers(tmp_path / "out") == EXPECTED


@pytest.mark.parametrize("times", [1, 2, 3])
def test_what_a_loss_of_power_takes_back_is_made_visible_again(
    times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    renamed: list[tuple[str, str]] = []
    rename, fsync = os.rename, os.fsync

    def noted(staged: str, name: str, **folders: int) -> None:
        rename(staged, name, **folders)
        renamed.append((staged, name))

    def forced(descriptor: int) -> None:
        fsync(descriptor)
        if os.path.samestat(os.fstat(descriptor), out.stat()):
            renamed.clear()

    monkeypatch.setattr(os, "rename", noted)
    monkeypatch.setattr(os, "fsync", forced)
    bench = bench_of(str(out), peers=1)
    for _ in range(times):
        while renamed:
            bench.round()
        while not renamed:
            assert not bench.completed
            bench.round()
    lost = list(renamed)
    assert len(lost) == 1, "whoever takes over publishes one"
    bench.crash(bench.task("write"))
    for staged, name in lost:
        rename(out / name, out / staged)
    bench.settle()
    assert bench.completed
    assert numbers(out) == EXPECTED
    assert renamed == []


@pytest.mark.parametrize("rounds", range(5, 90, 15))
@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1)])
def test_nothing_is_written_twice_when_the_output_is_rescaled(
    before: int, after: int, rounds: int, tmp_path: Path
) -> None:
    bench = bench_of(str(tmp_path / "out"), peers=before)
    for _ in range(rounds):
        bench.round()
    bench.rewire(write=after)
    for _ in range(rounds // 2):
        bench.round()
    bench.rewire(write=before)
    bench.settle()
    assert bench.completed
    assert numbers(tmp_path / "out") == EXPECTED


@pytest.mark.parametrize("rounds", range(10, 70, 12))
def test_objects_are_written_once_too(rounds: int, fake_store: ObjectStore) -> None:
    bench = bench_of(f"{fake_store.url}/out")
    for _ in range(rounds):
        bench.round()
    bench.crash(bench.task("write"))
    bench.settle()
    assert bench.completed
    keys = fake_store.keys("out/part-")
    lines = [line for key in keys for line in fake_store.get(key).splitlines()]
    assert sorted(json.loads(line)["n"] for line in lines) == EXPECTED


def test_what_was_committed_and_not_visible_is_made_visible_by_who_takes_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    bench = bench_of(str(out), peers=1)
    bench.start()
    committing = bench.task("write").allocation.committing
    assert committing is not None
    commit = committing.commit

    def dies(token: Any, segments: int) -> None:
        commit(token, segments)
        raise Unavailable("the process is gone before it could publish")

    monkeypatch.setattr(bench.task("write").runtime.sink._plugin, "_commit", dies)  # type: ignore[union-attr]
    for _ in range(60):
        bench.round()
    assert numbers(out) == []
    waiting = len(staged(out))
    bench.crash(bench.task("write"))
    bench.start()
    assert waiting >= 1
    assert len(numbers(out)) >= 7, "before anything is read again"
    bench.settle()
    assert bench.completed
    assert numbers(out) == EXPECTED


def test_who_dies_after_a_version_has_begun_is_not_fenced_off_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has committed meanwhile is still to be made visible, by who takes over from it."""
    bench = bench_of(str(tmp_path / "out"), peers=1)
    fenced: list[list[str]] = []
    monkeypatch.setattr(Sink, "fence", lambda _, live: fenced.append(list(live)))
    bench.until(lambda: bench.task("write").phase is Phase.AWAIT_READY)
    died = list(bench.task("write").allocation.wiring.groups)
    bench.replace_groups("joined")
    bench.start()
    assert fenced == [sorted([*died, "joined"])]


def test_a_zombie_commits_nothing_more(tmp_path: Path) -> None:
    out = tmp_path / "out"
    bench = bench_of(str(out), peers=1)
    bench.start()
    for _ in range(25):
        bench.round()
    zombie = bench.task("write")
    assert zombie.runtime.sink is not None
    bench.crash(zombie)
    bench.start()
    before = numbers(out)
    with pytest.raises(Unavailable, match="belongs to a newer version"):
        zombie.runtime.sink.flush()
    assert numbers(out) == before
    bench.settle()
    assert bench.completed
    assert numbers(out) == EXPECTED
