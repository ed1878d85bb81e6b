"""`onyx submit --upgrade`: the old job as people name it, and what is said of it then."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.log.memory_log import MemoryLog
from tests.unit.cli.test_cli_job_files import a_file

from onyx.cli.commands import submit as command
from onyx.cli.status_table import print_statuses
from onyx.client.client import Client
from onyx.client.statuses import remarks
from onyx.errors import UserError
from onyx.ids import JobId


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    found = Client(MemoryLog().client(), "balanced")
    monkeypatch.setattr(command, "connect", lambda _: found)
    monkeypatch.setattr(Client, "__exit__", lambda *_: None)
    return found


def submitted(capsys: pytest.CaptureFixture[str], file: Path, upgrade: str | None = None) -> JobId:
    command.submit([file], upgrade=upgrade)
    return JobId(capsys.readouterr().out.strip())


@pytest.mark.parametrize("named", ["by id", "by the beginning of its id", "by its name"])
def test_the_old_job_is_named_as_everywhere(
    client: Client, capsys: pytest.CaptureFixture[str], tmp_path: Path, named: str
) -> None:
    old = submitted(capsys, a_file(tmp_path, "flights"))
    client.kill(old)
    text = {"by id": old, "by its name": "flights"}.get(named, old[:8])
    new = submitted(capsys, a_file(tmp_path, "more-flights"), text)
    assert client.replica().upgrades(new) == old
    print_statuses([client.status(old)], as_json=False)
    assert f"    upgraded: job {new} has its state" in capsys.readouterr().out.splitlines()
    assert "upgraded" not in remarks(client.status(new))


def test_an_old_job_that_may_be_several_is_refused_with_all_of_them(
    client: Client, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = a_file(tmp_path, "flights")
    ids = sorted(submitted(capsys, file) for _ in range(2))
    with pytest.raises(UserError, match=f"2 jobs: give the id: {ids[0]} or {ids[1]}"):
        command.submit([file], upgrade="flights")
    assert len(client.replica().jobs) == 2
