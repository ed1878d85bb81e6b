"""The state log of one peer in one allocation version: appended to by one writer, until fenced."""

from __future__ import annotations

from onyx.state.chunks import Chunk


class StateLog:
    """An open log. One thread at a time; every method but `wants_snapshot` blocks on the store.

    Nothing may be appended before the job is ready in this allocation version: only then is it
    certain that whoever takes over finds this log.
    """

    def append(self, chunk: Chunk) -> None:
        """Make a chunk durable.

        Raises:
            Fenced: a newer version has taken over; nothing of `chunk` counts.
            Unavailable: it is in doubt whether the chunk is durable. Append the same object again:
                it is written once.
            SegmentError: a value has no encoding.
            UserError: the store refuses (rights, path).
        """
        raise NotImplementedError

    @property
    def wants_snapshot(self) -> bool:
        """Whether reading the log has become so dear that a snapshot pays."""
        raise NotImplementedError

    def snapshot(self, chunk: Chunk) -> None:
        """Write the whole state: every shard of this log, all ids that are known, the watermark.
        What is read afterwards begins here. Raises like `append`; may be called again."""
        raise NotImplementedError

    def collect(self) -> None:
        """Delete what nobody reads any more: own chunks before the last snapshot, and older logs
        all of whose shards have a snapshot in this version. Call it after `snapshot`, from any
        thread; what fails is deleted the next time. Raises Unavailable and UserError."""
        raise NotImplementedError
