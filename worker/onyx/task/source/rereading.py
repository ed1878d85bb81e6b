"""Reading again what a source has given before: the same segments at the same positions.

A source that cannot do that any more ends the job. One that cannot do it now is waited for.
"""

from __future__ import annotations

from onyx.errors import Unavailable, UserError
from onyx.flow.batch import Segments
from onyx.flow.mixed import Read, of_runs, runs_of
from onyx.plugins.protocol import Cursor, Input
from onyx.program.reading.segments_reader import SegmentsReader, segments_reader

SKIPPED_AT_ONCE = 10_000


def open_at(
    plugin: Input,
    name: str,
    cursor: Cursor,
    position: int,
    certain: bool = True,
    columns: bool = False,
) -> SegmentsReader:
    """A reader of the partition `name` whose next segment is at `position`, or at the end of what
    there is.

    Args:
        cursor: the nearest known one before.
        certain: everything before `position` has been read; under at-most-once it may only have
            been given away.
        columns: read columns, if the plugin can.

    Raises:
        UserError: something of that is not there any more.
        Unavailable: the source does not give it now.
    """
    reader = segments_reader(plugin.open(name, cursor), columns)
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


def read_again(reader: SegmentsReader, name: str, first: int, last: int) -> Read:
    """The segments from `first` on, at least one, and not beyond `last`. Raises like `open_at`."""
    parts: list[Segments] = []
    count = 0
    while count < last - first:
        more = reader.read(last - first - count)
        if len(more):
            parts.extend(runs_of(more))
            count += len(more)
        elif count and not reader.exhausted():
            break
        else:
            raise _not_given(reader, name, first + count, last)
    return of_runs(parts)


def _not_given(reader: SegmentsReader, name: str, first: int, last: int) -> UserError | Unavailable:
    where = f"{name}: positions {first:,} to {last:,} were read before"
    if reader.exhausted():
        return UserError(
            f"{where} and are not there any more: the source has changed. It must give the same "
            "segments at the same positions until the job is complete; put back what was there, "
            "and submit the job again"
        )
    return Unavailable(f"{where}, and the source does not give them now")
