"""A reader of a journal of which a chunk cannot be read now."""

from __future__ import annotations

import pytest

from onyx.errors import Unavailable
from onyx.flow.batch import Segments
from onyx.flow.segment import Segment
from onyx.plugins.journalled.reader import JournalReader
from onyx.program.plugin_forms import segments_reader

ENDS = 4
ROWS: list[Segment] = [{"n": number} for number in range(ENDS)]


class Chunks:
    """Two chunks, and a store that fails at the second for some time."""

    failures_left = 2

    def first_of(self, position: int) -> int:
        return position - position % 2

    def following(self, position: int) -> tuple[int, list[Segments]] | None:
        if position == 2 and self.failures_left:
            self.failures_left -= 1
            raise Unavailable("the store is away")
        first = self.first_of(position)
        return None if position == ENDS else (first, [ROWS[first : first + 2]])


@pytest.mark.parametrize("columns", [False, True])
def test_what_comes_before_it_is_read_first_and_nothing_is_lost(columns: bool) -> None:
    chunks = Chunks()
    reader = segments_reader(JournalReader(chunks, 0, chunks.following, lambda: ENDS, {}), columns)

    assert list(reader.read(10)) == ROWS[:2]
    with pytest.raises(Unavailable):
        reader.read(10)
    assert list(reader.read(10)) == ROWS[2:]
