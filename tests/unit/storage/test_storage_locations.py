"""What every location for files promises, by the same tests: a folder, objects, memory."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.servers.object_stores import ObjectStore
from tests.support.servers.s3_server import S3Server

from onyx.errors import Unavailable, UserError
from onyx.state.location import open_store
from onyx.storage import folder as folder_store
from onyx.storage.folder import Folder
from onyx.storage.interface import BlobStore, ListedFile, Location
from onyx.storage.objects.connection import ATTEMPTS_MAX
from onyx.storage.s3 import Trailing


def test_what_is_created_is_read_by_its_name(blobs: BlobStore) -> None:
    assert blobs.create("job/task/1", b"one")
    assert blobs.create("job/task/2", b"")

    assert blobs.read("job/task/1") == b"one"
    assert blobs.read("job/task/2") == b""
    assert blobs.read("job/task/3") is None
    assert blobs.read("other/task/1") is None


def test_a_name_is_created_once_and_keeps_its_bytes(blobs: BlobStore) -> None:
    blobs.create("job/task/1", b"one")

    assert not blobs.create("job/task/1", b"two")
    assert blobs.read("job/task/1") == b"one"


def test_creating_the_same_bytes_again_succeeds_because_the_first_call_may_have_failed_in_doubt(
    blobs: BlobStore,
) -> None:
    assert blobs.create("job/task/1", b"one")
    assert blobs.create("job/task/1", b"one")
    assert blobs.list("job/") == [ListedFile("job/task/1", 3)]


def test_a_note_takes_the_place_of_what_is_there_and_of_nothing_else(
    blobs: BlobStore, trailing: Trailing
) -> None:
    blobs.create("job/task.end", b"01")
    for text in (b"02", b"03"):
        blobs.note("job/task.end", text)
    blobs.note("job/other.end", b"01")
    blobs.note("nobody/other.end", b"01")

    trailing.write()
    assert blobs.read("job/task.end") == b"03"
    assert blobs.list("") == [ListedFile("job/task.end", 2)]


def test_a_listing_has_all_names_below_a_prefix_in_order(blobs: BlobStore) -> None:
    names = [f"job/task/{log}/{seq}" for log in ("b", "a") for seq in (3, 1, 2)]
    for name in [*names, "job/task-2/x", "job-2/task/x"]:
        blobs.create(name, name.encode())

    assert blobs.list("job/task/") == [ListedFile(name, len(name)) for name in sorted(names)]
    assert [each.name for each in blobs.list("job/")] == sorted([*names, "job/task-2/x"])
    assert blobs.list("none/") == []


def test_what_is_deleted_is_gone_and_may_be_deleted_again(blobs: BlobStore) -> None:
    blobs.create("job/task/1", b"one")
    blobs.create("job/task/2", b"two")
    blobs.delete("job/task/1")
    blobs.delete("job/task/1")
    blobs.delete("none/task/1")

    assert blobs.read("job/task/1") is None
    assert [each.name for each in blobs.list("job/")] == ["job/task/2"]


def test_many_are_deleted_wherever_they_are_and_no_others(blobs: BlobStore) -> None:
    names = ["a/1", "a/2", "a/b/1", "c/1", "a/3"]
    for name in [*names, "a/4", "c/2"]:
        blobs.create(name, b"x")
    blobs.delete_all(name for name in ["a/1", "a/gone", "a/2", "gone/1", "a/b/1", "c/1", "a/3"])
    assert [each.name for each in blobs.list("")] == ["a/4", "c/2"]
    blobs.delete_all([])


def test_a_copy_stays_when_what_was_copied_is_deleted(blobs: BlobStore) -> None:
    blobs.create("job/task/1", b"one")
    for _ in range(2):
        blobs.copy("job/task/1", "job-2/task/1")
    blobs.copy("job/task/none", "job-2/task/none")
    blobs.delete("job/task/1")

    assert blobs.read("job-2/task/1") == b"one"
    assert [each.name for each in blobs.list("")] == ["job-2/task/1"]


def test_removing_a_folder_leaves_others_alone(blobs: BlobStore) -> None:
    for name in ("job/task/log/1", "job/task/log/2", "job/other/log/1", "job-2/task/log/1"):
        blobs.create(name, b"-")

    blobs.remove_tree("job")

    assert blobs.list("job/") == []
    assert [each.name for each in blobs.list("job-2/")] == ["job-2/task/log/1"]


def test_of_many_who_create_the_same_name_one_succeeds(blobs: BlobStore) -> None:
    created: list[int] = []
    start = threading.Barrier(6)

    def create(number: int) -> None:
        start.wait()
        if blobs.create("job/task/1", b"%d" % number):
            created.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(created) == 1
    assert blobs.read("job/task/1") == b"%d" % created[0]


# --- locations, which are more than stores of blobs ----------------------------------------------


def test_a_folder_of_a_place_is_a_place(location: Location) -> None:
    inner = location / "job" / "task=1"
    assert inner.create("_onyx.json", b"{}")
    assert inner.create("deeper/1", b"one")

    assert location.read("job/task=1/_onyx.json") == b"{}"
    assert [each.name for each in inner.list("")] == ["_onyx.json", "deeper/1"]
    assert [each.name for each in inner.list("deeper/")] == ["deeper/1"]
    assert str(inner) == f"{location}/job/task=1"
    assert inner.path_of("deeper/1").endswith("/some/location/job/task=1/deeper/1")


def test_what_was_read_is_replaced_by_one_who_read_it(location: Location) -> None:
    assert location.replace("note", b"first", None)
    assert not location.replace("note", b"second", None)
    assert location.replace("note", b"second", b"first")
    assert not location.replace("note", b"third", b"first")
    assert not location.replace("none", b"third", b"first")

    assert location.read("note") == b"second"
    assert location.read("none") is None


def test_of_many_who_replace_what_they_read_one_succeeds(location: Location) -> None:
    location.create("note", b"before")
    replaced: list[int] = []
    start = threading.Barrier(6)

    def replace(number: int) -> None:
        start.wait()
        with contextlib.suppress(Unavailable):  # while another one does
            if location.replace("note", b"%d" % number, b"before"):
                replaced.append(number)

    threads = [threading.Thread(target=replace, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(replaced) == 1
    assert location.read("note") == b"%d" % replaced[0]


@pytest.mark.parametrize("durable", [True, False])
def test_a_new_file_is_seen_when_it_is_whole(location: Location, durable: bool) -> None:
    with location.new_file("job/1", durable) as file:
        file.write(b"first, ")
        assert location.list("") == []
        assert not location.exists("job/1")
        file.write(b"second")

    assert location.exists("job/1")
    assert location.read("job/1") == b"first, second"
    assert location.list("") == [ListedFile("job/1", 13)]


def test_a_new_file_is_dropped_after_an_error(location: Location) -> None:
    def fail() -> None:
        with location.new_file("job/1") as file:
            file.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert location.list("") == []
    location.remove_tree("job")
    if location.local is not None:
        assert list(location.local.iterdir()) == []


def test_readers_of_parquet_open_what_a_place_has(location: Location) -> None:
    with location.new_file("job/1.parquet") as file:
        pq.write_table(pa.table({"n": [1, 2]}), file)

    assert pq.read_table(location.source("job/1.parquet")).column("n").to_pylist() == [1, 2]


@pytest.mark.parametrize("name", ["", ".", "..", "a/../b", "/a", "a//b", ".a", "a\x00b", "a" * 256])
def test_nothing_is_called_by_what_leads_elsewhere_or_is_hidden(
    location: Location, name: str
) -> None:
    for use in (
        lambda: location.create(name, b"-"),
        lambda: location.read(name),
        lambda: location.delete(name),
        lambda: location.remove_tree(name),
        lambda: location.new_file(name),
        lambda: location / name,
    ):
        with pytest.raises(UserError):
            use()


# --- folders -------------------------------------------------------------------------------------


def test_a_file_is_durable_before_it_has_its_name_and_its_name_before_create_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = []
    fsync, link = os.fsync, os.link

    def spied_fsync(descriptor: int) -> None:
        fsync(descriptor)
        done.append("directory" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "file")

    def spied_link(source: str, target: str, **folders: int) -> None:
        link(source, target, **folders)
        done.append("link")

    store = Folder(tmp_path)
    store.create("a/1", b"-")
    monkeypatch.setattr(os, "fsync", spied_fsync)
    monkeypatch.setattr(os, "link", spied_link)
    store.create("a/2", b"-")

    assert done == ["file", "link", "directory"]


def test_nothing_but_chunks_is_left_in_a_directory(tmp_path: Path) -> None:
    store = Folder(tmp_path)
    store.create("job/task/1", b"one")
    store.create("job/task/1", b"two")

    assert [path.name for path in (tmp_path / "job" / "task").iterdir()] == ["1"]


def test_what_a_killed_writer_left_goes_with_the_last_chunk(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.create("job/task/1", b"one")
    (tmp_path / "job" / "task" / ".half").write_bytes(b"half")

    assert store.list("job/") == [ListedFile("job/task/1", 3)]
    store.delete("job/task/1")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def failing_link(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    chosen = {"errno": 0}

    def link(source: str, target: str, **folders: int) -> None:
        raise OSError(chosen["errno"], os.strerror(chosen["errno"]))

    monkeypatch.setattr(folder_store.os, "link", link)
    return chosen


def test_a_full_disk_is_waited_for(tmp_path: Path, failing_link: dict[str, int]) -> None:
    failing_link["errno"] = 28  # ENOSPC
    store = Folder(tmp_path)

    with pytest.raises(Unavailable, match=r"No space left.*make room on the disk"):
        store.create("job/task/1", b"one")
    assert list((tmp_path / "job" / "task").iterdir()) == []


def test_a_disk_that_may_not_be_written_is_an_error_for_the_operator(
    tmp_path: Path, failing_link: dict[str, int]
) -> None:
    failing_link["errno"] = 30  # EROFS
    with pytest.raises(UserError, match=r"Read-only.*ONYX_STATE_URL"):
        open_store(str(tmp_path)).create("job/task/1", b"one")


def test_a_disk_that_could_be_written_before_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(str(tmp_path))
    store.create("job/task/1", b"one")

    def link(source: str, target: str, **folders: int) -> None:
        raise OSError(30, os.strerror(30))  # EROFS

    monkeypatch.setattr(folder_store.os, "link", link)
    with pytest.raises(Unavailable, match=r"Read-only.*when it can be written again"):
        (store / "job").create("task/2", b"two")


def test_a_file_in_the_place_of_the_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    with pytest.raises(UserError, match="ONYX_STATE_URL"):
        open_store(str(tmp_path / "state")).create("job/task/1", b"one")


def test_a_link_to_nowhere_in_the_place_of_the_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "state").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UserError, match="ONYX_STATE_URL"):
        open_store(str(tmp_path / "state" / "job")).create("job/task/1", b"one")


def test_a_name_whose_durability_is_in_doubt_is_made_durable_by_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Folder(tmp_path)
    store.create("job/task/1", b"one")
    sync, synced = os.fsync, []

    def fails_once(descriptor: int) -> None:
        sync(descriptor)
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            synced.append(descriptor)
            if len(synced) == 1:
                raise OSError(5, "Input/output error")

    monkeypatch.setattr(folder_store.os, "fsync", fails_once)
    with pytest.raises(Unavailable):
        store.create("job/task/2", b"two")

    assert store.create("job/task/2", b"two")
    assert len(synced) == 2


@pytest.mark.parametrize(
    ("group_access", "folder", "file"), [(False, 0o700, 0o600), (True, 0o770, 0o640)]
)
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_nobody_else_may_read_state_unless_the_settings_say_so(
    tmp_path: Path, group_access: bool, folder: int, file: int, umask: int
) -> None:
    before = os.umask(umask)
    try:
        store = open_store(str(tmp_path / "state"), group_access)
        store.create("job/task/log/1", b"one")
    finally:
        os.umask(before)

    found = {path: path.stat().st_mode & 0o777 for path in (tmp_path / "state").rglob("*")}
    assert {mode for path, mode in found.items() if path.is_dir()} == {folder}
    assert {mode for path, mode in found.items() if path.is_file()} == {file}
    assert (tmp_path / "state").stat().st_mode & 0o777 == folder


# --- object stores -------------------------------------------------------------------------------


def test_notes_that_follow_each_other_cost_few_requests_and_do_not_bring_back_what_is_removed(
    objects: BlobStore, fake_s3: S3Server, trailing: Trailing
) -> None:
    for name in ("job/one.end", "job/two.end"):
        objects.create(name, b"000")
    before = len(fake_s3.store.requests)
    for number in range(500):
        objects.note("job/one.end", b"%03d" % number)
    objects.note("job/two.end", b"001")
    objects.delete("job/two.end")
    trailing.write()

    requests = [each.split(" ")[0] for each in fake_s3.store.requests[before:]]
    assert requests == ["DELETE", "GET", "PUT", "GET"]
    assert objects.read("job/one.end") == b"499"
    assert objects.read("job/two.end") is None


def test_a_note_that_fails_is_written_with_the_next_one(
    objects: BlobStore, faults: list[tuple[str, str]], trailing: Trailing
) -> None:
    objects.create("job/one.end", b"000")
    faults += [("PUT .*one.end", "refuse")] * ATTEMPTS_MAX
    for text in (b"001", b"002"):
        objects.note("job/one.end", text)
        trailing.write()

    assert objects.read("job/one.end") == b"002"


@pytest.fixture
def objects(fake_store: ObjectStore) -> BlobStore:
    return open_store(f"{fake_store.url}/state")


@pytest.fixture
def faults(fake_s3: S3Server) -> list[tuple[str, str]]:
    """Requests that the server fails, and how."""
    return fake_s3.store.faults


def test_an_object_whose_answer_was_lost_is_known_as_ones_own(
    objects: BlobStore, faults: list[tuple[str, str]]
) -> None:
    faults.append(("PUT .*/state/job/task/1", "lose"))

    assert objects.create("job/task/1", b"one")
    assert objects.read("job/task/1") == b"one"


def test_an_object_that_somebody_else_wrote_meanwhile_is_not(
    objects: BlobStore, fake_store: ObjectStore, faults: list[tuple[str, str]]
) -> None:
    faults.append(("PUT .*/state/job/task/1", "refuse"))
    fake_store.put("state/job/task/1", b"two")

    assert not objects.create("job/task/1", b"one")


def test_a_wrong_place_is_refused_without_repeating_credentials() -> None:
    with pytest.raises(UserError, match="ONYX_STATE_URL") as caught:
        open_store("s3://user:secret@bucket/state")
    assert "secret" not in str(caught.value)
    with pytest.raises(UserError, match="begin with s3://"):
        open_store("gs://bucket/state")
