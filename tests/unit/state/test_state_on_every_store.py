"""A task's state from peer to peer on a directory, an object store and in memory."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from tests.support.log.records import notes, notes_of
from tests.support.servers.object_stores import ObjectStore
from tests.support.servers.s3_server import S3Server

from onyx.errors import Fenced
from onyx.settings import StateSettings
from onyx.state.chunks import Chunk, ShardChange
from onyx.state.location import open_store
from onyx.state.recovery import RecoveredState, recover
from onyx.storage.interface import BlobStore
from onyx.storage.s3 import Trailing

SETTINGS = StateSettings()


def taken_over(store: BlobStore, version: int, rank: int, shards: list[int]) -> RecoveredState:
    return recover(store, "job", "task", version, rank, shards, SETTINGS)


def records(recovered: RecoveredState) -> dict[int, list[str]]:
    return {n: notes_of(state) for n, state in recovered.shards.items()}


def change(**texts: str) -> Chunk:
    ids = np.array([len(texts)], dtype=np.uint64)
    return Chunk(
        {int(name[1:]): ShardChange(notes(text)) for name, text in texts.items()}, ids, ids
    )


def test_state_goes_from_two_peers_to_three_and_to_one(
    chunks: BlobStore, trailing: Trailing
) -> None:
    two = [taken_over(chunks, 1, rank, [rank, rank + 2]) for rank in range(2)]
    two[0].log.append(change(s0="a", s2="b"))
    two[1].log.append(change(s1="c"))
    two[0].log.append(change(s0="d"))
    # Beside the collection it would be a race, which a gateway before a folder can lose.
    trailing.write()

    shards = [[0, 3], [1], [2]]
    three: list[RecoveredState | None] = [None] * 3

    def begin(rank: int) -> None:
        three[rank] = taken_over(chunks, 4, rank, shards[rank])

    threads = [threading.Thread(target=begin, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with pytest.raises(Fenced):
        two[0].log.append(change(s0="late"))
    opened = [each for each in three if each is not None]
    assert [records(each) for each in opened] == [{0: ["a", "d"], 3: []}, {1: ["c"]}, {2: ["b"]}]

    for each, mine in zip(opened, shards, strict=True):
        each.log.append(change(**{f"s{mine[0]}": "e"}))
        each.log.snapshot(change(**{f"s{shard}": f"all of {shard}" for shard in mine}))
        each.log.collect()
    opened[1].log.append(change(s1="f"))

    last = taken_over(chunks, 9, 0, [0, 1, 2, 3])
    assert records(last) == {
        0: ["all of 0"], 1: ["all of 1", "f"], 2: ["all of 2"], 3: ["all of 3"],
    }  # fmt: skip
    left = [each.name for each in chunks.list("job/task/") if "00001-0000" in each.name]
    assert len(left) == 2, "only the fences of the first version are left"
    chunks.remove_tree("job")
    assert chunks.list("job/") == []


@pytest.mark.parametrize("fault", ["lose", "refuse"])
def test_an_object_store_that_fails_now_and_then_loses_and_doubles_nothing(
    fake_s3: S3Server, fake_store: ObjectStore, fault: str
) -> None:
    store = open_store(f"{fake_store.url}/state")
    first = taken_over(store, 1, 0, [0])
    for number in range(4):
        fake_s3.store.faults.append(("PUT ", fault))
        first.log.append(change(s0=f"chunk {number}"))
    for method in ("PUT", "GET"):
        fake_s3.store.faults.append((f"{method} ", fault))

    assert records(taken_over(store, 2, 0, [0])) == {0: [f"chunk {number}" for number in range(4)]}
