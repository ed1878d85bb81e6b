"""Parts in an object store when requests fail, are repeated, or meet a fence at any moment."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.support.jobs.plugin_context import plugin_context
from tests.support.servers.object_stores import ObjectStore

from onyx.errors import Fenced, Unavailable, UserError
from onyx.ids import GroupId
from onyx.plugins.protocol import Output, StagingOutput
from onyx.plugins.registry import build_output
from onyx.testing.plugin_kit import check_output

ONE = {"n": 1}


def output(store: ObjectStore, incarnation: str = "g1", writer: str = "", **context: Any) -> Output:
    options = {"path": f"{store.url}/out"}
    made = plugin_context(options, incarnation=incarnation, **context)
    return build_output("files", replace(made, writer=writer))


def visible(store: ObjectStore) -> list[str]:
    return store.keys("out/part-")


@pytest.mark.short(1)
def test_the_output_keeps_to_the_protocol(store: ObjectStore) -> None:
    folders = itertools.count()

    def start() -> tuple[Callable[[GroupId], Output], Callable[[], list[dict[str, Any]]]]:
        folder = f"kit/{next(folders)}"

        def make(incarnation: GroupId) -> Output:
            options = {"path": f"{store.url}/{folder}"}
            return build_output("files", plugin_context(options, incarnation=incarnation))

        def read_back() -> list[dict[str, Any]]:
            parts = [store.get(key) for key in store.keys(f"{folder}/part-")]
            return [line for part in parts for line in msgspec.json.Decoder().decode_lines(part)]

        return make, read_back

    check_output(start)


@pytest.mark.parametrize("moment", range(8))
def test_nothing_becomes_visible_after_a_fence_whenever_it_comes(
    fake_store: ObjectStore, moment: int
) -> None:
    """The living fence just before the zombie's n-th request is carried out; the zombie, sure that
    it may, goes on with it."""
    server = fake_store.server.store  # type: ignore[union-attr]
    begun = set(server.uploads)
    zombie, living = output(fake_store), output(fake_store, "g2")
    zombie.write([ONE])
    requests = itertools.count()
    seen: list[list[str]] = []

    def before(request: str) -> None:
        if next(requests) == moment:
            server.before = lambda request: None
            living.fence([GroupId("g2")])
            seen.append(visible(fake_store))

    server.before = before
    try:
        zombie.flush()
    except Fenced:
        assert zombie.durable() == 0
    finally:
        server.before = lambda request: None
    for before_fence in seen:
        assert visible(fake_store) == before_fence
    assert len(visible(fake_store)) == zombie.durable()
    with pytest.raises(Fenced) if seen else pytest.raises(AssertionError):
        zombie.write([ONE])
        zombie.flush()
        assert seen, "all moments of a flush have been tried"
    zombie.close()
    living.close()
    assert fake_store.keys("out/.staging/") == []
    assert set(server.uploads) == begun


@pytest.mark.parametrize("fault", ["refuse", "lose"])
@pytest.mark.parametrize("request_", ["uploads", "staging", "partNumber", "HEAD", "POST.*uploadId"])
def test_a_fault_in_any_request_neither_loses_nor_repeats(
    fake_store: ObjectStore, fault: str, request_: str
) -> None:
    faults = fake_store.server.store.faults  # type: ignore[union-attr]
    sink = output(fake_store)
    sink.write([ONE])
    faults.append((request_, fault))
    sink.flush()
    sink.close()
    assert faults == []
    assert sink.durable() == 1
    assert [fake_store.get(key) for key in visible(fake_store)] == [b'{"n":1}\n']


@pytest.mark.parametrize("request_", ["uploads", "staging", "partNumber", "HEAD", "POST.*uploadId"])
def test_a_store_that_is_away_holds_segments_back_and_loses_none(
    fake_store: ObjectStore, monkeypatch: pytest.MonkeyPatch, request_: str
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    faults = fake_store.server.store.faults  # type: ignore[union-attr]
    sink = output(fake_store)
    sink.write([ONE])
    faults.extend([(request_, "refuse")] * 1_000)
    with pytest.raises(Unavailable):
        sink.flush()
    with pytest.raises(Unavailable):
        sink.tick()
    assert sink.durable() == 0
    faults.clear()
    sink.tick()
    assert sink.durable() == 1
    sink.write([{"n": 2}])
    sink.flush()
    sink.close()
    assert [fake_store.get(key) for key in visible(fake_store)] == [b'{"n":1}\n', b'{"n":2}\n']
    assert fake_store.keys("out/.staging/") == []


@pytest.mark.short(4)
@pytest.mark.parametrize("left", [0, 1, 8, 30, -1])
def test_a_note_that_is_cut_short_was_never_written(store: ObjectStore, left: int) -> None:
    """[begin an upload, cut its note, CRASH, fence]"""
    note = note_of_a_dead_writer(store)
    store.put(note, store.get(note)[:left])
    living = output(store, "g2")
    living.fence([GroupId("g2")])
    living.write([ONE])
    living.flush()
    living.close()
    assert [store.get(key) for key in visible(store)] == [b'{"n":1}\n']
    assert store.keys("out/.staging/") == []


@pytest.mark.parametrize("content", [b"{}", b'["foreign"]', b"\xff", b'{"key": 1, "upload": "u"}'])
def test_what_is_no_note_is_an_error_that_names_it_and_what_to_do(
    store: ObjectStore, content: bytes
) -> None:
    note = note_of_a_dead_writer(store)
    store.put(note, content)
    living = output(store, "g2")
    with pytest.raises(UserError) as caught:
        living.fence([GroupId("g2")])
    assert f"{store.url}/{note}" in str(caught.value)
    assert "job" in str(caught.value)
    assert "abort the uploads" in str(caught.value)
    assert store.keys("out/.staging/") == [note]


def note_of_a_dead_writer(store: ObjectStore) -> str:
    """The key of the note of an upload that is not completed."""
    dead = output(store, permitted=lambda: next(answers))
    answers = itertools.chain([True, False], itertools.repeat(True))
    dead.write([ONE])
    dead.flush()
    (note,) = (key for key in store.keys("out/.staging/") if not key.endswith("/writer"))
    return note


def test_a_crash_leaves_uploads_that_the_next_fence_ends(fake_store: ObjectStore) -> None:
    """[write, write, CRASH, fence]"""
    crashed = output(fake_store, permitted=lambda: next(answers))
    answers = itertools.chain([True, False], itertools.repeat(True))
    server = fake_store.server.store  # type: ignore[union-attr]
    before = set(server.uploads)
    crashed.write([ONE])
    crashed.flush()
    assert len(set(server.uploads) - before) == 1
    output(fake_store, "g2").fence([GroupId("g2")])
    assert set(server.uploads) == before
    assert fake_store.keys() == []


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("s3://key:topsecret@bucket/out", r"option 'path' is a s3:// URL with credentials in it"),
        ("gs://bucket/out", r"option 'path' is \"gs://bucket/out\", but there are only"),
    ],
)
def test_a_path_that_cannot_be_is_refused_at_the_start(path: str, why: str) -> None:
    for name in ("files", "spark"):
        options = {"path": path} | ({"stage": "a:b"} if name == "spark" else {})
        context = plugin_context(options, functions={"a:b": lambda frame: frame})
        with pytest.raises(UserError, match=f"job 'flights', task 'work': {why}") as caught:
            build_output(name, context)
        assert "topsecret" not in str(caught.value)


def test_a_bucket_that_is_not_there_or_not_ours_is_told_with_job_task_and_key(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = "job 'flights', task 'work': option 'path': s3://"
    missing = build_output("files", plugin_context({"path": f"{store.url}-no/out"}))
    with pytest.raises(UserError, match=f"{where}.*no such bucket"):
        missing.write([ONE])
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody-else")
    with pytest.raises(UserError, match=f"{where}.*access is denied"):
        output(store).write([ONE])


def test_what_one_process_stages_another_one_publishes_and_sweeps(store: ObjectStore) -> None:
    tokens: list[Any] = []
    for number in range(2):
        staging = output(store, writer=f"a1-{number}-")
        assert isinstance(staging, StagingOutput)
        staging.stage(lambda token, segments: tokens.append(token))
        staging.write([{"n": number}])
        staging.flush()
        assert staging.durable() == 1
        staging.close()
    before = len(visible(store))
    publishing = output(store, writer="a1-")
    assert isinstance(publishing, StagingOutput)
    publishing.finish(tokens[0])
    publishing.sweep()
    publishing.close()
    assert len(visible(store)) == before + 1
    assert store.keys("out/.staging/") == []
    publishing.finish(tokens[1])  # swept: it is never published any more
    assert len(visible(store)) == before + 1
