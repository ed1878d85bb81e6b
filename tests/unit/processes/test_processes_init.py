"""Process 1 of a container, played by a process that orphans are given to as well."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from tests.support.patience import WAIT_S

PREPARED = """
import ctypes, os, signal, subprocess, sys, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
from onyx.processes.init import divide
init = os.getpid()
divide(pid=1)
"""
ORPHAN = """
made = subprocess.run(["sh", "-c", "sleep 0 & echo $!"], stdout=subprocess.PIPE, check=True)
orphan = int(made.stdout)
while os.path.exists(f"/proc/{orphan}"):
    time.sleep(0.001)
sys.exit(7)
"""
PATIENT = """
signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
print("ready", flush=True)
signal.pause()
"""


def test_orphans_are_buried_and_the_exit_code_is_that_of_the_work() -> None:
    done = subprocess.run([sys.executable, "-c", PREPARED + ORPHAN], timeout=WAIT_S)

    assert done.returncode == 7


@pytest.mark.parametrize(
    ("work", "sent", "code"),
    [
        (PATIENT, signal.SIGTERM, 5),
        ('print("ready", flush=True); signal.pause()', signal.SIGTERM, 128 + signal.SIGTERM),
    ],
    ids=["handled", "fatal"],
)
def test_signals_are_passed_on(work: str, sent: signal.Signals, code: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PREPARED + work], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(sent)
        assert process.wait(WAIT_S) == code


def test_any_other_process_does_its_work_itself() -> None:
    code = "import os; from onyx.processes.init import divide; p = os.getpid(); divide(); assert p == os.getpid()"  # noqa: E501

    assert subprocess.run([sys.executable, "-c", code], timeout=WAIT_S).returncode == 0
