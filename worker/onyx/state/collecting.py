"""Deletion of chunks that nobody reads any more.

Own chunks are deleted before a complete snapshot: a reader begins at the snapshot. Older logs are
deleted when each of their shards has a complete snapshot in this allocation version. This version
is or was ready, so the peers of a newer version find its logs, fence them first, and then find the
snapshots in them; they never look behind those. A slower reader that finds a chunk gone lists
again.

The fence of an older log stays until the job's state is removed: a zombie (a process that was
declared dead and still runs) that wakes up after the deletion must still find it.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor

from onyx.errors import StateError, Unavailable, UserError
from onyx.state.names import LogKey
from onyx.state.reading import THREADS, Reader, StateLogs
from onyx.storage.fenced_log import Listed, Missing

_logger = logging.getLogger(__name__)


def collect(logs: StateLogs, own: LogKey, start: int) -> None:
    """Mark the own snapshot that begins at `start`, then delete what it and those of the other
    peers of this version have made superfluous."""
    store, folder = logs.store, logs.folder
    try:
        store.create(folder.mark(own, start), b"")
        listed = logs.list()
        with ThreadPoolExecutor(THREADS) as threads:
            reader = Reader(store, folder, threads)
            list(threads.map(store.delete, reader.before(own, listed[own], start)))
            for key, log in _covered(reader, own.version, listed):
                last = reader.fence(key, log) if log.opened else log.last
                list(threads.map(store.delete, reader.before(key, log, last)))
                if log.opened:
                    store.delete(folder.end(key))
                    store.delete(folder.chunk(key, 0))
    except (Missing, KeyError):
        _logger.debug("%s: others are deleting too", folder.prefix)
    except StateError:
        raise
    except (Unavailable, UserError) as error:
        _logger.warning("state that is not needed any more stays for now: %s", error)


def _covered(
    reader: Reader, version: int, logs: dict[LogKey, Listed]
) -> list[tuple[LogKey, Listed]]:
    """Older logs, of which more than the fence is there, all of whose shards have a snapshot in
    this version."""
    snapshots = [key for key, log in logs.items() if key.version == version and log.marks]
    older = {
        key: log
        for key, log in logs.items()
        if key.version < version and (len(log.sizes) > 1 or log.opened or log.marks)
    }
    opened = reader.opened([*snapshots, *(key for key, log in older.items() if log.opened)])
    covered = {shard for key in snapshots for shard in opened[key].frame.shards}
    return [
        (key, log)
        for key, log in sorted(older.items())
        if not log.opened or covered.issuperset(opened[key].frame.shards)
    ]
