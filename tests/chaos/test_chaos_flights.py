"""The main job under fire: workers of `onyx run` are killed again and again while it runs over the
real flights, and what it wrote still agrees with pandas once repeats are removed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from tests.support.patience import WAIT_S
from tests.support.servers.processes import is_worker, workers_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "flights"
PROCESSES = 4
KILLS, KILLED_MIN = 4, 3
"""The job may end before the last of them."""
WORK_S = 0.5
"""CPU time that a worker is let do before it is killed."""


@pytest.fixture
def flights(tmp_path: Path) -> Path:
    """A copy of the example with its data prepared."""
    folder = tmp_path / "flights"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("data", "out"))
    subprocess.run([sys.executable, "prepare.py"], cwd=folder, check=True, capture_output=True)
    return folder


def cpu_s(process: psutil.Process) -> float:
    """CPU time of a process; infinite when it has ended."""
    try:
        return float(process.cpu_times().user)
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return float("inf")


def wait_for(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s, "nothing moves any more"
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.server
def test_the_counts_of_the_demo_are_right_whatever_workers_are_killed(flights, tmp_path):
    command = [sys.executable, "-m", "onyx.cli", "run", "job.yaml", "--processes", str(PROCESSES)]
    log = tmp_path / "run.log"
    with log.open("wb") as output:
        run = psutil.Popen(command, cwd=flights, stdout=output, stderr=subprocess.STDOUT)
    try:
        killed = 0
        for _ in range(KILLS):
            wait_for(lambda: run.poll() is not None or len(workers_of(run)) == PROCESSES)
            if run.poll() is not None:
                break
            victim = workers_of(run)[0]
            enough_s = cpu_s(victim) + WORK_S
            wait_for(
                lambda victim=victim, enough_s=enough_s: (
                    run.poll() is not None or cpu_s(victim) > enough_s
                )
            )
            if is_worker(victim):
                victim.kill()
                killed += 1
        code = run.wait(WAIT_S)
    finally:
        if run.is_running():
            run.kill()
    assert code == 0, log.read_text()
    assert killed >= KILLED_MIN, log.read_text()
    check = subprocess.run(
        [sys.executable, "check.py"], cwd=flights, capture_output=True, text=True, check=False
    )
    assert check.returncode == 0, check.stdout + check.stderr
