"""A breakpoint in a function, and a person at the terminal of `onyx run`."""

from __future__ import annotations

import os
import pty
import select
import sys
from pathlib import Path

import pytest
from tests.support.patience import WAIT_S, rounds

pytestmark = pytest.mark.server

TASKS = """\
def work(segment):
    if segment["number"] == 1:
        breakpoint()
    return {"doubled": segment["number"] * 2}
"""
JOB = """\
metadata: {name: doubled}
spec:
  catalog:
    - {name: read, plugin: sequence, options: {segments: [{number: 0}, {number: 1}, {number: 2}]}}
    - {name: work, fn: "my_tasks:work"}
    - {name: write, plugin: files, options: {path: out}}
"""


def test_a_breakpoint_has_the_terminal_and_the_job_goes_on_behind_it(tmp_path: Path) -> None:
    (tmp_path / "my_tasks.py").write_text(TASKS)
    (tmp_path / "job.yaml").write_text(JOB)
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        words = [sys.executable, "-P", "-m", "onyx.cli", "run", "job.yaml"]
        os.environ["ONYX_TELEMETRY_JOB_STALLED_AFTER_S"] = "0.1"
        os.execv(words[0], words)
    said = read_until(terminal, "(Pdb) ")
    os.write(terminal, b"p segment\n")
    said += read_until(terminal, "{'number': 1}")
    os.write(terminal, b"c\n")
    said += read_until(terminal, "job doubled is completed")
    _, status = os.waitpid(pid, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    written = "".join(each.read_text() for each in (tmp_path / "out").glob("*.jsonl"))
    assert sorted(written.split()) == ['{"doubled":0}', '{"doubled":2}', '{"doubled":4}']
    assert "my_tasks.py(" in said
    assert "does not advance" not in said
    behind = said.partition("(Pdb) ")[2]
    assert behind.count("segments/s") == 1, "the table comes back at the end"


def read_until(terminal: int, text: str) -> str:
    found = b""
    for _ in rounds():
        if text.encode() in found:
            break
        if select.select([terminal], [], [], WAIT_S)[0]:
            found += os.read(terminal, 65_536)
    return found.decode()
