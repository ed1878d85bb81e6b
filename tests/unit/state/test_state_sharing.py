"""That all workers keep state in one place is checked."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.log.memory_log import MemoryLog

from onyx.errors import StateError
from onyx.ids import GroupId, JobId, PeerId
from onyx.log.interface import LogReader
from onyx.settings import Settings, StateSettings
from onyx.state.location import check_shared, open_store, state_location
from onyx.storage.interface import BlobStore

JOB = JobId("job")


@pytest.fixture
def log() -> LogReader:
    log = MemoryLog().group(GroupId("group"))
    log.register_pulse()
    return log


def check(store: BlobStore, log: LogReader, peer: str, job: JobId = JOB) -> None:
    check_shared(store, log, job, PeerId(peer), "/state")


def test_a_place_that_all_share_is_right_for_each_and_stays_so(
    chunks: BlobStore, log: LogReader
) -> None:
    for peer in ("one", "two", "one", "three"):
        check(chunks, log, peer)


def test_a_folder_that_each_worker_has_for_itself_is_refused(
    tmp_path: Path, log: LogReader
) -> None:
    check(open_store(str(tmp_path / "first")), log, "one")
    second = open_store(str(tmp_path / "second"))

    for _ in range(2):
        with pytest.raises(StateError, match=r"not in /state of this worker.*ONYX_STATE_URL"):
            check(second, log, "two")
    check(open_store(str(tmp_path / "first")), log, "three")


def test_a_place_that_was_emptied_is_not_taken_for_a_new_one(
    chunks: BlobStore, log: LogReader
) -> None:
    check(chunks, log, "one")
    chunks.delete("job/location.id")

    with pytest.raises(StateError, match="what was there is gone"):
        check(chunks, log, "two")


def test_each_job_may_have_another_place(tmp_path: Path, log: LogReader) -> None:
    check(open_store(str(tmp_path / "first")), log, "one")
    check(open_store(str(tmp_path / "second")), log, "two", JobId("next"))


def test_nothing_is_left_of_a_job_that_was_removed(chunks: BlobStore, log: LogReader) -> None:
    check(chunks, log, "one")
    chunks.create("job/task/log/0", b"chunk")

    chunks.remove_tree("job")

    assert list(chunks.list("job/")) == []


def test_the_place_follows_from_the_settings() -> None:
    def place(url: str, data_dir: str) -> str:
        return state_location(Settings(data_dir=data_dir, state=StateSettings(url=url)))

    assert place("", "") == ".onyx/state"
    assert place("", "/data") == "/data/.onyx/state"
    assert place("state", "/data") == "/data/state"
    assert place("/mnt/state", "/data") == "/mnt/state"
    assert place("s3://bucket/state", "/data") == "s3://bucket/state"
