"""An input file that changes under a job is refused by name; one that only grows is read on."""

import os

import pytest
from tests.support.jobs.plugin_context import plugin_context

from onyx.errors import Unavailable, UserError
from onyx.plugins.protocol import START, Cursor
from onyx.plugins.registry import build_input
from onyx.storage.files import WHOLE_BYTES

SMALL = 4_000
LARGE = WHOLE_BYTES // 10 + 20_000
"""Lines of ten bytes: more than the digest covers whole."""


def lines(count, first=0):
    return "".join(f"{number:09d}\n" for number in range(first, first + count))


def opened(path, cursor=START):
    return build_input("files", plugin_context({"path": str(path)})).open(str(path), cursor)


def read_all(reader):
    found = []
    while not reader.exhausted():
        found += reader.read(1000)
    return found


def later(path):
    """A change that happens some time after the file was opened."""
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 10**9))


def overwrite(path, count):
    with path.open("r+") as file:
        file.write("x" * 9)


def swap_a_line_at_the_end(path, count):
    with path.open("r+") as file:
        file.seek((count - 1) * 10)
        file.write("x" * 9)


def cut(path, count):
    os.truncate(path, count * 5)


def empty(path, count):
    path.write_text("")


def rotate(path, count):
    path.rename(path.with_suffix(".old"))
    path.write_text(lines(count, first=7))


CHANGES = [overwrite, swap_a_line_at_the_end, cut, empty]


@pytest.fixture(params=[SMALL, LARGE], ids=["small", "large"])
def count(request):
    return request.param


@pytest.fixture
def path(tmp_path, count):
    path = tmp_path / "a.txt"
    path.write_text(lines(count))
    return path


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_under_an_open_reader_is_refused(path, count, change):
    reader = opened(path)
    assert len(reader.read(10)) == 10
    change(path, count)
    later(path)
    with pytest.raises(UserError, match=r"a\.txt .* while a job was reading it; .*old file back"):
        read_all(reader)
    reader.close()


@pytest.mark.parametrize("change", [*CHANGES, rotate])
def test_who_reads_it_next_finds_that_it_has_changed(path, count, change):
    reader = opened(path)
    reader.read(10)
    cursor = reader.cursor(5)
    reader.close()
    change(path, count)
    with pytest.raises(UserError, match=r"a\.txt .* while a job was reading it"):
        opened(path, cursor)


def test_a_large_file_of_another_time_may_have_changed_anywhere(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(lines(LARGE))
    reader = opened(path)
    reader.read(10)
    with path.open("r+") as file:
        file.seek(20_000)  # between two samples
        file.write("x" * 9)
    later(path)
    with pytest.raises(UserError, match="has changed"):
        read_all(reader)
    reader.close()


def test_what_grows_or_is_only_touched_is_read_on(path, count):
    reader = opened(path)
    reader.read(10)
    with path.open("a") as file:
        file.write(lines(1, first=count))
    later(path)
    assert len(read_all(reader)) == count + 1 - 10
    cursor = reader.cursor(count)
    reader.close()
    again = opened(path, cursor)
    assert len(read_all(again)) == count + 1 - cursor.position
    again.close()


def test_a_rotated_file_is_read_to_its_end_by_who_has_it_open(path, count):
    reader = opened(path)
    reader.read(10)
    rotate(path, count)
    assert read_all(reader)[-1] == {"line": f"{count - 1:09d}"}
    reader.close()


def test_a_copy_on_another_machine_is_the_same_file(path, count):
    reader = opened(path)
    reader.read(10)
    cursor = reader.cursor(5)
    reader.close()
    content = path.read_bytes()
    path.unlink()
    with pytest.raises(Unavailable, match=r"a\.txt cannot be read here: .*put it back"):
        opened(path, cursor)
    path.write_bytes(content)
    again = opened(path, cursor)
    assert len(read_all(again)) == count - cursor.position
    again.close()


def test_cursors_of_older_jobs_have_no_fingerprint_and_are_read(path):
    reader = opened(path, Cursor(0, 0))
    assert reader.read(1) == [{"line": "000000000"}]
    reader.close()
