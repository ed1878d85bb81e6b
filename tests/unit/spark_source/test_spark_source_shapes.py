"""Rows of any shape for Spark: schemas that are found, parts of nested values, rows as text."""

from __future__ import annotations

import gzip
import json
import traceback
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from onyx.errors import UserError
from onyx.plugins.parts.offsets import Part, Rows
from onyx.spark.types import spark_schema
from onyx.spark_source import options, schemas
from onyx.spark_source.options import read_options
from onyx.spark_source.rows import TEXT, batches, count

LETTERS = [
    '{"task":"work","tries":1,"segment":{"n":1,"who":{"name":"ann","age":3},"tags":["a"],"big":2}}',
    '{"task":"work","tries":1,"segment":{"n":2.5,"who":null,"tags":[],"big":9007199254740993}}',
    '{"task":"work","tries":2,"segment":{"n":"three","who":{"age":"old"},"tags":[1, {"b": 2.0}]}}',
    '{"task":"work","tries":1,"segment":{"_error":"no JSON","_raw":"\\u0001 \\"x","big":0.5}}',
    '{"task":"work","tries":1,"segment":{"n":null,"extra":{"q\\"":true},"who":{"age":null}}}',
]
"""Dead letters: numbers of several kinds, text in their output, nulls, what others lack."""
TEXT_TYPE = pa.string()


@pytest.fixture(params=["jsonl", "jsonl.gz"])
def letters(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    path = tmp_path / f"part-bad-0-0123456789ab-000000.{request.param}"
    data = "".join(f"{each}\n" for each in LETTERS).encode()
    path.write_bytes(gzip.compress(data) if request.param == "jsonl.gz" else data)
    return str(path)


def inferred(*paths: str) -> pa.Schema:
    parts = [Part(path, "w", number, 0) for number, path in enumerate(paths)]
    return spark_schema(schemas.found_in(parts, "here"))


def rows(path: str, schema: pa.Schema, *, text: bool = False, **span: int) -> list[Any]:
    found = list(batches(Rows(path, **span), schema, text))
    assert all(each.schema.equals(schema) for each in found)
    return [row for each in found for row in each.to_pylist()]


def lines(folder: Path, *objects: Any) -> str:
    path = folder / "part-w-0-0123456789ab-000000.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in objects))
    return str(path)


def test_dead_letters_have_a_schema_in_which_what_differs_is_text(letters: str) -> None:
    who = pa.struct([("name", TEXT_TYPE), ("age", TEXT_TYPE)])
    assert inferred(letters).field("segment").type == pa.struct([
        ("n", TEXT_TYPE), ("who", who), ("tags", pa.list_(TEXT_TYPE)), ("big", TEXT_TYPE),
        ("_error", TEXT_TYPE), ("_raw", TEXT_TYPE), ("extra", pa.struct([('q"', pa.bool_())])),
    ])  # fmt: skip


def test_rows_of_any_shape_are_read_by_the_schema_that_was_found(letters: str) -> None:
    found = [row["segment"] for row in rows(letters, inferred(letters))]
    assert [each["n"] for each in found] == ["1", "2.5", "three", None, None]
    assert [each["big"] for each in found] == ["2", "9007199254740993", None, "0.5", None]
    assert [each["tags"] for each in found] == [["a"], [], ["1", '{"b": 2.0}'], None, None]
    assert [each["who"] for each in found] == [
        {"name": "ann", "age": "3"}, None, {"name": None, "age": "old"}, None,
        {"name": None, "age": None},
    ]  # fmt: skip
    assert found[3]["_raw"] == '\x01 "x'


def test_a_schema_may_name_some_fields_of_a_nested_column_and_read_one_as_json(
    letters: str,
) -> None:
    segment = pa.struct([("who", TEXT_TYPE), ("gone", pa.int32())])
    found = rows(letters, pa.schema([("segment", segment), ("tries", pa.int64())]))
    assert found[0] == {
        "segment": {"who": '{"name":"ann","age":3}', "gone": None}, "tries": 1,
    }  # fmt: skip
    whole = rows(letters, pa.schema([("segment", TEXT_TYPE)]))
    assert [json.loads(row["segment"]) for row in whole] == [
        json.loads(each)["segment"] for each in LETTERS
    ]
    of_any = rows(letters, pa.schema([("segment", pa.map_(TEXT_TYPE, TEXT_TYPE))]))
    assert dict(of_any[1]["segment"])["n"] == "2.5"


def test_rows_are_read_as_text(letters: str) -> None:
    assert [row["value"] for row in rows(letters, TEXT, text=True, first=1, last=3)] == LETTERS[1:3]
    assert count(letters) == len(LETTERS)
    assert read_options({"path": "x", "as": "text"}).form == "text"
    with pytest.raises(UserError, match="option 'as' is of outputs"):
        read_options({"job": "j", "window": "w", "as": "text"})


@pytest.mark.parametrize("name", ["a b", 'q"', "a\\", "größe", "маршрут", "", "a.b", "n\n"])
@pytest.mark.parametrize("beside", ["b", '"'])
def test_keys_of_any_name_are_columns_and_fields(tmp_path: Path, name: str, beside: str) -> None:
    row = {beside: 1, name: {beside: True, name: {name: "x"}}}
    path = lines(tmp_path, row)
    assert rows(path, inferred(path)) == [row]


def test_a_value_that_does_not_fit_is_named_by_row_and_path(letters: str) -> None:
    schema = pa.schema([("segment", pa.struct([("n", pa.float64())]))])
    with pytest.raises(UserError, match=r"row 2: key 'segment.n' holds a str .* wants number"):
        rows(letters, schema)
    # What a stream has read before, or reads later, is not looked at.
    assert rows(letters, schema, first=3) == [{"segment": {"n": None}}] * 2
    assert len(rows(letters, schema, last=2)) == 2


def test_a_line_that_is_no_object_is_named_and_read_as_text(tmp_path: Path) -> None:
    path = lines(tmp_path, {"n": 1}, [1])
    with pytest.raises(UserError, match=r"row 1: not a JSON object .*option\(\"as\", \"text\"\)"):
        inferred(path)
    with pytest.raises(UserError, match=r"row 1: not a JSON object"):
        rows(path, pa.schema([("n", pa.int64())]))
    assert [row["value"] for row in rows(path, TEXT, text=True)] == ['{"n": 1}', "[1]"]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2.5, None], pa.float64()),
        ([2**63, 1], pa.decimal128(20, 0)),
        ([2**63, -1], TEXT_TYPE),
        ([True, 1], TEXT_TYPE),
        ([None, None], TEXT_TYPE),
        ([{}, None], TEXT_TYPE),
        ([{"a": 1}, {"A": 1}], TEXT_TYPE),
        ([{"a": 1}, [1]], TEXT_TYPE),
        ([[None], []], pa.list_(TEXT_TYPE)),
        ([[{"a": 1}], [{"b": "x"}]], pa.list_(pa.struct([("a", pa.int64()), ("b", TEXT_TYPE)]))),
        ([{str(n): n for n in range(2_000)}], TEXT_TYPE),
    ],
    ids=str,
)
def test_values_of_a_column_find_the_type_that_holds_all(
    tmp_path: Path, values: list[Any], kind: pa.DataType
) -> None:
    path = lines(tmp_path, *({"x": each} for each in values))
    schema = inferred(path)
    assert schema.field("x").type == kind
    assert len(rows(path, schema)) == len(values)


def test_parts_of_parquet_whose_columns_differ_are_read_as_text_and_in_part(tmp_path: Path) -> None:
    who = [{"name": "ann", "tags": [{"a": 1, "b": 2}], "age": 3}, None]
    paths = [str(tmp_path / f"{number}.parquet") for number in range(2)]
    pq.write_table(pa.table({"n": [1, None], "who": who}), paths[0])
    pq.write_table(pa.table({"n": ["x", "y"], "who": ["z", None]}), paths[1])
    schema = inferred(*paths)
    assert schema == pa.schema([("n", TEXT_TYPE), ("who", TEXT_TYPE)])
    assert [row["n"] for path in paths for row in rows(path, schema)] == ["1", None, "x", "y"]
    assert json.loads(rows(paths[0], schema)[0]["who"]) == who[0]
    tags = pa.list_(pa.struct([("b", pa.float64()), ("c", TEXT_TYPE)]))
    chosen = pa.schema([("who", pa.struct([("tags", tags), ("more", pa.bool_())]))])
    assert rows(paths[0], chosen, first=0, last=2) == [
        {"who": {"tags": [{"b": 2.0, "c": None}], "more": None}}, {"who": None},
    ]  # fmt: skip
    assert json.loads(rows(paths[0], TEXT, text=True)[0]["value"]) == {"n": 1, "who": who[0]}


def test_batches_and_streams_read_rows_in_part_and_as_text(letters: str) -> None:
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StringType, StructType

    from onyx.spark_source import OnyxDataSource

    part = InputPartition(Rows(letters, 0, 2))
    segment = StructType().add("segment", StructType().add("n", StringType()))
    source = OnyxDataSource({"path": str(Path(letters).parent)})
    as_text = OnyxDataSource({"path": str(Path(letters).parent), "as": "text"})
    for of, schema, wanted in (
        (source, segment, [{"segment": {"n": "1"}}, {"segment": {"n": "2.5"}}]),
        (as_text, as_text.schema(), [{"value": each} for each in LETTERS[:2]]),
    ):
        for reader in (of.reader(schema), of.streamReader(schema)):
            assert [row for each in reader.read(part) for row in each.to_pylist()] == wanted
    with pytest.raises(UserError, match="gives one column of text"):
        as_text.streamReader(segment).initialOffset()


@pytest.fixture
def process_of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(options.HIDE, raising=False)
    monkeypatch.setattr(options, "_is_of_spark", lambda: True)


@pytest.mark.usefixtures("process_of_spark")
def test_errors_for_the_user_are_one_line_and_others_keep_their_traceback() -> None:
    from pyspark.util import handle_worker_exception

    def shown(error: Exception) -> str:
        sink = Sink()
        try:
            with options.in_one_line():
                raise error
        except Exception as raised:
            handle_worker_exception(raised, sink)
        return sink.data[8:].decode()

    assert "Traceback" in shown(KeyError("ours"))
    assert shown(UserError("say it")) == "onyx.errors.UserError: say it\n"


class Sink:
    """Where PySpark writes an error to the JVM."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data


def test_errors_in_the_process_of_a_user_leave_its_environment_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(options.HIDE, raising=False)
    with pytest.raises(UserError) as caught, options.in_one_line():
        raise UserError("say it")
    assert options.HIDE not in options.os.environ
    assert len(traceback.format_exception(caught.value)) > 1
