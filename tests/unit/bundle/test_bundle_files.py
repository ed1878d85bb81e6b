"""A bundle: what is in it and what is not, that pages are made of it, and that damaged, huge and
foreign files are refused in words."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.bundles import Workers, bundled, failed_world
from tests.support.console_world import GROUPS, ConsoleWorld
from tests.support.jobs.bench import chain

from onyx.bundle import bundle_file, gathering
from onyx.bundle.bundle_file import JobBundle, read, write
from onyx.bundle.bundled_log import client_of
from onyx.bundle.gathering import JobGathering, public
from onyx.client.reader import JobReader
from onyx.console.board import Board, Reporter, followed
from onyx.console.pages import Console
from onyx.console.serve import StillLife
from onyx.console.task_page import LINE_CHARACTERS_MAX, LINES_MAX, worker_page
from onyx.errors import Unavailable, UserError
from onyx.ids import JobId
from onyx.replica import canonical
from onyx.reports.measures import Measures, WorkerDiagnostics

SEGMENTS = [{"n": 1, "card": "x"}, {"n": 2, "card": "4111-1111"}, {"n": 3, "card": "y"}]


def fails(segment: dict[str, Any]) -> dict[str, Any]:
    if segment["n"] == 2:
        raise ValueError(f"no number: {segment['card']}")
    return segment


def broken() -> ConsoleWorld:
    return failed_world(chain(SEGMENTS, fn="m:fails"), {"m:fails": fails})


@pytest.fixture(scope="module")
def world() -> ConsoleWorld:
    return broken()


def text_of(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode()


def test_a_bundle_has_the_log_the_manifest_reports_and_what_workers_say(
    world: ConsoleWorld, tmp_path: Path
) -> None:
    found = bundled(world, tmp_path / "b.gz")
    assert (found.head.job, found.head.name, found.head.values) == ("broken", "shop", True)
    assert found.entries == list(world.log.read(-1))
    reader = client_of(found)
    assert canonical.digest(reader.replica()) == canonical.digest(world.client.replica())
    assert reader.job(JobId("broken")) == world.client.job(JobId("broken"))
    assert reader.exception(JobId("broken")) == world.client.exception(JobId("broken"))
    assert found.workers[GROUPS[0]].metrics == "onyx_up 1\n"
    assert found.notes == (f"worker {GROUPS[1]} does not answer: no answer in time: 5 s",)
    assert "4111-1111" in text_of(tmp_path / "b.gz")


def test_without_values_nothing_of_a_segment_is_in_the_file(
    world: ConsoleWorld, tmp_path: Path
) -> None:
    found = bundled(world, tmp_path / "b.gz", values=False)
    text = text_of(tmp_path / "b.gz")
    assert "4111" not in text
    report = client_of(found).exception(JobId("broken"))
    assert report is not None
    assert report["segment"] == "{'card': str, 'n': int}"
    assert report["errors"][0]["frames"][0]["function"] == "fails"
    of_us, of_user = (json.loads(each) for each in found.workers[GROUPS[0]].lines)
    assert of_us["event"] == "task work has failed: ***"
    assert "event" not in of_user
    assert json.loads(found.documents["frontier/broken/0"].data) == {"position": 2}


def test_secrets_of_a_manifest_are_left_out() -> None:
    manifest = {
        "url": "https://ada:pw@host/x?token=abc", "headers": {"Authorization": "Bearer abcdefghij"},
        "headersEnv": {"Authorization": "TOKEN"}, "config": {"sasl.password": "abc", "a.b": 1},
        "keys": ["token"], "named": {"token": "kept"},
    }  # fmt: skip
    entry = {"params": ["key"], "options": {"key": "user", "options": {"password": "x"}}}
    hidden = {"params": ["key"], "options": {"key": "user", "options": {"password": "***"}}}
    assert public({"catalog": [entry]}) == {"catalog": [hidden]}
    assert public(manifest) == {
        "url": "***", "headers": {"Authorization": "***"},
        "headersEnv": {"Authorization": "TOKEN"}, "config": {"sasl.password": "***", "a.b": 1},
        "keys": ["token"], "named": {"token": "kept"},
    }  # fmt: skip


PAGES = (
    "/", "/jobs/shop", "/jobs/broken/manifest", "/jobs/shop/tasks/work", "/cluster", "/ask",
    "/time", "/time?at=3&job=broken", f"/workers/{GROUPS[0]}",
)  # fmt: skip


def console_of(reader: JobReader, bundle: JobBundle, past: Any) -> Console:
    at_ms = bundle.head.at_ms
    reporter = Reporter(reader, past, lambda: at_ms, lambda: 0.0, 1.0)
    answer = StillLife(at_ms, Measures()).answer
    said = bundle.workers
    return Console(reader, past, reporter, "a bundle", lambda: at_ms, answer, said=said)


@pytest.mark.parametrize("values", [True, False])
def test_the_pages_of_a_console_are_made_of_a_bundle(
    world: ConsoleWorld, values: bool, tmp_path: Path
) -> None:
    found = bundled(world, tmp_path / "b.gz", values)
    reader = client_of(found)
    with followed(reader, lambda: None) as past:
        console = console_of(reader, found, past)
        for each in PAGES:
            path, _, query = each.partition("?")
            page = console.page(path, dict(part.split("=") for part in query.split("&") if part))
            assert page.code == 200, each
            text = console.html(page)
            assert ("4111" in text) <= values
            assert "shop" in text or not path.startswith("/jobs")
        job = console.texts(console.page("/jobs/shop", {}))
        there = world.console()
        if values:
            assert job == there.texts(there.page("/jobs/shop", {}))
        assert "ValueError" in "".join(job)
        worker = console.texts(console.page(f"/workers/{GROUPS[0]}", {}))[-1]
        assert "now  error  onyx.jobs  task work has failed: " in worker
        assert "onyx_up 1" in worker
        assert "log lines" not in console.texts(console.page(f"/workers/{GROUPS[1]}", {}))[-1]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ('{"level": "info", "event": "a\\nb", "time": "t", "n": [1]}', "t  info  a\\nb  n=[1]"),
        ("no JSON \x1b[2J", r"no JSON \x1b[2J"),
        ("[" * 100_000, "["),
        ('{"a": ' + "[" * 900 + "]" * 900 + "}", "["),
        ("", ""),
    ],
)
def test_a_log_line_of_a_stranger_is_shown_and_does_nothing(line: str, shown: str) -> None:
    world = ConsoleWorld()
    world.join(GROUPS[0])
    page = worker_page(Board(world.client.replica()), GROUPS[0], WorkerDiagnostics((line,) * 500))
    assert page is not None
    assert len(page.lines) == LINES_MAX
    assert shown in page.lines[0]
    assert len(page.lines[0]) <= LINE_CHARACTERS_MAX


@pytest.mark.parametrize("state", ["completed", "running"])
def test_a_job_that_has_not_failed_has_a_bundle_too(state: str, tmp_path: Path) -> None:
    world = ConsoleWorld()
    world.join(*GROUPS[:2])
    job = world.submit("fine", id="fine")
    if state == "completed":
        world.complete(job)
    found = bundled(world, tmp_path / "b.gz", job="fine")
    assert client_of(found).status(job).state == state


def test_without_workers_the_bundle_says_so(tmp_path: Path) -> None:
    world = ConsoleWorld()
    world.submit("lonely", id="broken")
    assert "there is no worker" in " ".join(bundled(world, tmp_path / "b.gz").notes)


def test_of_a_long_log_the_newest_entries_are_taken(
    world: ConsoleWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "ENTRIES_MAX", 3)
    found = bundled(world, tmp_path / "b.gz")
    assert len(found.entries) == 3
    assert "oldest" in " ".join(found.notes)
    same = canonical.digest(client_of(found).replica())
    assert same == canonical.digest(world.client.replica())


def test_a_damaged_manifest_or_document_hides_nothing_else(tmp_path: Path) -> None:
    world = broken()
    digest = world.client.replica().digest_of(JobId("broken"))
    world.log.put_document("stall/broken/x", b"{", None)
    del world.memory._store.chunks[digest]
    found = bundled(world, tmp_path / "b.gz")
    assert "manifest of job broken cannot be read" in " ".join(found.notes)
    assert "document stall/broken/x is damaged" in " ".join(found.notes)
    assert len(found.entries) > 3


def test_a_job_that_nobody_knows_is_refused_and_leaves_no_file(
    world: ConsoleWorld, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="there is no job nowhere"):
        bundled(world, tmp_path / "b.gz", job="nowhere")
    assert list(tmp_path.iterdir()) == []


def test_a_bundle_that_breaks_off_leaves_the_file_before(
    world: ConsoleWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "b.gz"
    bundled(world, file)
    before = file.read_bytes()

    def gone(*_: Any) -> Any:
        raise Unavailable("ZooKeeper does not answer")

    monkeypatch.setattr(world.client, "entries", gone)
    workers: Any = Workers()
    lines = JobGathering(world.client, workers, "shop", JobId("broken"), True, lambda: 1).lines()
    with pytest.raises(Unavailable):
        write(file, lines)
    assert [each.name for each in tmp_path.iterdir()] == ["b.gz"]
    assert file.read_bytes() == before


def test_where_no_file_can_be_written_it_is_said(world: ConsoleWorld, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be written: No such file"):
        bundled(world, tmp_path / "nowhere" / "b.gz")


# --- files of others ------------------------------------------------------------------------------


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(each) for each in text_of(path).splitlines()]


def stored(path: Path, found: list[dict[str, Any]]) -> Path:
    path.write_bytes(gzip.compress(b"".join(json.dumps(each).encode() + b"\n" for each in found)))
    return path


def newer(found: list[dict[str, Any]]) -> None:
    found[0]["body"] = {"bundle": 99, "more": 1}


def reordered(found: list[dict[str, Any]]) -> None:
    found[-2], found[-3] = found[-3], found[-2]


def made_up(found: list[dict[str, Any]]) -> None:
    origin = next(each for each in found if each["part"] == "origin")
    origin["body"]["replica"]["groups"] = {"not": "a list"}


def other_origin(found: list[dict[str, Any]]) -> None:
    next(each for each in found if each["part"] == "origin")["body"]["position"] = 7


def talking(found: list[dict[str, Any]]) -> None:
    next(each for each in found if each["part"] == "worker")["body"]["lines"] = [""] * 10_001


def nested(found: list[dict[str, Any]]) -> None:
    deep: Any = []
    for _ in range(900):
        deep = [deep]
    found[0]["body"] = deep


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (newer, "use the Onyx that has written it"),
        (lambda found: found.pop(), "its end is missing"),
        (lambda found: found.pop(0), "does not begin"),
        (lambda found: found.clear(), "does not begin"),
        (reordered, "follows on"),
        (made_up, "damaged"),
        (other_origin, "not that before its entries"),
        (nested, "damaged"),
        (talking, "10,001 log lines"),
        (lambda found: found.append({"part": "more", "body": 1}), "follows on its end"),
    ],
)
def test_a_file_that_somebody_has_changed_is_refused(
    change: Callable[[list[dict[str, Any]]], Any], why: str, world: ConsoleWorld, tmp_path: Path
) -> None:
    bundled(world, tmp_path / "b.gz")
    found = lines(tmp_path / "b.gz")
    change(found)
    with pytest.raises(UserError, match=why):
        read(stored(tmp_path / "c.gz", found))


def test_parts_that_are_not_known_are_passed_over(world: ConsoleWorld, tmp_path: Path) -> None:
    bundled(world, tmp_path / "b.gz")
    found = lines(tmp_path / "b.gz")
    found.insert(1, {"part": "../../etc/passwd", "name": "/etc/passwd", "body": [1]})
    assert read(stored(tmp_path / "c.gz", found)).head.job == "broken"


@pytest.mark.parametrize("cut", [0, 10, -1, -40])
def test_a_file_that_is_cut_off_is_refused(cut: int, world: ConsoleWorld, tmp_path: Path) -> None:
    bundled(world, tmp_path / "b.gz")
    data = (tmp_path / "b.gz").read_bytes()
    (tmp_path / "c.gz").write_bytes(data[:cut] if cut else b"")
    with pytest.raises(UserError, match=r"c\.gz"):
        read(tmp_path / "c.gz")


@pytest.mark.parametrize("what", ["text", "folder", "nothing"])
def test_what_is_no_bundle_is_refused(what: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    if what == "text":
        path.write_text("hello")
    if what == "folder":
        path.mkdir()
    with pytest.raises(UserError, match="x "):
        read(path)


def test_few_bytes_that_become_many_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle_file, "BYTES_MAX", 1_000_000)
    monkeypatch.setattr(bundle_file, "LINE_BYTES_MAX", 100_000)
    bomb = tmp_path / "bomb.gz"
    for data in (b"1" * 5_000_000, b'{"part":"x","body":1}\n' * 500_000):
        bomb.write_bytes(gzip.compress(data))
        with pytest.raises(UserError, match=r"larger than any bundle|does not begin"):
            read(bomb)
    head = b'{"part":"head","body":{"bundle":1,"onyx":"1","tenancy":"","job":"","name":"",'
    head += b'"at_ms":1,"values":true}}\n'
    bomb.write_bytes(gzip.compress(head + b'{"part":"x","body":1}\n' * 500_000))
    with pytest.raises(UserError, match="larger than any bundle"):
        read(bomb)
