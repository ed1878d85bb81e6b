"""What `format("onyx")` reads, without a JVM: options, listings, places, rows, states."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import LongType, StructField, StructType, YearMonthIntervalType
from tests.support.jobs.plugin_context import plugin_context
from tests.support.servers.object_stores import ObjectStore

from onyx.client.window_view import WindowView
from onyx.errors import UserError
from onyx.ids import JobId
from onyx.keystate.extents import Extent
from onyx.plugins.files.options import FilesOutputOptions
from onyx.plugins.files.output import FilesOutput
from onyx.plugins.parts.folders import NotThere
from onyx.plugins.parts.offsets import Part, Rows
from onyx.spark.types import spark_schema
from onyx.spark_source import cluster, schemas
from onyx.spark_source.data_source import OnyxDataSource, OutputReader
from onyx.spark_source.options import SourceOptions, read_options
from onyx.spark_source.outputs import OutputFiles, PartFolder, output_at, published, readable
from onyx.spark_source.rows import batches, count


def output(path: Path, **options: Any) -> OutputFiles:
    return output_at(str(path), SourceOptions(path=str(path), **options))


def read(
    path: str, schema: pa.Schema | None = None, first: int = 0, last: int | None = None
) -> Any:
    if schema is None:
        schema = spark_schema(schemas.found_in([Part(path, "w", 0, 0)], path))
    return [row for each in batches(Rows(path, first, last), schema) for row in each.to_pylist()]


def numbers(of: OutputFiles) -> list[int]:
    return sorted(row["n"] for part in published(of) for row in read(part.path))


def written(
    folder: Path, task: str, segments: list[dict[str, Any]], job: str = "job-1", **options: Any
) -> None:
    """Two parts of an output, and one that is staged and not published."""
    context = plugin_context({"path": str(folder)}, task=task, job=job)
    output = FilesOutput(context, FilesOutputOptions(path=str(folder), **options))
    half = len(segments) // 2
    for some in (segments[:half], segments[half:]):
        output.write(some)
        output.flush()
    output.write([{"staged": True}])


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({}, "say what to read: 'path', or 'job' and 'task', or 'job' and 'window'"),
        ({"job": "j"}, "say what to read"),
        ({"pathh": "x"}, "option 'pathh' is not known; did you mean path"),
        ({"window": "w"}, "option 'job' is missing"),
        ({"window": "w", "job": "j", "path": "x"}, "leave out 'path' and 'task'"),
        ({"path": "x", "maxRowsPerTrigger": "many"}, "maxRowsPerTrigger"),
        ({"path": "x", "maxRowsPerTrigger": "0"}, "maxRowsPerTrigger"),
        ({"path": "x", "maxRowsPerTrigger": "1", "maxFilesPerTrigger": "1"}, "only one of"),
        ({"path": "x", "content": "all"}, "content"),
    ],
)
def test_wrong_options_are_named(given: dict[str, str], error: str) -> None:
    with pytest.raises(UserError, match=error):
        read_options(given)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"pth": "x"}, "option 'pth' is not known; did you mean path"),
        ({"job": "j", "window": "w"}, "the state of a window is read at one moment"),
        ({"path": "x", "as": "text"}, "option as: text gives one column of text"),
        ({"path": "x"}, "a result is made once, at the end of a job: use spark.read"),
    ],
)
def test_a_stream_that_cannot_be_is_an_error_of_its_first_call(
    tmp_path: Path, given: dict[str, str], error: str
) -> None:
    """[PySpark hides what is raised while it makes a stream]"""
    result(tmp_path / "x" / "result", "j-1", "part-00000.parquet")
    given = {key: str(tmp_path / value) if key == "path" else value for key, value in given.items()}
    columns = StructType([StructField("n", LongType())])
    stream = OnyxDataSource(given).streamReader(columns)
    calls = [
        stream.initialOffset,
        stream.prepareForTriggerAvailableNow,
        stream.reportLatestOffset,
        lambda: stream.latestOffset({}, ReadAllAvailable()),
    ]
    for call in calls:
        with pytest.raises(UserError, match=error):
            call()


@pytest.mark.parametrize("stream", [False, True])
def test_rows_that_no_segment_can_be_are_refused_before_any_is_written(stream: bool) -> None:
    source = OnyxDataSource({"job": "j", "workers": "h:1"})
    schema = StructType([StructField("m", YearMonthIntervalType())])
    with pytest.raises(UserError, match="column 'm' holds intervals of months: cast it to INT"):
        (source.streamWriter if stream else source.writer)(schema, False)


def test_options_come_in_lower_case_and_as_text() -> None:
    options = read_options({"path": "x", "maxrowspertrigger": "7", "startingfrom": "latest"})
    assert (options.max_rows_per_trigger, options.starting_from) == (7, "latest")


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_only_published_parts_of_the_task_are_listed(tmp_path: Path, form: Any) -> None:
    written(tmp_path, "a", [{"n": 1}, {"n": 2}], format=form)
    written(tmp_path, "a-b", [{"n": 3}, {"n": 4}], format=form)
    (tmp_path / "notes.parquet").write_bytes(b"of somebody else")
    found = {task: numbers(output(tmp_path, task=task)) for task in (None, "a", "a-b", "b")}
    assert found == {None: [1, 2, 3, 4], "a": [1, 2], "a-b": [3, 4], "b": []}


def test_the_parts_of_one_version_are_read_by_the_ids_of_its_jobs(tmp_path: Path) -> None:
    for number, (task, job) in enumerate([("a", "v1"), ("a", "v1-2"), ("a", "v2"), ("a-b", "v2")]):
        written(tmp_path, task, [{"n": number}, {"n": number}], job=job)
    read_by = {
        job: set(numbers(output(tmp_path, job=job))) for job in ("v1", "2", "v2", "v1,v2", "v1, v2")
    }
    both = {0, 2, 3}
    assert read_by == {"v1": {0}, "2": set(), "v2": {2, 3}, "v1,v2": both, "v1, v2": both}
    assert set(numbers(output(tmp_path, job="v2", task="a"))) == {2}


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotThere, match=f"{tmp_path}/gone is not there"):
        published(output(tmp_path / "gone"))


def test_the_result_of_a_stage_is_its_files(tmp_path: Path) -> None:
    result = tmp_path / "result"
    result.mkdir()
    pq.write_table(pa.table({"n": [1]}), result / "part-00000-x.snappy.parquet")
    (result / "_SUCCESS").touch()
    (result / "_onyx.json").write_text('{"job": "j-1", "stage": "m:f", "parts": 2}')
    assert [read(part.path) for part in published(output(tmp_path, job="j-1"))] == [[{"n": 1}]]
    with pytest.raises(UserError, match="the result is of job j-1, not of j-2"):
        output(tmp_path, job="j-2")


def result(folder: Path, job: str, name: str = "part-00000-x.snappy.parquet") -> None:
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"job_of": [job]}), folder / name)
    (folder / "_SUCCESS").touch()
    (folder / "_onyx.json").write_text(json.dumps({"job": job}))


def test_appended_results_are_those_of_one_job_or_of_all(tmp_path: Path) -> None:
    for job in ("j-1", "j-2"):
        result(tmp_path / "result" / f"job={job}", job)

    def jobs(**options: Any) -> list[str]:
        parts = published(output(tmp_path, **options))
        return [row["job_of"] for part in parts for row in read(part.path)]

    assert (jobs(), jobs(job="j-2")) == (["j-1", "j-2"], ["j-2"])
    with pytest.raises(UserError, match="there is no result here"):
        output(tmp_path, job="j-3")


def test_a_result_that_cannot_be_read_here_is_named(tmp_path: Path) -> None:
    result(tmp_path / "csv" / "result", "j-1", "part-00000.csv")
    result(tmp_path / "folders" / "result", "j-1")
    (tmp_path / "folders" / "result" / "day=3").mkdir()
    for folder, what in (("csv", "part-00000.csv"), ("folders", "day=3/")):
        with pytest.raises(UserError, match=rf"result has {what}.*spark\.read"):
            published(output(tmp_path / folder))


def test_a_result_in_folders_of_an_object_store_is_named(
    fake_s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in fake_s3.environment.items():
        monkeypatch.setenv(name, value)
    store = ObjectStore(fake_s3)
    store.put("out/result/carrier=AA/part-00000-x.parquet", b"")
    of_result = OutputFiles((PartFolder(f"{store.url}/out/result"),), "result", None, "out")
    store.put("out/result/_onyx.json", '{"files": ["carrier=AA/part-00000-x.parquet"]}')
    with pytest.raises(UserError, match=r"has carrier=AA/, .*spark\.read"):
        published(of_result)


def test_a_stage_that_has_not_run_has_no_result(tmp_path: Path) -> None:
    (tmp_path / "parts" / "j-1").mkdir(parents=True)
    with pytest.raises(UserError, match="there is no result here"):
        output(tmp_path)


def test_the_parts_of_a_stage_are_those_of_all_versions_of_a_job(tmp_path: Path) -> None:
    for job, after in (("j-1", []), ("j-2", ["j-1"]), ("given-up", ["j-1"])):
        written(tmp_path / "parts" / job, "work", [{"n": job}], format="parquet")
        (tmp_path / "parts" / job / "_onyx.json").write_text(json.dumps({"after": after}))
    parts = published(output(tmp_path, content="parts", job="j-2"))
    assert [row["n"] for part in parts for row in read(part.path)] == ["j-1", "j-2"]
    assert [part.writer.partition("/")[0] for part in parts] == ["j-1", "j-2"]
    with pytest.raises(UserError, match="option 'job' is missing"):
        output(tmp_path, content="parts")


def test_the_parts_of_one_frame_of_a_stage_are_read(tmp_path: Path) -> None:
    for frame in ("flights", "planes"):
        folder = tmp_path / "frames" / frame / "parts" / "j-1"
        written(folder, "work", [{"n": frame}], format="parquet")
    parts = published(output(tmp_path, content="parts", job="j-1", frame="planes"))
    assert [row["n"] for part in parts for row in read(part.path)] == ["planes"]


def test_outputs_that_write_elsewhere_are_refused() -> None:
    with pytest.raises(UserError, match="task t is an output 'kafka'; outputs files and spark"):
        readable("kafka", "task t")


NUMBERS = [{"n": n, "text": f"t{n}"} for n in range(10)]


@pytest.fixture(params=["parquet", "jsonl", "jsonl.gz"])
def part(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    path = tmp_path / f"part-write--j-1--0-0123456789ab-000001.{request.param}"
    lines = "".join(json.dumps(each) + "\n" for each in NUMBERS).encode()
    if request.param == "parquet":
        pq.write_table(pa.Table.from_pylist(NUMBERS), path, row_group_size=3)
    else:
        path.write_bytes(gzip.compress(lines) if request.param.endswith("gz") else lines)
    return str(path)


@pytest.mark.parametrize(("first", "last"), [(0, None), (0, 4), (4, 8), (7, None), (0, 0)])
def test_rows_of_a_part_are_read_from_any_place(part: str, first: int, last: int | None) -> None:
    assert read(part, None, first, last) == NUMBERS[first:last]
    assert count(part) == len(NUMBERS)


def test_rows_come_in_the_columns_and_types_that_are_asked_for(part: str) -> None:
    schema = pa.schema([("more", pa.string()), pa.field("n", pa.float64(), nullable=False)])
    found = list(batches(Rows(part, 1, 3), schema))
    assert [each.schema for each in found] == [schema]
    assert found[0].to_pylist() == [{"more": None, "n": 1.0}, {"more": None, "n": 2.0}]


def test_a_row_that_does_not_fit_is_named(part: str) -> None:
    with pytest.raises(UserError, match=r"000001.*, row 2: key 'text' holds a str .*schema"):
        list(batches(Rows(part, 2), pa.schema([("text", pa.int64())])))


def test_a_part_that_is_gone_is_named(part: str) -> None:
    Path(part).unlink()
    with pytest.raises(UserError, match=r"000001.* cannot be read where Spark runs"):
        read(part, pa.schema([("n", pa.int64())]))


def test_the_schema_holds_what_all_parts_have(tmp_path: Path) -> None:
    for number, columns in enumerate(({"n": [1]}, {"n": [1.5], "t": ["x"]})):
        pq.write_table(
            pa.table(columns), tmp_path / f"part-w--j-1--0-0123456789ab-00000{number}.parquet"
        )
    (tmp_path / "part-w--j-1--0-0123456789ab-000002.jsonl").write_text('{"l": true}\n')
    found = schemas.found_in(published(output(tmp_path)), "here")
    assert found == pa.schema([("n", pa.float64()), ("t", pa.string()), ("l", pa.bool_())])


@pytest.mark.parametrize(
    ("array", "values"),
    [
        (
            pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
            [[{"key": "a", "value": 1}], None],
        ),
        (pa.array([1.5, None], pa.float16()), [1.5, None]),
        (pa.array(["a", None]).dictionary_encode(), ["a", None]),
    ],
    ids=["map", "float16", "dictionary"],
)
def test_what_has_another_type_in_a_segment_is_read_as_that(
    tmp_path: Path, array: pa.Array, values: list[Any]
) -> None:
    path = tmp_path / "part-w--j-1--0-0123456789ab-000000.parquet"
    pq.write_table(pa.table({"x": array}), path)
    schema = schemas.found_in(published(output(tmp_path)), "here")
    assert [row["x"] for row in read(str(path), schema)] == values


def test_a_schema_that_nobody_knows_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"here: nothing is published yet, .* give the schema"):
        schemas.found_in([], "here")


VIEW = WindowView(
    JobId("j"), "t", "w", (Extent("a", 0, 999, {"n": 1}), Extent(5, 1000, 1999, 3)), False, True
)


def test_the_state_of_a_window_is_a_row_for_each_extent() -> None:
    moment = pa.timestamp("us", tz="UTC")
    columns = {"job": pa.string(), "group": pa.string(), "upper": moment, "state": pa.string()}
    rows = cluster.rows_of(VIEW, pa.schema(list(columns.items()))).to_pylist()
    assert [(row["job"], row["group"], row["state"]) for row in rows] == [
        ("j", "a", '{"n":1}'), ("j", "5", "3"),
    ]  # fmt: skip
    assert [row["upper"].timestamp() for row in rows] == [0.999, 1.999]


def test_the_state_of_a_window_may_be_asked_for_as_a_type() -> None:
    view = WindowView(JobId("j"), "t", "w", (Extent(7, 0, float("inf"), 3),), False, False)
    schema = pa.schema([("group", pa.int64()), ("upper", pa.float64()), ("state", pa.int64())])
    assert cluster.rows_of(view, schema).to_pylist() == [{"group": 7, "upper": None, "state": 3}]


@pytest.mark.parametrize(
    ("column", "error"),
    [
        (("stat", pa.string()), "no column 'stat': did you mean state"),
        (("state", pa.int64()), "asked for as int64, .* as STRING it is JSON"),
    ],
)
def test_columns_that_a_state_does_not_have_are_named(column: Any, error: str) -> None:
    with pytest.raises(UserError, match=error):
        cluster.rows_of(VIEW, pa.schema([column]))


@pytest.mark.parametrize("stage", [False, True], ids=["parts", "result"])
def test_a_file_that_goes_between_planning_and_reading_is_named(
    tmp_path: Path, stage: bool
) -> None:
    """No row is left out in silence, whichever file of a batch it is."""
    if stage:
        for number in range(2):
            pq.write_table(pa.table({"n": [number]}), tmp_path / f"{number}.parquet")
    else:
        written(tmp_path, "write", [{"n": 0}, {"n": 1}], format="parquet")
    kind: Any = "result" if stage else "parts"
    files = OutputFiles((PartFolder(str(tmp_path)),), kind, None, "output write")
    reader = OutputReader(files, StructType([StructField("n", LongType())]), text=False)
    planned = reader.partitions()
    assert len(planned) == 2
    gone = Path(planned[1].value.path)
    gone.unlink()
    assert [batch.to_pylist() for batch in reader.read(planned[0])] == [[{"n": 0}]]
    with pytest.raises(UserError, match=rf"{gone.name} cannot be read where Spark runs"):
        list(reader.read(planned[1]))
