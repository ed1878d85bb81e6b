"""Jobs of real processes that come to a stand say why, and go on when what is in their way goes."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import msgspec
import pytest
from tests.support.patience import WAIT_S
from tests.support.servers import processes

from onyx.processes.programs import Process

pytestmark = pytest.mark.server

STALLED_AFTER_S = 2.0
COUNT = 6_000
FUNCTIONS = """
import os, time

def slow(segment):
    if not os.path.exists("go"):
        time.sleep(0.02)
    return segment

def hangs(segment):
    while segment["n"] == 10 and not os.path.exists("go"):
        time.sleep(0.05)
    return segment
"""
JOB = """
apiVersion: onyx.dev/v1beta1
kind: OnyxJob
metadata: {name: stalls}
spec:
  guarantee: GUARANTEE
  workflow: [[read, work], [work, write]]
  catalog:
    - {name: read, type: input, plugin: files, batchSize: 100, maxPending: 1000,
       pendingTimeout: 3000, inputRetryTimeout: 500,
       options: {path: in/a.csv, types: {n: int}}}
    - {name: work, type: function, fn: "stall_functions:FN", batchSize: 50}
    - {name: write, type: output, plugin: files, batchSize: 50, options: {path: place/out}}
"""


def rows(first: int) -> str:
    """Several blocks of a file."""
    return "n,text\n" + "".join(f"{n},{'x' * 100}\n" for n in range(first, first + COUNT))


class Run:
    """`onyx run` in a folder, and what it prints."""

    def __init__(self, folder: Path, process: Process, output: TextIO) -> None:
        self.folder = folder
        self.process = process
        self._output = output
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.printed: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def until(self, pattern: str) -> str:
        while True:
            try:
                line = self._lines.get(timeout=WAIT_S)
            except queue.Empty:
                raise AssertionError("".join(self.printed)) from None
            self.printed.append(line)
            if re.search(pattern, line):
                return line

    def completes(self) -> None:
        self.until("is completed")
        assert self.process.wait(WAIT_S) == 0, "".join(self.printed)
        written = sorted(
            row["n"]
            for path in (self.folder / "place" / "out").glob("*.jsonl")
            for row in msgspec.json.Decoder().decode_lines(path.read_bytes())
        )
        assert sorted(set(written)) == list(range(COUNT)), "nothing is lost"
        assert len(written) == COUNT, "no failure of a worker, so nothing is written twice"

    def end(self) -> None:
        self.process.kill()
        self._reader.join()

    def _read(self) -> None:
        for line in self._output:
            self._lines.put(line)


@contextlib.contextmanager
def running(folder: Path, fn: str = "slow", guarantee: str = "exactly-once") -> Iterator[Run]:
    (folder / "stall_functions.py").write_text(FUNCTIONS)
    (folder / "job.yaml").write_text(JOB.replace("FN", fn).replace("GUARANTEE", guarantee))
    (folder / "in").mkdir()
    (folder / "in" / "a.csv").write_text(rows(0))
    environment = {
        "ONYX_TELEMETRY_JOB_STALLED_AFTER_S": str(STALLED_AFTER_S),
        "ONYX_STATE_URL": str(folder / "state"),
        "COLUMNS": "400",
    }
    words = ("run", "job.yaml", "--processes", 2)
    with processes.running(folder, *words, environment=environment) as (process, output):
        run = Run(folder, process, output)
        try:
            yield run
        finally:
            run.end()


def test_a_function_that_hangs_is_named_with_where_it_is_and_its_batch_not_read_again(
    tmp_path: Path,
) -> None:
    with running(tmp_path, "hangs", "at-least-once") as run:
        run.until(r"does not advance: task work .*function stall_functions:hangs is running; ")
        run.until(r"at .*stall_functions.py:\d+ in hangs")
        run.until(r"task work .*are in flight, .* longer than pendingTimeout \(3,000 ms\)")
        (tmp_path / "go").touch()
        run.completes()


@pytest.mark.slow
@pytest.mark.parametrize(
    "guarantee", [pytest.param("at-least-once", marks=pytest.mark.slow), "exactly-once"]
)
def test_an_output_folder_that_is_moved_away_is_waited_for(tmp_path: Path, guarantee: str) -> None:
    out, away = tmp_path / "place" / "out", tmp_path / "away"
    with running(tmp_path, guarantee=guarantee) as run:
        run.until(r"running .* [1-9][0-9,]* completed")
        out.rename(away)
        (tmp_path / "go").touch()
        run.until(r"does not advance: task write .*place/out is gone: .*put it back")
        assert not out.exists()
        away.rename(out)
        run.completes()


@pytest.mark.slow
@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_full_output_disk_is_waited_for(tmp_path: Path, guarantee: str) -> None:
    place = tmp_path / "place"
    place.mkdir()
    mounted = shutil.which("mount") and os.geteuid() == 0 and _mount("size=200k", place)
    if not mounted:
        pytest.skip("a small disk can be mounted by root only")
    try:
        (tmp_path / "go").touch()
        with running(tmp_path, guarantee=guarantee) as run:
            run.until(r"does not advance: task write .*No space left .*make room on the disk")
            assert _mount("remount,size=50m", place)
            run.completes()
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.mark.slow
def test_a_changed_input_ends_the_job_by_name(tmp_path: Path) -> None:
    with running(tmp_path, "hangs") as run:
        run.until(r"does not advance: task work")
        (tmp_path / "in" / "a.csv").write_text(rows(1))
        (tmp_path / "go").touch()
        run.until(r"has failed: task read, .*in/a.csv has changed, .* while a job was reading it")
        assert run.process.wait(WAIT_S) == 1


def _mount(options: str, place: Path) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", options, "none", str(place)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0
