"""Files as columns: the same segments at the same positions as dicts, in types that stay."""

import gzip
from datetime import UTC, date, datetime
from decimal import Decimal

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.jobs.plugin_context import plugin_context

from onyx.errors import UserError
from onyx.flow.columns.record_batch import Columns, from_dicts, to_dicts
from onyx.plugins.files import text_reader
from onyx.plugins.files.lines import JsonLineRecords
from onyx.plugins.protocol import START
from onyx.plugins.registry import build_input
from onyx.testing.columns_kit import check_columns_input, read_columns


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    """Records straddle blocks all the time."""
    monkeypatch.setattr(text_reader, "BLOCK_BYTES", 16)
    monkeypatch.setattr(text_reader, "COLUMNS_BLOCK_BYTES", 40)


def files(path, batch_format="arrow", schema=None, **options):
    options["path"] = str(path)
    context = plugin_context(options, batch_format=batch_format, schema=schema)
    return build_input("files", context)


def write(path, data):
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def parts(path, segments_max=1000, **options):
    """What the reader gives, call by call."""
    return list(read_columns(files(path, **options), str(path), START, segments_max))


def types(batch):
    return {field.name: str(field.type) for field in batch.schema}


JSONL = '{"n":1,"city":"Zürich"}\n{"n":2}\n{"n":3,"deep":{"a":[1,null]}}\n{"n":null,"x":1e3}\n'


@pytest.mark.parametrize(
    "data",
    [
        JSONL,
        JSONL.removesuffix("\n"),
        JSONL.replace("\n", "\r\n"),
        "\ufeff" + JSONL,
        "\n\n" + JSONL.replace("\n", "\n \n\r\n"),
        JSONL.replace("\n", "   \n"),
        JSONL * 9,
        "",
        "{}\n{}\n",
        '{"a\\"b":1}\n{"a\\"b":2}\n',
        '{"a":1}{"a":2}\n\n{"a":3}\n',
        '{"a":1}\n[1]\n{"a":2}\n{"a":1e999}\n{"a":' + "9" * 30 + "}\n",
        '{"a":1}\n{"a":"' + "x" * 90 + '"}\n{"a":2}\n',
    ],
)
@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz"])
def test_json_lines_are_the_same_as_dicts(tmp_path, data, ending):
    raw = data.encode()
    path = write(tmp_path / f"a.{ending}", gzip.compress(raw) if ending.endswith("gz") else raw)
    options = {"onBadRecord": "segment", "recordBytesMax": 64}
    check_columns_input(lambda kind: files(path, kind, **options))
    options |= {"recordNumber": "n", "fileName": "file"}
    check_columns_input(lambda kind: files(path, kind, **options))


def test_text_is_the_same_as_dicts(tmp_path):
    path = write(tmp_path / "a.txt", b"one\r\n\n\xff\nZ\xc3\xbcrich \n" * 20 + b"end")
    options = {"onBadRecord": "segment", "recordNumber": "row"}
    check_columns_input(lambda kind: files(path, kind, **options))


def test_a_type_becomes_wider_and_stays_so(tmp_path):
    values = [1, 2, None, 4, 5, 6, 0.5, 8, 9, 10, 11, 12]
    path = write(
        tmp_path / "a.jsonl", b"".join(msgspec.json.encode({"n": n}) + b"\n" for n in values)
    )
    found = parts(path, segments_max=1)
    assert [each.column("n").to_pylist() for each in found] == [[each] for each in values]
    assert [types(each)["n"] for each in found] == ["int64"] * 4 + ["double"] * 8


def test_types_are_learned_from_the_start_of_a_block(tmp_path, monkeypatch):
    monkeypatch.setattr(text_reader, "COLUMNS_BLOCK_BYTES", 4096)
    monkeypatch.setattr("onyx.plugins.files.lines.SAMPLE_BYTES", 20)
    path = write(tmp_path / "a.jsonl", "".join(f'{{"n":{n}}}\n' for n in range(99)))
    decoded = []
    one = JsonLineRecords.one
    monkeypatch.setattr(
        JsonLineRecords,
        "one",
        lambda self, line, position: decoded.append(line) or one(self, line, position),
    )
    (found,) = parts(path)
    assert found["n"].to_pylist() == list(range(99))
    assert decoded == [b'{"n":0}', b'{"n":1}', b'{"n":2}']
    check_columns_input(lambda kind: files(path, kind))


def test_a_new_key_is_a_column_from_then_on_in_all_files(tmp_path, monkeypatch):
    monkeypatch.setattr(text_reader, "COLUMNS_BLOCK_BYTES", 16)
    first = write(tmp_path / "a.jsonl", '{"a":1,"c":[]}\n{"b":"x","c":[1]}\n{"a":2}\n')
    second = write(tmp_path / "b.jsonl", '{"a":3}\n')
    plugin = files(tmp_path / "*.jsonl")
    found = list(read_columns(plugin, str(first), START, 1))
    assert types(found[0]) == {"a": "int64", "c": "list<item: null>"}
    whole = {"a": "int64", "c": "list<item: int64>", "b": "string"}
    assert [types(each) for each in found[1:]] == [whole, whole]
    assert [types(each) for each in read_columns(plugin, str(second), START, 9)] == [whole]


def test_columns_of_keys_that_never_end_are_forgotten(tmp_path, monkeypatch):
    monkeypatch.setattr("onyx.plugins.json_columns.KEYS_MAX", 3)
    monkeypatch.setattr(text_reader, "COLUMNS_BLOCK_BYTES", 16)
    path = write(tmp_path / "a.jsonl", "".join(f'{{"k{n}":{n},"x":1}}\n' for n in range(9)))
    assert max(len(each.schema) for each in parts(path, 1)) == 3
    check_columns_input(lambda kind: files(path, kind))


def test_a_value_that_no_type_holds_beside_the_others_is_left_to_the_engine(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"n":1}\n{"n":"x"}\n')
    first, wrong = parts(path)
    assert (first["n"].to_pylist(), wrong) == ([1], [{"n": "x"}])
    large = write(tmp_path / "b.jsonl", f'{{"n":0.5}}\n{{"n":{2**53 + 1}}}\n')
    first, wrong = parts(large)
    assert (first["n"].to_pylist(), wrong) == ([0.5], [{"n": 2**53 + 1}])


def test_most_records_say_the_types_wherever_the_others_are(tmp_path, monkeypatch):
    monkeypatch.setattr(text_reader, "COLUMNS_BLOCK_BYTES", 64)
    values = ["x", 1, 2, 3, 4, "y", 6, *"abcdef"]  # seven lines are a block
    path = write(
        tmp_path / "a.jsonl", b"".join(msgspec.json.encode({"n": n}) + b"\n" for n in values)
    )
    plugin = files(path)
    found = list(read_columns(plugin, str(path), START, 99))
    shown = [
        (each["n"].type, each["n"].to_pylist()) if isinstance(each, pa.RecordBatch) else each
        for each in found
    ]
    assert shown == [
        [{"n": "x"}],
        (pa.int64(), [1, 2, 3, 4]),
        [{"n": "y"}],
        (pa.int64(), [6]),
        (pa.string(), list("abcdef")),
    ]
    assert plugin.column_types() == {"n": pa.string()}, "what most of the last block has"


SCHEMA = pa.schema(
    [("n", pa.int64()), ("at", pa.timestamp("us", tz="UTC")), ("price", pa.decimal128(9, 2))]
)


def test_a_schema_says_the_types_of_json(tmp_path):
    lines = '{"price":1.5,"at":"2013-01-02T03:00:00Z"}\n{"n":7,"price":"0.07"}\n'
    (found,) = parts(write(tmp_path / "a.jsonl", lines), schema=SCHEMA)
    assert found.schema == SCHEMA
    assert to_dicts(Columns(found)) == [
        {"n": None, "at": datetime(2013, 1, 2, 3, tzinfo=UTC), "price": Decimal("1.50")},
        {"n": 7, "at": None, "price": Decimal("0.07")},
    ]


@pytest.mark.parametrize(
    "line", ['{"n":"7"}', '{"n":2.5}', '{"m":1}', '{"at":"soon"}', '{"n":"7","price":1}']
)
def test_a_record_that_the_schema_does_not_hold_is_left_to_the_engine(tmp_path, line):
    path = write(tmp_path / "a.jsonl", '{"n":1}\n' + line + "\n")
    first, wrong = parts(path, schema=SCHEMA)
    assert first["n"].to_pylist() == [1]
    assert wrong == [msgspec.json.decode(line)]


def test_a_bad_record_ends_the_job_or_is_kept_among_dicts(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"n":1}\n{"n":\n{"n":3}\n')
    with pytest.raises(UserError, match=r"record 1 \(counted from 0\): not a JSON object"):
        parts(path)
    first, (bad,), last = parts(path, onBadRecord="segment")
    assert (first["n"].to_pylist(), bad["_raw"], last["n"].to_pylist()) == ([1], '{"n":', [3])


def test_extras_are_in_the_schema_or_the_job_is_refused(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"n":1}\n')
    schema = pa.schema([("row", pa.int64()), ("n", pa.int64())])
    (found,) = parts(path, schema=schema, recordNumber="row")
    assert to_dicts(Columns(found)) == [{"row": 0, "n": 1}]
    with pytest.raises(UserError, match=r"option 'fileName' names 'file', which the schema .*stri"):
        files(path, schema=schema, fileName="file")


ROWS = [
    {"n": n, "text": None if n % 3 else str(n), "list": [n], "day": date(2013, 1, 1 + n)}
    for n in range(25)
]


def parquet(path, rows, **options):
    pq.write_table(pa.Table.from_pylist(rows), path, **options)
    return path


@pytest.mark.parametrize("group", [1, 7, 100])
def test_parquet_is_the_same_as_dicts(tmp_path, monkeypatch, group):
    monkeypatch.setattr("onyx.plugins.files.parquet_reader.COLUMNS_ROWS_MAX", 10)
    monkeypatch.setattr("onyx.plugins.files.parquet_reader.ROWS_AT_A_TIME", 4)
    path = parquet(tmp_path / "a.parquet", ROWS, row_group_size=group)
    check_columns_input(lambda kind: files(path, kind))
    options = {"recordNumber": "row", "fileName": "text"}
    check_columns_input(lambda kind: files(path, kind, **options))


def test_a_row_of_a_year_that_python_lacks_is_a_bad_one(tmp_path):
    at = pa.array([0, 2**62, 1], pa.timestamp("us", tz="UTC"))
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"n": [0, 1, 2], "at": at}), path)
    options = {"onBadRecord": "segment", "recordNumber": "row"}
    check_columns_input(lambda kind: files(path, kind, **options))
    first, [bad], last = parts(path, **options)
    assert (first["n"].to_pylist(), last["n"].to_pylist()) == ([0], [2])
    assert bad == {
        "_error": "key 'at' holds a moment outside of the years 1 to 9999, which no date of Python "
        "is: mend it where it is made",
        "_raw": "{'n': '1', 'at': '<value out of range: 4611686018427387904>'}",
        "row": 1,
    }
    with pytest.raises(UserError, match=r"record 1 .* holds a moment outside"):
        parts(path)


def test_a_moment_that_microseconds_cannot_hold_is_a_bad_row(tmp_path):
    """Without the high bits that it has in microseconds, it would be the start of 1970."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"at": pa.array([0, 2**61, None], pa.timestamp("ms"))}), path)
    first, [bad], last = parts(path, onBadRecord="segment")
    assert (len(first), len(last)) == (1, 1)
    assert "outside of the years 1 to 9999" in bad["_error"]


def test_times_of_96_bits_are_those_that_were_written(tmp_path):
    moments = [datetime(year, 12, 31, tzinfo=UTC) for year in (1, 1754, 2026, 9999)]
    path = tmp_path / "a.parquet"
    at = pa.array(moments, pa.timestamp("us"))
    pq.write_table(pa.table({"at": at}), path, use_deprecated_int96_timestamps=True)
    (found,) = parts(path)
    assert found["at"].to_pylist() == moments


def test_small_row_groups_are_read_together_and_large_ones_cut(tmp_path):
    path = parquet(tmp_path / "a.parquet", ROWS, row_group_size=2)
    assert [each.num_rows for each in parts(path, 10)] == [10, 10, 5]
    whole = parquet(tmp_path / "b.parquet", ROWS)
    assert [each.num_rows for each in parts(whole, 10)] == [10, 10, 5]


def test_large_rows_are_read_fewer_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr("onyx.plugins.files.parquet_reader.COLUMNS_BYTES_MAX", 30_000)
    path = parquet(tmp_path / "a.parquet", [{"page": str(n) * 5_000} for n in range(10)])
    assert max(each.num_rows for each in parts(path, 1000)) < 8


def test_of_parquet_only_the_columns_of_the_schema_are_read(tmp_path):
    path = parquet(tmp_path / "a.parquet", ROWS)
    schema = pa.schema([("more", pa.string()), ("n", pa.float64())])
    (found,) = parts(path, schema=schema)
    assert types(found) == {"n": "int64"}  # the engine does the rest


def test_an_empty_parquet_file_has_no_segments(tmp_path):
    path = parquet(tmp_path / "a.parquet", ROWS[:1], row_group_size=1)
    pq.write_table(pq.read_table(path).slice(0, 0), path)
    assert parts(path) == []


CSV = [
    'n,x,t\r\n1,2.5,Zürich\r\n,,\r\n-7,1e3,"a"\r\n',
    'n,x,t\n1,2,"with\n newline, and ""quotes"""\n\n3,4,end',
    "n,x,t\n" + "12,0.5,text\n" * 30,
    "n,x,t\n 12,+5,\n1,inf,nan\n007,.5,0x10\n",
    "n,x,t\n0x10,1,hex\n2,nan(1),odd\n1_0,1_0,under\n",
    "n,x,t\n1,2\n1,2,3,4\n5,6,7\n",
    'n,x,t\n1,2,"never closed\n2,3,4\n',
    'n,x,t\nbad\n"',
    "n,x,t\r1,2,3\r\n4,5,\rx\n",
    "n,x,t\n18446744073709551615,1,t\n",
    "n,x,t\n",
    "",
    "t,n,x\n\ufeffa,1,2\n\ufeff\x00b,3,4\n",
]


@pytest.mark.parametrize("data", CSV)
@pytest.mark.parametrize("types", [{}, {"n": "int", "x": "float"}])
def test_csv_is_the_same_as_dicts(tmp_path, data, types):
    path = write(tmp_path / "a.csv", data)
    options = {"onBadRecord": "segment", "types": types if data else {}, "recordNumber": "row"}
    check_columns_input(lambda kind: files(path, kind, **options))


@pytest.mark.parametrize("text", ["true", "FALSE", "1", "0", "", "maybe", " true", "2"])
def test_bools_of_csv_are_the_same_as_dicts(tmp_path, text):
    path = write(tmp_path / "a.csv", f"b,c\n{text},x\n")
    options = {"onBadRecord": "segment", "types": {"b": "bool"}}
    check_columns_input(lambda kind: files(path, kind, **options))


CSV_SCHEMA = pa.schema(
    [
        ("n", pa.int32()),
        ("ok", pa.bool_()),
        ("price", pa.decimal128(9, 2)),
        ("at", pa.timestamp("us", tz="UTC")),
        ("day", pa.date32()),
    ]
)


def test_a_schema_says_types_and_columns_of_csv(tmp_path):
    path = write(
        tmp_path / "a.csv",
        "n,left out,ok,price,at,day\n1,x,TRUE,1.5,2013-01-02T03:00:00Z,2013-01-02\n,,,,,\n",
    )
    (found,) = parts(path, schema=CSV_SCHEMA)
    assert found.schema == CSV_SCHEMA
    first, empty = to_dicts(Columns(found))
    assert first == {
        "n": 1,
        "ok": True,
        "price": Decimal("1.50"),
        "at": datetime(2013, 1, 2, 3, tzinfo=UTC),
        "day": date(2013, 1, 2),
    }
    assert set(empty.values()) == {None}


@pytest.mark.parametrize(
    "wrong", ["x,true,1,,", "3000000000,true,1,,", "1,maybe,1,,", "1,true,1.555,,", "1,true,x,,"]
)
def test_a_field_that_the_schema_does_not_hold_is_left_to_the_engine(tmp_path, monkeypatch, wrong):
    monkeypatch.setattr(text_reader, "COLUMNS_BLOCK_BYTES", 4096)
    path = write(tmp_path / "a.csv", f"n,ok,price,at,day\n1,true,0.5,,2013-01-02\n{wrong}\n")
    found = parts(path, schema=CSV_SCHEMA)
    columns, apart = found
    assert columns["price"].to_pylist() == [Decimal("0.50")]
    assert [index for index, _ in from_dicts(apart, CSV_SCHEMA)[2]] == [0]


def test_a_type_that_csv_lacks_is_refused(tmp_path):
    path = write(tmp_path / "a.csv", "n\n1\n")
    with pytest.raises(UserError, match="schema says list<item: int64> for column 'n', which has"):
        parts(path, schema=pa.schema([("n", pa.list_(pa.int64()))]))
