"""Types through Spark and back, in a folder and in an object store; parts whose types differ; what
is refused. One session for all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.jobs.plugin_context import plugin_context
from tests.support.servers.object_stores import ObjectStore
from tests.support.servers.s3_server import S3Server
from tests.support.spark.session import local_spark
from tests.support.value_types import KINDS, Kind, became, require_recorded

from onyx.errors import FailsAgain, OnyxError, UserError
from onyx.flow.columns.record_batch import Columns
from onyx.plugins.files.input import FilesInput
from onyx.plugins.files.options import FilesInputOptions
from onyx.plugins.protocol import START
from onyx.spark.child.request import EXACT_TYPES, StageRequest, Write
from onyx.spark.child.run_stage import write
from onyx.spark.middle.frame_types import FrameTypes
from onyx.spark.objects.messages import ObjectTarget, read_list
from onyx.spark.objects.reading import read_parts
from onyx.spark.types import for_spark, spark_schema
from onyx.storage.opening import location_of

SECOND = timedelta(seconds=1)

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def server(fake_s3: S3Server) -> Iterator[S3Server]:
    """Where executors find the store, which they know before they start."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in fake_s3.environment.items():
            patch.setenv(name, value)
        yield fake_s3


@pytest.fixture(scope="module")
def session(server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with local_spark(tmp_path_factory.mktemp("spark")) as session:
        for key, value in EXACT_TYPES.items():
            session.conf.set(key, value)
        yield session


class Place:
    """Where parts are read and a result is written."""

    def __init__(self, session: Any, folder: Path, store: ObjectStore | None = None) -> None:
        self.session = session
        self.folder = folder
        self.store = store
        self._names = iter(range(1_000))

    def part(self, table: pa.Table) -> str:
        """The path of a part, which an output has written."""
        path = self.folder / f"part-{next(self._names)}.parquet"
        pq.write_table(for_spark(table), path)
        if self.store is None:
            return str(path)
        self.store.put(path.name, path.read_bytes())
        return f"{self.store.url}/{path.name}"

    def result(self, frame: Any) -> list[pa.RecordBatch]:
        """What becomes segments of the rows of a frame."""
        number = next(self._names)
        target = str(self.folder / f"result-{number}")
        if self.store is None:
            write(frame, StageRequest("m:f", target=target, as_segments=True), lambda: None)
            return read(str(each) for each in sorted(Path(target).glob("*.parquet")))
        objects = ObjectTarget(f"{self.store.url}/result-{number}", "part")
        asked = StageRequest("m:f", target=target, objects=objects, as_segments=True)
        write(frame, asked, lambda: None)
        return read(f"{objects.url}/{each.name}" for each in read_list(Path(target)))


@pytest.fixture(params=["folder", "object store"])
def place(request: pytest.FixtureRequest, session: Any, server: S3Server, tmp_path: Path) -> Place:
    store = ObjectStore(server) if request.param == "object store" else None
    return Place(session, tmp_path, store)


def read(paths: Any) -> list[pa.RecordBatch]:
    """The rows as the inputs of a stage and of a snapshot read them."""
    files = FilesInput(plugin_context({}), FilesInputOptions(path="/x/*.parquet"))
    found = []
    for path in paths:
        reader = files.open(path, START)
        while not reader.exhausted():
            batch = reader.read_columns(1_000)  # type: ignore[attr-defined]
            assert isinstance(batch, pa.RecordBatch)
            found.append(batch)
        reader.close()
    return found


def rows(batches: Sequence[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in Columns.of(batch).record_batch.to_pylist()]


def fits(kind: Kind) -> bool:
    try:
        spark_schema(pa.schema([("v", kind.type)]))
    except OnyxError:
        return False
    return True


def test_each_type_goes_to_spark_and_back_as_the_page_says(place: Place) -> None:
    passing = [kind for kind in KINDS if fits(kind)]
    size = max(len(kind.values) for kind in KINDS) + 1
    columns = {
        kind.name: pa.array([*kind.values, *[None] * (size - len(kind.values))], kind.type)
        for kind in passing
    }
    frame = read_parts(place.session, [place.part(pa.table(columns))], None)
    if place.store is None:
        of_spark = {field.name: field.dataType.simpleString() for field in frame.schema}
        found = {kind.name: f"`{of_spark.get(kind.name, '')}`".replace("``", "refused")
                 for kind in KINDS}  # fmt: skip
        require_recorded("in Spark", found)
    (batch,) = place.result(frame)

    def passed(kind: Kind) -> pa.Array:
        if kind not in passing:
            raise UserError("refused")
        return batch.column(kind.name).slice(0, len(kind.values) + 1)

    where = "a folder" if place.store is None else "an object store"
    require_recorded(
        f"Spark and back, in {where}",
        {kind.name: became(kind, lambda kind=kind: passed(kind)) for kind in KINDS},
    )


def test_what_a_stage_computes_has_the_type_that_spark_gives_it(place: Place) -> None:
    table = pa.table(
        {"wait": [SECOND, 3 * SECOND], "id": pa.array([2**64 - 1, 1], pa.uint64()), "n": [1, 2]}
    )
    frame = read_parts(place.session, [place.part(table)], None)
    made = frame.selectExpr("wait * n AS wait", "id", "id + 1 AS more", "map('a', wait) AS waits")
    assert rows(place.result(made.where("wait > interval '2' second"))) == [
        {
            "wait": 6 * SECOND,
            "id": 1,
            "more": Decimal(2),
            "waits": [{"key": "a", "value": 3 * SECOND}],
        }
    ]


def test_a_note_of_a_type_that_does_not_hold_a_value_is_nothing(
    session: Any, tmp_path: Path
) -> None:
    place = Place(session, tmp_path)
    small = read_parts(session, [place.part(pa.table({"n": pa.array([1], pa.uint8())}))], None)
    large = read_parts(session, [place.part(pa.table({"n": pa.array([300], pa.int16())}))], None)
    assert sorted(row["n"] for row in rows(place.result(small.union(large)))) == [1, 300]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("interval '3' month", "column 'v' holds intervals of months: cast it to INT"),
        ("array(interval '3' month)", "column 'v' holds intervals of months"),
        ("parse_json('1')", "column 'v' holds values of any type: take to_json of it"),
    ],
)
def test_a_result_that_no_segment_can_hold_is_refused(
    session: Any, tmp_path: Path, value: str, said: str
) -> None:
    asked = StageRequest("m:f", target=str(tmp_path / "out"), as_segments=True)
    with pytest.raises(FailsAgain, match=said):
        write(session.sql(f"SELECT {value} AS v"), asked, lambda: None)


@pytest.mark.parametrize("form", ["parquet", "orc"])
def test_executors_refuse_columns_that_they_cannot_write(
    session: Any, server: S3Server, tmp_path: Path, form: str
) -> None:
    store = ObjectStore(server)
    request = StageRequest("m:f", target=str(tmp_path / "names"), write=Write(format=form),
                           objects=ObjectTarget(f"{store.url}/out", "part"))  # fmt: skip
    with pytest.raises(FailsAgain, match=r"column 'v' of type INTERVAL .*cannot be written as"):
        write(session.sql("SELECT interval '3' month AS v"), request, lambda: None)


def test_spark_reads_from_a_store_what_it_reads_from_a_folder(
    session: Any, server: S3Server, tmp_path: Path
) -> None:
    """The footers of objects say what Spark's own do."""
    place = Place(session, tmp_path, ObjectStore(server))
    frame = read_parts(session, [place.part(pa.table({"wait": [SECOND]}))], None)
    place.result(frame)
    assert place.store is not None
    (name,) = [each for each in place.store.keys("result-") if each.endswith(".parquet")]
    (tmp_path / "copy.parquet").write_bytes(place.store.get(name))
    again = session.read.parquet(str(tmp_path / "copy.parquet"))
    assert again.schema["wait"].dataType == frame.schema["wait"].dataType


NULL_OR: Mapping[str, tuple[Any, str]] = {
    "struct": ({"a": 1}, "STRUCT<a: BIGINT>"),
    "deep": ({"a": {"b": None, "c": b"x"}}, "STRUCT<a: STRUCT<b: STRING, c: BINARY>>"),
    "list": ([1], "ARRAY<BIGINT>"),
    "list_of_none": ([[1], None], "ARRAY<ARRAY<BIGINT>>"),
    "bytes": (b"x", "BINARY"),
    "date": (date(2026, 1, 1), "DATE"),
    "duration": (SECOND, "INTERVAL DAY TO SECOND"),
    "decimal": (Decimal("1.5"), "DECIMAL(9, 2)"),
    "text": ("x", "STRING"),
    "flag": (True, "BOOLEAN"),
}


@pytest.mark.parametrize("with_schema", [False, True])
def test_a_column_that_is_null_in_one_part_is_of_the_type_of_the_others(
    place: Place, with_schema: bool
) -> None:
    emptied = {"struct": None, "deep": {"a": None}, "list": [], "list_of_none": [None]}
    nothing = {name: emptied.get(name) for name in NULL_OR}
    full = {name: value for name, (value, _) in NULL_OR.items()}
    parts = [
        place.part(pa.table({name: pa.array([value]) for name, value in part.items()}))
        for part in (nothing, full, {"struct": None})
    ]
    ddl = ", ".join(f"{name} {kind}" for name, (_, kind) in NULL_OR.items())
    found = rows(place.result(read_parts(place.session, parts, ddl if with_schema else None)))
    nulls = dict.fromkeys(NULL_OR)
    for row in (nothing, full, nulls):
        assert row in found
    assert len(found) == 3


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ([2**60 + 1], [0.5], "key 'v': a value does not fit DOUBLE: 1152921504606846977"),
        ([Decimal("0.12345678901234567890")], [0.5], "key 'v': a value does not fit DOUBLE"),
        (["x"], [b"x"], "key 'v' has text in one part and bytes in another"),
        ([1], [SECOND], "the types of a column differ between parts"),
        ([Decimal("1e27")], [Decimal("1e-12")], "decimals of 40 digits are more than the 38"),
    ],
)
def test_parts_whose_values_do_not_fit_one_type_are_refused(
    session: Any, tmp_path: Path, one: list[Any], other: list[Any], said: str
) -> None:
    place = Place(session, tmp_path)
    parts = [place.part(pa.table({"v": values})) for values in (one, other)]
    with pytest.raises(OnyxError, match=said):
        place.result(read_parts(session, parts, None))


def test_parts_of_several_types_become_one_that_holds_all(session: Any, tmp_path: Path) -> None:
    place = Place(session, tmp_path)
    of_parts = [
        {"n": pa.array([2**64 - 1], pa.uint64()), "x": [2**53], "d": [Decimal("1.5")]},
        {"n": pa.array([-1], pa.int64()), "x": [0.5], "d": [2]},
    ]
    found = rows(
        place.result(
            read_parts(session, [place.part(pa.table(columns)) for columns in of_parts], None)
        )
    )
    assert {row["n"] for row in found} == {2**64 - 1, -1}
    assert {row["x"] for row in found} == {2.0**53, 0.5}
    assert {row["d"] for row in found} == {Decimal("1.5"), 2}


@pytest.mark.parametrize(
    ("value", "ddl", "said"),
    [
        (2.5, "BIGINT", "key 'v': a value does not fit BIGINT: 2.5"),
        (300, "TINYINT", "key 'v': a value does not fit TINYINT: 300"),
        (1e300, "FLOAT", "key 'v': a value does not fit FLOAT: 1.0E300"),
        (Decimal("1.25"), "DECIMAL(3, 1)", "a value does not fit DECIMAL"),
        (1, "INTERVAL DAY TO SECOND", "values of type BIGINT, which are none of INTERVAL"),
        (SECOND, "BIGINT", "values of type INTERVAL DAY TO SECOND, which are none of BIGINT"),
        (1_700_000_000_000, "TIMESTAMP", "values of type BIGINT, which are none of TIMESTAMP"),
        (b"x", "STRING", "values of type BINARY, which are none of STRING"),
        ([2.5], "ARRAY<BIGINT>", "key 'v': a value does not fit BIGINT"),
    ],
)
def test_a_schema_changes_no_value(
    session: Any, tmp_path: Path, value: Any, ddl: str, said: str
) -> None:
    place = Place(session, tmp_path)
    part = place.part(pa.table({"v": [value]}))
    with pytest.raises(FailsAgain, match=said):
        place.result(read_parts(session, [part], f"v {ddl}"))
    types = FrameTypes(location_of(str(tmp_path / "types")), f"v {ddl}")
    assert len(types.misfits([{"v": value}])) == 1, "it is known before"


def test_a_schema_may_say_another_type_for_the_same_values(session: Any, tmp_path: Path) -> None:
    place = Place(session, tmp_path)
    given = {"a": 2.0, "b": 0.1, "c": "7", "d": 5, "e": 0.1}
    part = place.part(pa.Table.from_pylist([given]))
    ddl = "a BIGINT, b DECIMAL(5, 2), c INT, d STRING, e FLOAT, f INT"
    assert FrameTypes(location_of(str(tmp_path / "types")), ddl).misfits([given]) == []
    assert rows(place.result(read_parts(session, [part], ddl))) == [
        {"a": 2, "b": Decimal("0.10"), "c": 7, "d": "5", "e": pytest.approx(0.1), "f": None}
    ]
