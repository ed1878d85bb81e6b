"""A source that cannot give again what it gave is waited for, or ends the job with a reason."""

import pytest

from onyx.errors import Unavailable, UserError
from onyx.plugins.protocol import START
from onyx.task.source.partition import open_at, read_again


class Reader:
    """Gives slices of so many segments, then nothing."""

    def __init__(self, slices, ends):
        self.slices, self.ends = [list(range(each)) for each in slices], ends
        self.closed = False

    def read(self, segments_max):
        if not self.slices:
            return []
        found, rest = self.slices[0][:segments_max], self.slices[0][segments_max:]
        self.slices[:1] = [rest] if rest else []
        return found

    def exhausted(self):
        return self.ends and not self.slices

    def close(self):
        self.closed = True


class Plugin:
    def __init__(self, reader):
        self.reader = reader

    def open(self, partition, cursor):
        return self.reader


@pytest.mark.parametrize(
    ("slices", "ends", "raised"),
    [
        ([3], True, (UserError, r"p: positions 3 to 5 were read before and are not there")),
        ([3], False, (Unavailable, r"p: positions 3 to 5 .* does not give them now")),
        ([], True, (UserError, "positions 0 to 5")),
    ],
)
def test_what_is_not_there_any_more_is_no_place_to_begin(slices, ends, raised):
    reader = Reader(slices, ends)
    error, why = raised
    with pytest.raises(error, match=why):
        open_at(Plugin(reader), "p", START, 5)
    assert reader.closed


def test_what_was_only_given_away_may_be_missing():
    reader = Reader([3], ends=False)
    assert open_at(Plugin(reader), "p", START, 5, certain=False) is reader
    assert not reader.closed


@pytest.mark.parametrize(
    ("slices", "ends", "count"), [([2, 3], True, 5), ([2, 9], True, 5), ([2], False, 2)]
)
def test_what_there_is_is_sent_again_first(slices, ends, count):
    assert len(read_again(Reader(slices, ends), "p", 10, 15)) == count


@pytest.mark.parametrize(
    ("slices", "ends", "error"),
    [([2], True, UserError), ([], True, UserError), ([], False, Unavailable)],
)
def test_what_is_missing_is_told(slices, ends, error):
    with pytest.raises(error, match="p: positions 1"):
        read_again(Reader(slices, ends), "p", 10, 15)
