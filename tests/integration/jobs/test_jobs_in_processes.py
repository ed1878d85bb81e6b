"""`with_test_env(processes=...)`: a block of test code with worker processes around it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from onyx.errors import SettingsError
from onyx.processes.forking import Launcher
from onyx.testing import TestEnv, env, with_test_env

pytestmark = pytest.mark.server

FUNCTION = """
import os

def where(segment):
    return {**segment, "pid": os.getpid()}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "places.py").write_text(FUNCTION)
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"n": n}) + "\n" for n in range(20)))
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def rows(there: TestEnv, folder: Path, name: str) -> list[dict[str, Any]]:
    """What a job writes that notes in which process its function was."""

    def files(task: str, type: str, path: Path) -> dict[str, Any]:
        return {"name": task, "type": type, "plugin": "files", "options": {"path": str(path)}}

    job = {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxJob",
        "metadata": {"name": name},
        "spec": {
            "workflow": [["read", "where"], ["where", "write"]],
            "catalog": [
                files("read", "input", folder / "in.jsonl"),
                {"name": "where", "type": "function", "fn": "places:where"},
                files("write", "output", folder / name),
            ],
        },
    }
    assert there.run(job).state == "completed"
    written = [path.read_text() for path in (folder / name).glob("*.jsonl")]
    return [json.loads(line) for text in written for line in text.splitlines()]


@pytest.fixture(params=["forked", pytest.param("executed", marks=pytest.mark.slow)])
def starts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers are started in both ways."""
    if request.param == "executed":
        launcher = Launcher({})
        launcher.close()  # as where nothing can be forked
        monkeypatch.setattr(env, "_launcher", lambda: launcher)


@pytest.mark.usefixtures("starts")
def test_functions_run_in_worker_processes_and_one_that_died_is_replaced(folder: Path) -> None:
    with with_test_env(3, modules=["places"], processes=2) as there:
        first = there.pids
        assert len(first) == 2
        before = rows(there, folder, "before")
        os.kill(first[0], signal.SIGKILL)
        after = rows(there, folder, "after")
        last = there.pids

    for found, pids in ((before, set(first)), (after, {*first[1:], *last})):
        assert sorted(each["n"] for each in found) == list(range(20))
        assert {each["pid"] for each in found} <= pids - {os.getpid()}
    assert [pid for pid in (*first, *last) if Path(f"/proc/{pid}").exists()] == []


def test_peers_of_this_process_are_in_no_other(folder: Path) -> None:
    with with_test_env(3, modules=["places"]) as there:
        assert {each["pid"] for each in rows(there, folder, "here")} == {os.getpid()}
        assert there.pids == []


@pytest.mark.slow
def test_a_module_that_is_not_there_ends_the_block_at_its_start() -> None:
    with (
        pytest.raises(SettingsError, match="a worker process ended with code 2"),
        with_test_env(1, modules=["no_such_module"], processes=1),
    ):
        pass
