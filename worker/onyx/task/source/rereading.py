"""Reading again what a source has given before: the same segments at the same positions.

A source that cannot do that any more ends the job. One that cannot do it now is waited for.
"""

from __future__ import annotations

from onyx.errors import Unavailable, UserError
from onyx.flow.batch import Segment
from onyx.plugins.protocol import Cursor, Input, Reader

SKIPPED_AT_ONCE = 10_000


def open_at(
    plugin: Input, name: str, cursor: Cursor, position: int, certain: bool = True
) -> Reader:
    """A reader of the partition `name` whose next segment is at `position`, or at the end of what
    there is.

    Args:
        cursor: the nearest known place before.
        certain: everything before `position` has been read; under at-most-once it may only have
            been given away.

    Raises:
        UserError: something of that is not there any more.
        Unavailable: the source does not give it now.
    """
    reader = plugin.open(name, cursor)
    try:
        at = cursor.position
        while at < position:
            skipped = len(reader.read(min(position - at, SKIPPED_AT_ONCE)))
            if not skipped and certain:
                raise _not_given(reader, name, at, position)
            if not skipped:
                break
            at += skipped
    except BaseException:
        reader.close()
        raise
    return reader


def read_again(reader: Reader, name: str, first: int, last: int) -> list[Segment]:
    """The segments from `first` on, at least one, and not beyond `last`. Raises like `open_at`."""
    segments: list[Segment] = []
    while len(segments) < last - first:
        more = reader.read(last - first - len(segments))
        if more:
            segments.extend(more)
        elif segments and not reader.exhausted():
            break
        else:
            raise _not_given(reader, name, first + len(segments), last)
    return segments


def _not_given(reader: Reader, name: str, first: int, last: int) -> UserError | Unavailable:
    where = f"{name}: positions {first:,} to {last:,} were read before"
    if reader.exhausted():
        return UserError(
            f"{where} and are not there any more: the source has changed. It must give the same "
            "segments at the same positions until the job is complete; put back what was there, "
            "and submit the job again"
        )
    return Unavailable(f"{where}, and the source does not give them now")
