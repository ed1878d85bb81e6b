"""What a log says of a large state is on the disk until it is restored."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
from tests.support.log.records import notes, notes_of

from onyx.errors import SettingsError
from onyx.settings import StateSettings
from onyx.state.chunks import Chunk, EmittedRun, ShardChange
from onyx.state.local.scratch import Spool
from onyx.state.recovery import recover
from onyx.storage.interface import MemoryBlobStore


def limited(folder: Path) -> StateSettings:
    return StateSettings(memory_extents_max=1, scratch_dir=str(folder))


def written(*texts: str) -> MemoryBlobStore:
    """A store with a record a chunk, of shards 0 and 1 in turns."""
    store = MemoryBlobStore()
    log = recover(store, "job", "task", 1, 0, [0, 1], StateSettings()).log
    for number, text in enumerate(texts):
        log.append(
            Chunk(
                {
                    number % 2: ShardChange(
                        notes(text), emitted=[EmittedRun(number, [{"n": number}])]
                    )
                }
            )
        )
    return store


def test_records_come_back_in_order_and_more_than_once(tmp_path: Path) -> None:
    store = written("a", "b", "c" * 100_000, "d")
    shards = recover(store, "job", "task", 2, 0, [0, 1], limited(tmp_path)).shards
    for _ in range(2):
        assert [notes_of(shards[n]) for n in (0, 1)] == [["a", "c" * 100_000], ["b", "d"]]
    assert shards[1].emitted == [EmittedRun(1, [{"n": 1}]), EmittedRun(3, [{"n": 3}])]


def open_files() -> list[str]:
    links = (os.path.join("/proc/self/fd", each) for each in os.listdir("/proc/self/fd"))
    return [os.readlink(each) for each in links if os.path.islink(each)]


def test_the_disk_has_them_until_nobody_does(tmp_path: Path) -> None:
    found = recover(written("a"), "job", "task", 2, 0, [0], limited(tmp_path))
    assert list(tmp_path.iterdir()) == [], "the file has no name"
    assert any(str(tmp_path) in each for each in open_files())
    del found
    gc.collect()
    assert not any(str(tmp_path) in each for each in open_files())


def test_bytes_are_kept_as_they_are(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    kept = [spool.keep(memoryview(each)) for each in (b"one", b"", b"three")]
    assert [each.read() for each in kept] == [b"one", b"", b"three"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="ONYX_STATE_SCRATCH_DIR: nothing can be written to"):
        recover(written("a"), "job", "task", 2, 0, [0], limited(tmp_path / "file"))
