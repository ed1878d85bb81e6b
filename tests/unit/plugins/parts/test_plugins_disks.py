"""Output to a folder whose disk is full, fails for a while, or is taken away: nothing is written
twice, nothing is lost, and nothing half done becomes visible."""

import errno
import gzip
import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.jobs.plugin_context import plugin_context

from onyx.errors import Blocked, Unavailable, UserError, WorkLost
from onyx.plugins.registry import build_output

FORMS = (
    {},
    {"compression": "gzip"},
    {"format": "parquet", "compression": "zstd"},
)
PASSING = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE)
CALLS = ("open", "pwrite", "mkdir", "rename", "fsync of the folder")


def files_output(path, options=(), **context):
    return build_output("files", plugin_context({"path": str(path), **dict(options)}, **context))


def rows(folder):
    """Everything visible."""
    found = []
    for path in sorted(Path(folder).glob("part-*")):
        if path.suffix == ".parquet":
            found += pq.read_table(path).to_pylist()
        else:
            data = path.read_bytes()
            if path.suffix == ".gz":
                data = gzip.decompress(data)
            found += msgspec.json.Decoder().decode_lines(data)
    return found


class Disk:
    """The calls of the system by which parts are written; those in `failing` fail."""

    def __init__(self, failing=()):
        self.failing = list(failing)
        """For each call in turn whether it fails, and with which error; none fails after that."""
        self.short = False

    def _fails(self, what):
        if self.failing and what in CALLS:
            number = self.failing.pop(0)
            if number:
                raise OSError(number, os.strerror(number))

    @contextmanager
    def attached(self):
        real = {name: getattr(os, name) for name in ("open", "pwrite", "mkdir", "rename", "fsync")}

        def failing(name):
            def call(*args, **kwargs):
                self._fails(name)
                return real[name](*args, **kwargs)

            return call

        def pwrite(descriptor, data, offset):
            self._fails("pwrite")
            return real["pwrite"](descriptor, bytes(data)[: max(1, len(data) // 2)], offset)

        def fsync(descriptor):
            if os.path.isdir(f"/proc/self/fd/{descriptor}"):
                self._fails("fsync of the folder")
            real["fsync"](descriptor)

        calls = {name: failing(name) for name in ("open", "mkdir", "rename")}
        with patch.multiple(os, pwrite=pwrite, fsync=fsync, **calls):
            yield


def insistently(call):
    """What the engine does: the same again, for as long as it is Unavailable."""
    for _ in range(1000):
        try:
            return call()
        except Unavailable:
            continue
    raise AssertionError("never possible")


@given(
    form=st.sampled_from(FORMS),
    failing=st.lists(st.sampled_from([0, 0, *PASSING]), max_size=80),
    batches=st.lists(st.integers(1, 6), min_size=1, max_size=8),
    rolls=st.integers(1, 10),
    once=st.booleans(),
)
def test_whatever_fails_and_passes_each_segment_is_there_once(form, failing, batches, rolls, once):
    with tempfile.TemporaryDirectory() as folder:
        output = files_output(Path(folder) / "out", {**form, "rollSegments": rolls})
        committed = []
        if once:
            output.begin(lambda token, segments: committed.append(segments))
        disk, given, seen = Disk(failing), [], 0
        with disk.attached():
            for size in batches:
                batch = [{"n": len(given) + index} for index in range(size)]
                insistently(lambda batch=batch: output.write(batch))
                given += batch
                seen = max(seen, output.durable())
                assert len(rows(Path(folder) / "out")) >= seen
            insistently(output.flush)
            insistently(output.tick)
        assert rows(Path(folder) / "out") == given
        assert output.durable() == len(given)
        assert not once or sum(committed) == len(given)
        output.close()


def test_a_full_disk_is_named_and_waited_for(tmp_path):
    output = files_output(tmp_path / "out")
    output.write([{"n": 1}])
    disk = Disk([errno.ENOSPC] * 1000)
    with disk.attached():
        with pytest.raises(Blocked, match=r"(?s)cannot write to .*out.*No space left.*make room"):
            output.flush()
        disk.failing.clear()
        output.tick()
    assert rows(tmp_path / "out") == [{"n": 1}]


def test_what_a_failed_fsync_may_have_dropped_is_given_up(tmp_path, monkeypatch):
    output = files_output(tmp_path / "out")
    output.write([{"n": 1}])

    def fails(descriptor):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(WorkLost, match="what was written is lost"):
        output.flush()
    monkeypatch.undo()
    with pytest.raises(WorkLost):
        output.tick()
    assert rows(tmp_path / "out") == []
    again = files_output(tmp_path / "out")
    again.write([{"n": 1}])
    again.flush()
    assert rows(tmp_path / "out") == [{"n": 1}]


def test_a_disk_for_reading_only_is_refused_at_the_start_and_waited_for_later(tmp_path):
    early = files_output(tmp_path / "early")
    with Disk([errno.EROFS]).attached(), pytest.raises(UserError, match="may write"):
        early.write([{"n": 1}])
    late = files_output(tmp_path / "late")
    late.write([{"n": 1}])
    with Disk([0, errno.EROFS, errno.EROFS]).attached():
        with pytest.raises(Blocked, match="Read-only"):
            late.flush()
        insistently(late.tick)
    assert rows(tmp_path / "late") == [{"n": 1}]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("once", [False, True], ids=["at least once", "exactly once"])
def test_a_folder_that_is_moved_away_is_waited_for_and_not_made_again(tmp_path, form, once):
    folder, away = tmp_path / "out", tmp_path / "away"
    output = files_output(folder, {**form, "rollSegments": 2})
    moved = []

    def commit(token, segments):
        if not moved:
            moved.append(folder.rename(away))

    if once:
        output.begin(commit)
    output.write([{"n": 1}])
    if not once:
        commit({}, 1)
    output.write([{"n": 2}])
    for call in (output.tick, output.flush, lambda: output.write([{"n": 3}])):
        with pytest.raises(Blocked, match=r"out is gone.*put it back"):
            call()
        assert output.durable() == 0
        assert not folder.exists()
    away.rename(folder)
    output.tick()
    assert output.durable() == 2
    assert rows(folder) == [{"n": 1}, {"n": 2}]
    output.close()


def test_another_folder_in_the_place_of_the_right_one_is_not_written_to(tmp_path):
    folder, away = tmp_path / "out", tmp_path / "away"
    output = files_output(folder)
    output.write([{"n": 1}])
    folder.rename(away)
    folder.mkdir()
    with pytest.raises(Blocked, match="is not the one that the job began with"):
        output.flush()
    with pytest.raises(Blocked, match="is not the one"):
        files_output(folder).fence([])
    assert list(folder.iterdir()) == []
    folder.rmdir()
    away.rename(folder)
    output.tick()
    assert rows(folder) == [{"n": 1}]


def test_a_later_writer_of_the_process_knows_that_the_folder_was_there(tmp_path):
    folder, away = tmp_path / "out", tmp_path / "away"
    first = files_output(folder)
    first.fence([])
    folder.rename(away)
    later = files_output(folder, incarnation="incarnation-2")
    with pytest.raises(Blocked, match="is gone"):
        later.fence([])
    with pytest.raises(Blocked, match="is gone"):
        later.write([{"n": 1}])
    assert not folder.exists()


def test_a_copy_of_the_folder_has_not_all_that_was_written_and_is_noticed(tmp_path):
    folder, copy = tmp_path / "out", tmp_path / "copy"
    output = files_output(folder)
    batches = [{"n": 1}], [{"n": 2}]
    output.write(batches[0])
    output.flush()
    output.write(batches[1])
    shutil.copytree(folder, copy)
    shutil.rmtree(folder)
    copy.rename(folder)
    with pytest.raises(WorkLost, match="another file is in its place"):
        output.flush()
    assert output.durable() == 1
    again = files_output(folder, incarnation="incarnation-2")
    again.write(batches[1])
    again.flush()
    assert rows(folder) == [{"n": 1}, {"n": 2}]
