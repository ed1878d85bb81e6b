"""`onyx events`: the story of a job, of those that are gone too."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.operator.harness import job
from tests.support.log.memory_log import MemoryLog

from onyx.cli.commands import events as command
from onyx.client.client import Client
from onyx.errors import UserError
from onyx.ids import JobId
from onyx.log import documents
from onyx.model.parsing.job import parse_mapping
from onyx.replica.commands import Gc, KillJob, SubmitJob
from onyx.replica.job_events import KILLED, JobEvent

NAME = "flights"
WHY = "task work failed in apply-fn with ValueError"


class World:
    """A log in memory, and what the command prints of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, output: pytest.CaptureFixture[str]) -> None:
        self._memory, self._output = MemoryLog(), output
        self.client = self._connect()
        self.log = self.client.log
        monkeypatch.setattr(command, "connect", lambda _: self._connect())

    def _connect(self) -> Client:
        return Client(self._memory.client(), "balanced", by="command:alice@here")

    def submit(self, name: str = NAME, **more: Any) -> JobId:
        manifest = job()
        manifest["metadata"]["name"] = name
        manifest["spec"].pop("clusterRef", None)
        manifest["spec"].update(more)
        return self.client.submit(parse_mapping(manifest)).job

    def printed(self, *words: str, **options: bool) -> tuple[str, str]:
        self._output.readouterr()
        command.events(*words, **options)  # type: ignore[arg-type]
        found = self._output.readouterr()
        return found.out, found.err


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> World:
    return World(monkeypatch, capsys)


def failed(world: World, detail: str) -> JobId:
    id = world.submit()
    report = {"detail": detail, "message": detail}
    world.log.put_document(documents.exception(id), msgspec.json.encode(report), None)
    world.log.append(KillJob(id, WHY), "worker:g")
    return id


def test_a_job_is_shown_with_who_did_what_and_why_it_failed(world: World) -> None:
    id = failed(world, "ValueError: no such airport")
    world.submit()
    out, err = world.printed(id[:8])
    submitted, waits, ended, detail = out.splitlines()
    assert submitted.endswith("submitted, with 2 tasks  (command:alice@here)")
    assert "waits: needs 2 peers" in waits
    assert ended.endswith(f"failed: {WHY}  (worker:g)")
    assert detail == "    ValueError: no such airport"
    assert err == ""


@pytest.mark.parametrize("hostile", ["\x1b[2J", "a\nb", "x" * 100_000])
def test_what_an_error_says_stays_on_its_line(world: World, hostile: str) -> None:
    out, _ = world.printed(failed(world, hostile))
    assert all(each.isprintable() and len(each) < 1_100 for each in out.splitlines())
    assert len(out.splitlines()) == 4


def test_programs_get_an_object_a_line(world: World) -> None:
    id = failed(world, "no")
    out, _ = world.printed(id, as_json=True)
    *_, ended = map(json.loads, out.splitlines())
    assert ended.pop("time").endswith("+00:00")
    assert ended == {
        "position": 1, "what": "job-failed", "job": id, "by": "worker:g", "why": WHY,
        "text": f"failed: {WHY}", "detail": "no", "job_name": NAME,
    }  # fmt: skip


def test_what_is_gone_is_said_and_the_rest_is_shown(world: World) -> None:
    world.client.kill(world.submit())
    world.client.gc()
    id = world.submit()
    world.client.kill(id)
    out, err = world.printed()
    assert err.startswith("the log reaches back to entry ")
    assert [line.split()[1] for line in out.splitlines()] == [id] * 3


def test_a_job_that_was_forgotten_is_found_by_the_beginning_of_its_id(world: World) -> None:
    id = world.submit()
    world.client.kill(id)
    out, _ = world.printed(id[:6])
    assert "killed" in out


def test_a_job_that_was_forgotten_is_found_by_its_name(world: World) -> None:
    for name in ("first", "second"):
        world.client.kill(world.submit(name))
    world.log.append(Gc(id="client"), "worker:g")
    assert not world.client.replica().records
    out, _ = world.printed("second")
    said = [line.split("  ")[1] for line in out.splitlines()]
    assert (said[0], said[-2]) == ("submitted, with 2 tasks", "killed")


def test_the_jobs_of_all_lines_are_named(world: World) -> None:
    id = world.submit("flights")
    out, _ = world.printed()
    assert {line.split("  ")[1] for line in out.splitlines()} == {f"{id} flights"}


def test_a_job_and_the_one_that_it_upgrades_are_found_by_their_names(world: World) -> None:
    old = world.submit("shop")
    new = JobId("new")
    named = world.submit("shop2")
    world.client.kill(named)
    spec = replace(world.client.replica().spec(named), upgrades=old)
    world.log.append(SubmitJob(id=new, spec=spec), "command:ann")
    out, _ = world.printed("shop")
    assert out.splitlines()[-1].split("  ")[1] == f"ended: job {new} takes its place"
    world.client.kill(new)
    out, _ = world.printed("shop2")
    assert f"in the place of job {old}" in out.splitlines()[0]


def test_a_job_that_never_was_is_an_error(world: World) -> None:
    world.submit()
    with pytest.raises(UserError, match="there is no job nothing"):
        world.printed("nothing")


def test_what_happens_later_follows(world: World) -> None:
    class Ended(Exception):
        pass

    def show(event: JobEvent) -> None:
        shown.append(event.kind.name)
        if event.kind is KILLED:
            raise Ended

    shown: list[str] = []
    before, id = world.client.replica(), world.submit()
    world.client.kill(id)
    with pytest.raises(Ended):
        command._follow(world.client, before, lambda _: True, show)
    assert shown == ["job-submitted", "job-waits", "job-killed"]
