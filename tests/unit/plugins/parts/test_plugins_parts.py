"""Parts are durable and whole before they are visible, and the dead make nothing visible."""

import fnmatch
import gzip
import io
import math
import os
from datetime import UTC, date, datetime
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from tests.support.clocks import ManualClock
from tests.support.jobs.plugin_context import plugin_context
from tests.support.servers.object_stores import ObjectStore

from onyx.errors import Fenced, OutputFailed, Unavailable, UserError
from onyx.flow.columns.values import to_array
from onyx.plugins.parts.folders import published
from onyx.plugins.registry import build_output
from onyx.storage.opening import location_of

OPENED = []
DAY, NOON = date(2026, 1, 1), datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _close_all():
    yield
    while OPENED:
        OPENED.pop().close()


class Folder:
    """A directory as a place of parts."""

    def __init__(self, path):
        self.path = path

    def names(self):
        """Of all files, staged ones too."""
        if not self.path.exists():
            return []
        files = (each for each in self.path.rglob("*") if each.is_file())
        return sorted(str(each.relative_to(self.path)) for each in files)

    def read(self, name):
        return (self.path / name).read_bytes()


class Prefix:
    """A prefix of an object store, the same."""

    def __init__(self, store):
        self.store = store
        self.path = f"{store.url}/deep/out"

    def names(self):
        return [key.removeprefix("deep/out/") for key in self.store.keys("deep/out/")]

    def read(self, name):
        return self.store.get(f"deep/out/{name}")


@pytest.fixture(params=["directory", "fake_s3", "s3_gateway"])
def place(request, monkeypatch, tmp_path):
    """What is promised holds wherever parts are."""
    if request.param == "directory":
        return Folder(tmp_path / "deep" / "out")
    server = request.getfixturevalue(request.param)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return Prefix(ObjectStore(server))


def files_output(place, options=(), **context):
    path = str(getattr(place, "path", place))
    output = build_output("files", plugin_context({"path": path, **dict(options)}, **context))
    OPENED.append(output)
    return output


def write_and_flush(output, segments):
    output.write(segments)
    output.flush()


def visible(place):
    return [name for name in place.names() if not name.startswith(".")]


def contents(place):
    return [
        segment
        for name in visible(place)
        for segment in msgspec.json.Decoder().decode_lines(place.read(name))
    ]


def staged(place):
    names = [name for name in place.names() if name.startswith(".staging/")]
    return [name for name in names if not name.endswith("/writer")]


def numbers(*values):
    return [{"n": n} for n in values]


def test_nothing_is_visible_or_durable_before_the_part_is_finished(place):
    output = files_output(place)
    output.write(numbers(1, 2))
    assert output.durable() == 0
    assert visible(place) == []
    output.flush()
    assert output.durable() == 2
    assert contents(place) == numbers(1, 2)
    assert staged(place) == []


@pytest.fixture
def events(monkeypatch):
    """What is asked of the disk, in order."""
    events = []
    fsync, rename = os.fsync, os.rename

    def spy_fsync(descriptor):
        events.append(f"fsync {Path(os.readlink(f'/proc/self/fd/{descriptor}')).name[:4]}")
        fsync(descriptor)

    def spy_rename(*names, **folders):
        events.append("rename")
        rename(*names, **folders)

    monkeypatch.setattr(os, "fsync", spy_fsync)
    monkeypatch.setattr(os, "rename", spy_rename)
    return events


def test_a_part_is_forced_to_disk_before_its_rename_and_its_directory_after(tmp_path, events):
    (tmp_path / "out").mkdir()
    output = files_output(tmp_path / "out")
    output.write(numbers(1))
    output.flush()
    assert events == ["fsync .par", "rename", "fsync out"]


def test_that_a_committed_part_is_visible_is_forced_to_disk_behind_its_acks(tmp_path, events):
    (tmp_path / "out").mkdir()
    output = files_output(tmp_path / "out")
    output.begin(lambda token, segments: events.append("commit"))
    output.write(numbers(1))
    output.flush()
    assert output.durable() == 1
    assert events == ["fsync .par", "commit", "rename"]
    output.tick()
    output.tick()
    assert events[3:] == ["fsync out"]


def test_only_the_last_committed_part_may_be_visible_and_not_forced_to_disk(tmp_path, events):
    (tmp_path / "out").mkdir()
    output = files_output(tmp_path / "out", {"rollSegments": 1})
    output.begin(lambda token, segments: events.append("commit"))
    output.write(numbers(1))
    output.write(numbers(2))
    first = ["fsync .par", "commit", "rename"]
    assert events == [*first, "fsync .par", "fsync out", "commit", "rename"]
    output.seal()
    assert events[-1] == "fsync out"


@pytest.mark.parametrize(
    ("options", "writes", "seconds", "durable"),
    [
        ({"rollSegments": 2}, [numbers(1), numbers(2), numbers(3)], 0, 2),
        ({"rollBytes": 10}, [numbers(1), numbers(2), numbers(3)], 0, 2),
        ({"rollBytes": 10, "format": "parquet"}, [numbers(1), numbers(2), numbers(3)], 0, 2),
        ({"rollSeconds": 5}, [numbers(1)], 4, 0),
        ({"rollSeconds": 5}, [numbers(1)], 5, 1),
    ],
)
def test_parts_roll_by_segments_bytes_and_time(place, options, writes, seconds, durable):
    clock = ManualClock()
    output = files_output(place, options, clock=clock)
    for segments in writes:
        output.write(segments)
    clock.advance(seconds)
    output.tick()
    assert output.durable() == durable


def test_closing_drops_what_is_not_durable_and_leaves_no_trace(place):
    for options in ({}, {"compression": "gzip"}, {"format": "parquet"}):
        output = files_output(place, options)
        output.write(numbers(1))
        output.close()
        assert place.names() == []


def test_names_do_not_repeat_when_a_peer_comes_back_to_its_task(place):
    for n in range(3):
        output = files_output(place)
        output.write(numbers(n))
        output.flush()
        output.close()
    assert contents(place) == numbers(0, 1, 2)


def test_a_writer_numbers_its_parts_without_gaps_and_the_last_ones_are_told(place):
    first, second = files_output(place), files_output(place)
    for output in (first, second, first, first):
        output.write(numbers(1))
        output.flush()
    first.write(numbers(2))
    first.close()  # what was begun is dropped, and no number is missing

    found = sorted(name.rpartition("-") for name in visible(place))
    assert [number for _, _, number in found] == [
        f"{number:06d}.jsonl" for number in (0, 1, 2, 0)
    ] or [number for _, _, number in found] == [f"{number:06d}.jsonl" for number in (0, 0, 1, 2)]
    assert second.last_parts() == sorted(
        max(name for name in visible(place) if name.startswith(writer))
        for writer in {name.rpartition("-")[0] for name in visible(place)}
    )


def test_who_drops_a_part_goes_on_as_another_writer(place):
    output = files_output(place)
    output.begin(lambda token, segments: None)
    output.write(numbers(1))
    output.flush()
    output.begin(lambda token, segments: None)
    output.write(numbers(2))
    output.flush()
    output.write(numbers(3))
    output.begin(lambda token, segments: None)
    output.write(numbers(4))
    output.flush()

    writers = [name.rpartition("-")[0] for name in visible(place)]
    assert sorted(writers.count(each) for each in set(writers)) == [1, 2]


def test_nothing_to_write_makes_no_part(place):
    output = files_output(place)
    output.write([])
    output.flush()
    output.seal()
    output.close()
    assert visible(place) == []


def test_one_that_may_be_dead_publishes_nothing_until_it_is_permitted(place):
    permitted = False
    output = files_output(place, permitted=lambda: permitted)
    output.write(numbers(1))
    output.flush()
    assert output.durable() == 0
    output.write(numbers(2))
    permitted = True
    output.tick()
    assert output.durable() == 2
    assert contents(place) == numbers(1, 2)


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_glob_with_the_id_of_a_job_selects_one_version(place, form):
    """Ids that are in one another, that look like a slot, and the longest names."""
    tasks, jobs = ("write", "t" * 63), ("v1", "v1-2", "old-v1", "0", "v1.2", "j" * 128)
    for job in jobs:
        for task in tasks:
            output = files_output(place, {"format": form}, job=job, task=task)
            write_and_flush(output, numbers(1))
    names = visible(place)
    assert len(set(names)) == len(tasks) * len(jobs)
    for job in jobs:
        of_job = fnmatch.filter(names, f"part-*--{job}--*")
        assert {name.split("--")[0] for name in of_job} == {f"part-{task}" for task in tasks}
        assert set(of_job) <= set(fnmatch.filter(names, f"part-*-{job}-*.{form}"))
        assert len(fnmatch.filter(names, f"part-write--{job}--*")) == 1


def test_permission_lost_while_forcing_to_disk_holds_the_rename_back(place):
    answers = [True, False, True, True]
    output = files_output(place, permitted=lambda: answers.pop(0) if answers else True)
    output.write(numbers(1))
    output.flush()
    assert output.durable() == 0
    assert visible(place) == []
    output.write(numbers(2))
    output.tick()
    assert output.durable() == 2
    assert contents(place) == numbers(1, 2)


@pytest.mark.parametrize("moment", ["open part", "finished part", "between parts"])
def test_a_zombie_makes_nothing_visible_after_the_living_have_fenced_it(place, moment):
    answers = {"finished part": [True, False]}.get(moment, [])
    zombie = files_output(place, permitted=lambda: answers.pop(0) if answers else True)
    zombie.write(numbers(1))
    if moment != "open part":
        zombie.flush()
    before = visible(place)
    living = files_output(place, incarnation="incarnation-2")
    living.fence(["incarnation-2"])
    with pytest.raises(Fenced, match="incarnation-1"):
        write_and_flush(zombie, numbers(2))
    with pytest.raises(Fenced):
        zombie.write(numbers(3))
    assert visible(place) == before
    assert staged(place) == []


def test_fencing_spares_the_living_and_itself(place):
    one = files_output(place, incarnation="incarnation-1")
    two = files_output(place, incarnation="incarnation-2", slot=1)
    one.write(numbers(1))
    two.write(numbers(2))
    one.fence(["incarnation-1", "incarnation-2"])
    two.fence(["incarnation-2", "incarnation-1"])
    one.flush()
    two.flush()
    assert sorted(each["n"] for each in contents(place)) == [1, 2]


def test_one_that_may_be_dead_fences_nobody_until_it_is_permitted(place):
    permitted = False
    suspect = files_output(place, incarnation="incarnation-2", permitted=lambda: permitted)
    living = files_output(place, incarnation="incarnation-1")
    living.write(numbers(1))
    suspect.fence(["incarnation-2"])
    living.flush()
    assert living.durable() == 1
    living.write(numbers(2))
    permitted = True
    suspect.tick()
    with pytest.raises(Fenced):
        living.flush()
    assert contents(place) == numbers(1)
    assert staged(place) == []


def test_whom_to_fence_is_asked_anew_in_each_version(place):
    """Who has come since then must not be fenced: it may have committed something by now."""
    permitted = False
    suspect = files_output(place, incarnation="incarnation-1", permitted=lambda: permitted)
    suspect.fence(["incarnation-1"])
    suspect.begin(lambda token, segments: None)
    newcomer = files_output(place, incarnation="incarnation-2")
    newcomer.write(numbers(1))
    permitted = True
    suspect.tick()
    newcomer.flush()
    assert contents(place) == numbers(1)


def test_tasks_that_share_a_directory_do_not_fence_each_other(place):
    context = plugin_context({"path": str(place.path)})
    other = build_output("files", replace(context, task="other"))
    other.write(numbers(1))
    files_output(place, incarnation="incarnation-2").fence([])
    other.flush()
    assert contents(place) == numbers(1)


def test_removal_that_a_crash_interrupted_is_finished_by_the_next_fence(tmp_path):
    left = tmp_path / ".staging" / "job-1.work" / "gone.incarnation-0.7"
    left.mkdir(parents=True)
    (left / "part").write_text("half")
    files_output(tmp_path).fence([])
    assert Folder(tmp_path).names() == []


def test_a_path_that_is_a_file_is_told(tmp_path):
    (tmp_path / "out").write_text("I am a file")
    with pytest.raises(UserError, match=r"cannot write to .*out"):
        files_output(tmp_path / "out").write(numbers(1))


@pytest.mark.parametrize(
    ("options", "segments", "why"),
    [
        ({}, [{"n": 1, "when": {1j}}], "key 'when' holds a set that JSON cannot"),
        ({"format": "parquet"}, [{"n": 1}, {"n": "x"}], "cannot be written as Parquet: key 'n'"),
        ({"format": "parquet"}, [{"n": 2**70}], "key 'n'"),
        ({"format": "parquet"}, [{"n": DAY}, {"n": NOON}], "key 'n': one column cannot hold date"),
        ({"format": "parquet"}, [{"n": [{"at": DAY}]}, {"n": [{"at": NOON}]}], "cannot hold date"),
        ({"format": "parquet"}, [{}], "no keys"),
        ({"format": "parquet"}, [{"n": {}}], "Parquet"),
    ],
)
def test_a_value_without_a_form_is_named_and_never_counts_as_durable(place, options, segments, why):
    output = files_output(place, options)
    with pytest.raises(UserError, match=why) as caught:
        write_and_flush(output, segments)
    if isinstance(caught.value, OutputFailed):  # the segments had been taken
        with pytest.raises(OutputFailed, match=why):
            output.flush()
    assert output.durable() == 0


@pytest.mark.parametrize("first", [[], [{"n": 0}]])
@pytest.mark.parametrize("columns", [False, True])
def test_a_segment_without_a_form_breaks_nothing_for_the_others(tmp_path, columns, first):
    """A batch in which it is leaves nothing in the part, and no part is made for it."""
    output = files_output(tmp_path, {})

    def write(segments):
        if columns:
            output.write_columns(pa.RecordBatch.from_pylist(segments))
        elif segments:
            output.write(segments)

    if first:
        write(first)
    with pytest.raises(UserError, match="key 'n'") as caught:
        write([{"n": 1.0}] * 3_000 + [{"n": math.nan}])
    assert not isinstance(caught.value, OutputFailed)
    output.flush()
    assert len(list(tmp_path.glob("part-*"))) == len(first)
    write([{"n": 2}])
    output.flush()
    assert output.durable() == len(first) + 1
    parts = sorted(tmp_path.glob("part-*"))
    assert [msgspec.json.decode(each.read_bytes()) for each in parts] == [*first, {"n": 2}]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"format": "csv"}, "option 'format' is 'csv', which is not offered"),
        ({"compression": "zstd"}, "jsonl can be none, gzip"),
        ({"format": "parquet", "compression": "lzo"}, "parquet can be snappy"),
        ({"path": ""}, "option 'path' is wrong"),
        ({"rollSecond": 1}, "did you mean rollSeconds?"),
    ],
)
def test_wrong_options_are_told(tmp_path, options, why):
    with pytest.raises(UserError, match=why.replace("?", r"\?")):
        files_output(tmp_path, options)


def test_gzip_parts_are_whole_gzip_files(place):
    output = files_output(place, {"compression": "gzip"})
    output.write(numbers(1))
    output.write(numbers(2))
    output.flush()
    (part,) = visible(place)
    assert part.endswith(".jsonl.gz")
    assert gzip.decompress(place.read(part)) == b'{"n":1}\n{"n":2}\n'


def test_parquet_parts_have_one_schema_for_all_of_their_segments(place, monkeypatch):
    monkeypatch.setattr("onyx.plugins.parts.formats.COLUMNS_SEGMENTS", 2)
    noon = datetime(2013, 1, 1, 12, tzinfo=UTC)
    segments = [
        {"n": 1, "a": None},
        {"n": 2, "a": None},
        {"n": 2.5, "a": "x"},
        {"n": None, "b": [1, 2]},
        {"when": noon, "n": 5},
    ]
    output = files_output(place, {"format": "parquet", "compression": "zstd"})
    for segment in segments:
        output.write([segment])
    output.flush()
    (part,) = visible(place)
    assert part.endswith(".parquet")
    rows = pq.read_table(io.BytesIO(place.read(part))).to_pylist()
    keys = ("n", "a", "b", "when")
    assert rows == [{key: segment.get(key) for key in keys} for segment in segments]


@pytest.mark.parametrize(
    ("kept", "odd"),
    [
        ({"v": 1}, {"v": "x"}),
        ({"v": 1.5}, {"v": "x"}),
        ({"v": 1.5}, {"v": 2**60 + 1}),
        ({"v": 2**60 + 1}, {"v": 1.5}),
        ({"v": -1}, {"v": 2**63}),
        ({"v": "x"}, {"v": b"x"}),
        ({"v": True}, {"v": 1}),
        ({"v": DAY}, {"v": NOON}),
        ({"v": [1]}, {"v": ["x"]}),
        ({"v": {"a": 1}}, {"v": {"a": "x"}}),
        ({"v": 1}, {"v": {}}),
        ({"v": 1}, {"v": 2**70}),
        ({"v": 1}, {}),
    ],
)
@pytest.mark.parametrize("form", ["dicts", "columns"])
def test_what_does_not_fit_into_a_column_of_parquet_is_refused_alone(tmp_path, form, kept, odd):
    """Where requests may have brought it: what is refused is the answer to one of them."""
    output = files_output(tmp_path, {"format": "parquet"}, answers=True)

    def write(segment):
        if form == "columns" and segment not in ({"v": 2**70}, {}):
            columns = {key: to_array([value]) for key, value in segment.items()}
            output.write_columns(pa.record_batch(columns))
        else:
            output.write([segment])

    write(kept)
    with pytest.raises(UserError, match="cannot be written as Parquet") as caught:
        write(odd)
    assert not isinstance(caught.value, OutputFailed)
    write(kept)
    output.flush()
    assert output.durable() == 2
    (part,) = tmp_path.glob("part-*")
    assert pq.read_table(part).to_pylist() == [kept, kept]


@pytest.mark.parametrize("answers", [False, True])
def test_columns_of_another_type_are_refused_when_they_come(tmp_path, answers):
    output = files_output(tmp_path, {"format": "parquet"}, answers=answers)
    output.write_columns(pa.record_batch({"v": [1, 2]}))
    with pytest.raises(UserError, match="cannot be written as Parquet") as caught:
        output.write_columns(pa.record_batch({"v": ["x"]}))
    assert not isinstance(caught.value, OutputFailed)
    output.flush()
    assert output.durable() == 2


@pytest.mark.parametrize("answers", [False, True])
def test_types_become_wider_as_rows_come_one_by_one(tmp_path, monkeypatch, answers):
    monkeypatch.setattr("onyx.plugins.parts.formats.SMALL_MAX", 3)
    values = [None, 1, 2, None, 2.5, 3, 4, 2**50, 0.5, None, 7]
    segments = [{"v": each, f"only-{n % 3}": str(n)} for n, each in enumerate(values)]
    output = files_output(tmp_path, {"format": "parquet"}, answers=answers)
    for segment in segments:
        output.write([segment])
    output.flush()
    (part,) = tmp_path.glob("part-*")
    rows = pq.read_table(part).to_pylist()
    keys = ("v", "only-0", "only-1", "only-2")
    assert [{key: row[key] for key in keys} for row in rows] == [
        {key: segment.get(key) for key in keys} for segment in segments
    ]


def test_large_segments_become_columns_before_there_are_many(place):
    output = files_output(place, {"format": "parquet", "rollBytes": 20_000_000})
    for n in range(3):
        output.write([{"n": n, "text": "x" * 9_000_000}])
        output.tick()
    assert output.durable() == 3


def test_published_parts_are_listed_without_staging(tmp_path):
    output = files_output(tmp_path)
    output.write(numbers(1))
    output.flush()
    output.write(numbers(2))
    assert [
        os.path.splitext(each)[1] for each in published(location_of(str(tmp_path)), ".jsonl")
    ] == [".jsonl"]


def refusing(*answers):
    """A commit that meets these failures, one after the other, and then succeeds."""
    left, reported = list(answers), []

    def commit(token, segments):
        reported.append(token)
        if left:
            raise left.pop(0)

    return commit, reported


def in_doubt(place, options=None):
    """An output whose first commit was not answered, and the tokens that were reported."""
    commit, reported = refusing(Unavailable("no answer"))
    output = files_output(place, options or {})
    output.begin(commit)
    output.write(numbers(1))
    with pytest.raises(Unavailable):
        output.flush()
    return output, reported


def test_a_commit_in_doubt_is_repeated_with_the_same_token(place):
    output, reported = in_doubt(place)
    output.tick()
    assert contents(place) == numbers(1)
    assert reported[0] is reported[1]


@pytest.mark.parametrize("options", [{}, {"compression": "gzip"}, {"format": "parquet"}], ids=str)
def test_no_pattern_for_parts_finds_what_is_staged(place, options):
    output, _ = in_doubt(place, options)
    left = [name.rpartition("/")[2] for name in staged(place)]
    patterns = ("*.jsonl*", "*.json*", "*.gz", "*.parquet*", "part-*")
    assert len(left) == 1
    assert [name for name in left for each in patterns if fnmatch.fnmatch(name, each)] == []
    output.tick()
    assert len(visible(place)) == 1


def test_closing_leaves_what_may_have_been_committed_for_those_who_know(place):
    output, reported = in_doubt(place)
    output.close()
    assert contents(place) == []
    files_output(place).finish(reported[0])
    assert contents(place) == numbers(1)


@pytest.mark.parametrize("published", [False, True])
def test_a_committed_part_that_is_nowhere_is_named(place, published, caplog):
    output, reported = in_doubt(place)
    output.close()
    other = files_output(place, incarnation="incarnation-2")
    if published:
        other.finish(reported[0])
    other.fence([])  # what is staged goes, as if somebody had removed it
    other.finish(reported[0])
    missing = [each for each in caplog.messages if "neither staged" in each]
    assert len(missing) == (not published)
    assert all("job 'flights', task 'work'" in each and "part-" in each for each in missing)


def test_beginning_again_leaves_what_may_have_been_committed_for_those_who_know(place):
    output, reported = in_doubt(place)
    output.begin(refusing()[0])
    output.close()
    assert contents(place) == []
    files_output(place).finish(reported[0])
    assert contents(place) == numbers(1)


def test_closing_publishes_what_has_been_committed(place, monkeypatch):
    commit, _ = refusing()
    output = files_output(place)
    output.begin(commit)
    output.write(numbers(1))
    with monkeypatch.context() as patched:
        patched.setattr(type(output._store), "finish", fails)
        with pytest.raises(Unavailable):
            output.flush()
    output.close()
    assert contents(place) == numbers(1)


def fails(place, token):
    raise Unavailable("not now")
