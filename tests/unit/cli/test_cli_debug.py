"""`onyx debug`: one task of a job over segments of a file, in the debugger where it raises."""

from __future__ import annotations

import json
import pdb
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onyx.cli.command_table import run_command
from onyx.errors import UserError

JOB = """
metadata: {name: j}
spec:
  workflow: [[read, work], [work, write], [work, bad]]
  catalog:
    - {name: read, type: input, plugin: generator}
    - {name: work, type: function, fn: "debugged_tasks:work", batchSize: 2 MORE}
    - {name: write, type: output, plugin: blackhole}
    - {name: bad, type: output, plugin: blackhole}
"""
MODULE = """
def work(segment):
    if segment["n"] == 3:
        raise ValueError("no number: 3")
    return [segment, segment]

def columns(batch):
    if 3 in batch.column("n").to_pylist():
        raise ValueError("no number: 3")
    return batch
"""
KINDS = {
    "dicts": "",
    "columns": ', batchFormat: arrow, fn: "debugged_tasks:columns"',
    "a dead letter": ", deadLetter: bad",
}


@pytest.fixture
def entered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Where the debugger was entered; the current folder has the module and segments."""
    monkeypatch.chdir(tmp_path)
    path, found = list(sys.path), list[Any]()
    (tmp_path / "debugged_tasks.py").write_text(MODULE)
    (tmp_path / "fine.jsonl").write_text('{"n": 1}\n\n{"n": 2}\n{"n": 4}\n')
    (tmp_path / "bad.jsonl").write_text('{"n": 1}\n{"n": 2}\n{"n": 3}\n{"n": 4}\n')
    monkeypatch.setattr(pdb, "post_mortem", found.append)
    yield found
    sys.path[:] = path
    sys.modules.pop("debugged_tasks", None)


def debug(more: str, segments: str, task: str = "work") -> None:
    text = JOB.replace(" MORE", more)
    if "columns" in more:
        text = text.replace('fn: "debugged_tasks:work", ', "")
    Path("job.yaml").write_text(text)
    run_command(["debug", "job.yaml", "--task", task, "--segment", segments])


@pytest.mark.parametrize("kind", KINDS)
def test_the_debugger_is_entered_where_the_function_raises(
    entered: list[Any], capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        debug(KINDS[kind], "bad.jsonl")
    (trace,) = entered
    while trace.tb_next is not None:
        trace = trace.tb_next
    assert trace.tb_frame.f_code.co_name == ("columns" if kind == "columns" else "work")
    assert ended.value.code == 1
    assert "ValueError: no number: 3" in capsys.readouterr().out


def test_segments_that_pass_are_counted(
    entered: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    debug("", "fine.jsonl")
    assert capsys.readouterr().out == "task work: 3 segments pass, it makes 6 of them\n"
    assert entered == []


def letter(n: int, task: str = "work", types: str = "date /on") -> str:
    error, segment = {"type": "ValueError"}, {"n": n, "on": "2026-11-30"}
    about = {"error": error, "job": "j", "task": task, "time": "", "types": types}
    return json.dumps({**about, "segment": segment}) + "\n"


def test_of_dead_letters_the_task_gets_the_segments_of_its_own(
    entered: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [letter(1), letter(3, "other"), letter(3, types="cut /on"), '{"n": 2}\n', letter(4)]
    Path("letters.jsonl").write_text("".join(lines))
    debug("", "letters.jsonl")
    assert capsys.readouterr().out.splitlines() == [
        "letters.jsonl has dead letters: task work gets the segments of its own",
        "          1  left: of task other",
        "          1  left: the letter does not have all of it: /on is cut",
        "task work: 3 segments pass, it makes 6 of them",
    ]
    Path("letters.jsonl").write_text(letter(3))
    with pytest.raises(SystemExit):
        debug("", "letters.jsonl")
    assert "datetime.date(2026, 11, 30)" in capsys.readouterr().out


def test_letters_of_other_tasks_alone_are_no_segments(entered: list[Any]) -> None:
    Path("letters.jsonl").write_text(letter(3, "other"))
    with pytest.raises(UserError, match="jsonl has no segment of task work"):
        debug("", "letters.jsonl")


@pytest.mark.parametrize(
    ("task", "segments", "why"),
    [
        ("none", "fine.jsonl", "job j has no task none: it has read, work, write or bad"),
        ("read", "fine.jsonl", "task read cannot be debugged alone: it makes segments"),
        ("work", "nowhere.jsonl", "nowhere.jsonl cannot be read: No such file or directory"),
        ("work", "debugged_tasks.py", "debugged_tasks.py, line 2 is no JSON object"),
    ],
)
def test_what_cannot_be_debugged_is_refused(
    entered: list[Any], task: str, segments: str, why: str
) -> None:
    with pytest.raises(UserError, match=why):
        debug("", segments, task)
    assert entered == []
