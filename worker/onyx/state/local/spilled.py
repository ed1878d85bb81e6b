"""The states of a task, of which those used last are in memory, and the rest in a RocksDB on the
local disk.

What is on disk is a cache of the state log and nothing more: it is not synced, has no log of its
own, and is gone with its owner.

Rejected: a position on disk for each shard (a peer touches all its shards all the time).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import finalize

from onyx.codec.values import decode_values
from onyx.errors import SettingsError
from onyx.keystate.buckets import Bucket, Form, Holder, InMemory, Pair
from onyx.keystate.groups import Shards
from onyx.settings import StateSettings
from onyx.state.local.scratch import Scratch, scratch_folder
from onyx.state.local.spilled_bucket import PAGE, Disk, SpilledBucket
from onyx.state.local.spilled_maps import SpilledMaps, entries_of, entry_of

if TYPE_CHECKING:
    from rocksdict import Rdict

CACHE_BYTES = 16_777_216
WRITE_BUFFER_BYTES = 8_388_608


def holder(settings: StateSettings) -> Holder:
    """Where the windows of a task have their states.

    Raises:
        SettingsError: as `Spill`.
    """
    if not settings.memory_extents_max:
        return InMemory()
    return Spill(scratch_folder(settings), settings.memory_extents_max)


class Spill(Disk):
    """Makes the buckets of one task on one peer."""

    in_memory = False

    def __init__(self, parent: Path, extents_max: int) -> None:
        """`extents_max`: in memory, all buckets together, between two calls.

        Raises:
            SettingsError: rocksdict is not installed, or `parent` cannot be written to.
        """
        super().__init__(extents_max)
        self.db = _open(parent, self)

    def bucket(self, form: Form, shards: Shards) -> Bucket:
        """A new bucket, empty."""
        return self.added(SpilledBucket(self.new_prefix(), form, shards, self))

    def maps(self, shards: Shards) -> Bucket:
        """A new bucket of maps, empty."""
        return self.added(SpilledMaps(self.new_prefix(), shards, self))

    def freeze(self) -> FrozenSpill:
        """What is in memory is written as well, and stays there."""
        self.copy_out()
        return FrozenSpill(self)


class FrozenSpill:
    """Buckets as they were at one moment, for one thread at a time."""

    def __init__(self, spill: Spill) -> None:
        self._spill = spill  # whose database is open as long as somebody has it
        # An iterator sees what there was when it was made. (What rocksdict calls a snapshot gives
        # iterators that see the newest.)
        self._found = spill.db.iter()
        self._entries = spill.db.iter()

    def pages(self, bucket: Bucket, shard: int) -> Iterator[tuple[list[Any], list[Any]]]:
        """Groups of a shard and their states, as plain data, some at a time."""
        assert isinstance(bucket, SpilledBucket)
        found, prefix = self._found, bucket.prefix + shard.to_bytes(2, "big")
        found.seek(prefix)
        keys: list[Any] = []
        states: list[Any] = []
        while found.valid() and found.key().startswith(prefix):
            key, state = decode_values(found.value())
            keys.append(key)
            states.append(state)
            found.next()
            if len(keys) == PAGE:
                yield keys, states
                keys, states = [], []
        if keys:
            yield keys, states

    def maps(self, bucket: Bucket, shard: int) -> Iterator[tuple[Any, Iterator[Pair]]]:
        """Groups of a shard, as plain data, each with the entries of its map."""
        for keys, states in self.pages(bucket, shard):
            for key, dumped in zip(keys, states, strict=True):
                yield key, entries_of(dumped, self._read)

    def _read(self, prefix: bytes) -> Iterator[Pair]:
        found = self._entries
        found.seek(prefix)
        while found.valid() and found.key().startswith(prefix):
            yield entry_of(found.key(), found.value())
            found.next()


def _open(parent: Path, owner: Spill) -> Rdict:
    """A database that ends with its owner."""
    try:
        import rocksdict as rocks
    except ImportError as error:
        raise SettingsError(
            "ONYX_STATE_MEMORY_EXTENTS_MAX needs rocksdict: pip install 'onyx-on-kubernetes[spill]'"
        ) from error
    scratch = Scratch(parent)
    table = rocks.BlockBasedOptions()
    table.set_block_cache(rocks.Cache(CACHE_BYTES))
    table.set_bloom_filter(10, False)
    options = rocks.Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(table)
    options.set_compression_type(rocks.DBCompressionType.lz4())
    options.set_write_buffer_size(WRITE_BUFFER_BYTES)
    db = rocks.Rdict(str(scratch.path / "db"), options)
    unlogged = rocks.WriteOptions()
    unlogged.disable_wal = True  # type: ignore[assignment,method-assign]
    db.set_write_options(unlogged)
    finalize(owner, _end, db, scratch)
    return db


def _end(db: Rdict, scratch: Scratch) -> None:
    db.close()
    scratch.remove()
