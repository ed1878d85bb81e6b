"""Files as input: every format, every compression, and everything that files do to one."""

import bz2
import gzip
import lzma
import zipfile
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.jobs.plugin_context import plugin_context

from onyx.errors import Unavailable, UserError
from onyx.plugins.files import text_reader as file_reader
from onyx.plugins.protocol import START, Behind, Cursor
from onyx.plugins.registry import build_input
from onyx.testing.plugin_kit import check_input


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    """Records straddle blocks all the time."""
    monkeypatch.setattr(file_reader, "BLOCK_BYTES", 16)


def files(path, **options):
    return build_input("files", plugin_context({"path": str(path), **options}))


def read(path, **options):
    """The segments of the only file, checked by the kit."""
    (segments,) = check_input(lambda: files(path, **options)).values()
    return segments


def write(path, data):
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def test_bytes_and_rows_that_are_left_are_known_where_the_format_says_so(tmp_path):
    text = write(tmp_path / "a.jsonl", JSONL)
    plugin = files(text)
    reader = plugin.open(str(text), START)
    assert plugin.behind({str(text): START})[str(text)] == Behind(
        bytes=len(JSONL.encode()), bytes_done=0
    )
    reader.read(3)
    at = reader.cursor(3)
    assert 0 < plugin.behind({str(text): at})[str(text)].bytes < len(JSONL)
    reader.close()
    rows = tmp_path / "a.parquet"
    pq.write_table(pa.table({"n": range(10)}), rows)
    assert files(rows).behind({str(rows): Cursor(4)}) == {str(rows): Behind(6)}
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(gzip.compress(JSONL.encode()))
    assert files(packed).behind({str(packed): START}) == {}


JSONL = '{"n":1,"city":"Zürich"}\n{"n":2}\n{"n":3,"deep":{"a":[1,null]}}\n'
PARSED = [{"n": 1, "city": "Zürich"}, {"n": 2}, {"n": 3, "deep": {"a": [1, None]}}]


@pytest.mark.parametrize(
    "data",
    [
        JSONL,
        JSONL.removesuffix("\n"),
        JSONL.replace("\n", "\r\n"),
        "\ufeff" + JSONL,
        "\n\n" + JSONL.replace("\n", "\n \n\r\n"),
        JSONL.replace("\n", "   \n"),
    ],
    ids=["plain", "no final newline", "CRLF", "BOM", "blank lines", "trailing blanks"],
)
def test_json_lines(tmp_path, data):
    assert read(write(tmp_path / "my flights.jsonl", data)) == PARSED


@pytest.mark.parametrize(
    ("name", "data"),
    [("e.jsonl", ""), ("e.txt", ""), ("e.csv", ""), ("e.csv", "a,b\n"), ("e.csv", "a,b"),
     ("e.jsonl", "\n\n"), ("e.csv", "\n\r\n"), ("e.jsonl", "\ufeff"), ("e.csv", "\ufeff")],
)  # fmt: skip
def test_a_file_without_records_is_exhausted(tmp_path, name, data):
    assert read(write(tmp_path / name, data)) == []


def test_text_lines(tmp_path):
    path = write(tmp_path / "a.log", "one\r\n\n  three\u2028still three\x0b\nfour")
    lines = ["one", "", "  three\u2028still three\x0b", "four"]
    assert read(path) == [{"line": line} for line in lines]


NAIVE = datetime(2013, 1, 2, 3)  # noqa: DTZ001 - as Parquet files have them
CSV = 'a,b,c\n1,x,y\n2,"with, comma","two\nlines"\n3,"a ""quote""",\n4,plain,z\n'
ROWS = [
    {"a": "1", "b": "x", "c": "y"},
    {"a": "2", "b": "with, comma", "c": "two\nlines"},
    {"a": "3", "b": 'a "quote"', "c": ""},
    {"a": "4", "b": "plain", "c": "z"},
]


@pytest.mark.parametrize(
    "data",
    [CSV, CSV.removesuffix("\n"), "\ufeff" + CSV, "\n" + CSV + "\n\n"],
    ids=["plain", "no final newline", "BOM", "blank lines"],
)
def test_csv_with_quoted_newlines_across_blocks(tmp_path, data):
    assert read(write(tmp_path / "a.csv", data)) == ROWS


def test_csv_with_crlf_keeps_it_only_inside_quotes(tmp_path):
    rows = [{**row, "c": row["c"].replace("\n", "\r\n")} for row in ROWS]
    assert read(write(tmp_path / "a.csv", CSV.replace("\n", "\r\n"))) == rows


def test_csv_gives_the_same_whether_a_block_has_quotes_or_not(tmp_path, monkeypatch):
    """Fields of a plain line, whichever of the two ways it is parsed."""
    plain = "a,b\n1, x \n2,\t\n,\n3,y\x0bz\n4,\u2028\n"
    quoted = plain + '5,"q"\n'
    monkeypatch.setattr(file_reader, "BLOCK_BYTES", 4096)
    one = read(write(tmp_path / "plain.csv", plain))
    other = read(write(tmp_path / "quoted.csv", quoted))
    assert other == [*one, {"a": "5", "b": "q"}]


def test_csv_columns_delimiter_and_types(tmp_path):
    path = write(tmp_path / "a.csv", "1;2.5;TRUE;x\n;;;\n")
    types = {"n": "int", "f": "float", "b": "bool", "s": "str"}
    options = {"header": False, "columns": ["n", "f", "b", "s"], "delimiter": ";", "types": types}
    assert read(path, **options) == [
        {"n": 1, "f": 2.5, "b": True, "s": "x"},
        {"n": None, "f": None, "b": None, "s": ""},
    ]


def test_tabs_separate_the_fields_of_tsv(tmp_path):
    assert read(write(tmp_path / "a.tsv", "a\tb\n1\t2,3\n")) == [{"a": "1", "b": "2,3"}]


def test_record_numbers_and_file_names_are_added_on_request(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"x":1}\n\n{"x":2}\n')
    assert read(path, recordNumber="row", fileName="file") == [
        {"x": 1, "row": 0, "file": str(path)},
        {"x": 2, "row": 1, "file": str(path)},
    ]


def _zip(path, data):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("folder/", b"")
        archive.writestr("folder/data.jsonl", data)


def _zst(path, data):
    with pa.CompressedOutputStream(str(path), "zstd") as out:
        out.write(data)


COMPRESS = {
    "gz": lambda path, data: path.write_bytes(gzip.compress(data)),
    "bz2": lambda path, data: path.write_bytes(bz2.compress(data)),
    "xz": lambda path, data: path.write_bytes(lzma.compress(data)),
    "zst": _zst,
    "zip": _zip,
}


@pytest.mark.parametrize("kind", COMPRESS)
def test_compressed_files(tmp_path, kind):
    path = tmp_path / f"a.jsonl.{kind}"
    COMPRESS[kind](path, JSONL.encode())
    assert read(path) == PARSED


def test_a_gzip_file_of_several_members_is_one_file(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"n":1}\n{"n"') + gzip.compress(b":2}\n"))
    assert read(path) == [{"n": 1}, {"n": 2}]


def drain(path, **options):
    reader = files(path, **options).open(str(path), START)
    segments = []
    try:
        while not reader.exhausted():
            segments += reader.read(2)
    finally:
        reader.close()
    return segments


@pytest.mark.parametrize("kind", COMPRESS)
@pytest.mark.parametrize("damage", ["truncated", "other bytes"])
def test_a_damaged_compressed_file_is_named(tmp_path, kind, damage):
    path = tmp_path / f"a.jsonl.{kind}"
    COMPRESS[kind](path, b"".join(b'{"n":%d}\n' % (n * n) for n in range(1000)))
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 2 // 3] if damage == "truncated" else b"not it" * 99)
    with pytest.raises(UserError, match=rf"a.jsonl.{kind} is damaged or cut short"):
        drain(path)


def test_a_zip_archive_of_several_files_is_refused(tmp_path):
    path = tmp_path / "a.jsonl.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("one", b"")
        archive.writestr("two", b"")
    with pytest.raises(UserError, match="holds 2 files"):
        drain(path)


BAD = [
    ("a.jsonl", b'{"n":1}\n{"n":\n{"n":3}\n', 1, "not a JSON object", '{"n":'),
    ("a.jsonl", b'{"n":1}\n[2]\n{"n":3}\n', 1, "not a JSON object", "[2]"),
    ("a.jsonl", b'{"n":1}\n{"n":2}{"n":2}\n{"n":3}\n', 1, "not a JSON object", '{"n":2}{"n":2}'),
    ("a.jsonl", b'{"n":1}\n{"n":NaN}\n', 1, "not a JSON object", '{"n":NaN}'),
    ("a.jsonl", b'{"n":1}\n{"n":"\xff"}', 1, "not a JSON object", '{"n":"\ufffd"}'),
    ("a.jsonl", b'{"n":' + b'{"n":' * 3000, 0, "not a JSON object", '{"n":' * 3001),
    ("a.txt", b"one\n\xff\nthree\n", 1, "invalid start byte", "\ufffd"),
    ("a.csv", b"a,b\n1,2\n3\n5,6\n", 1, "1 fields, but there are 2 columns", "3"),
    ("a.csv", b"a,b\n1,2\n3,4,5\n5,6\n", 1, "3 fields, but there are 2 columns", "3,4,5"),
    ("a.csv", b"a,b\n1,2\n\xff,4\n", 1, "invalid start byte", "\ufffd,4"),
    ("a.csv", b'a,b\n1,2\n3,"4\n5,6\n', 1, "never closed", '3,"4\n5,6'),
    ("a.csv", b'a,b\n1,2\n"', 1, "never closed", '"'),
    ("a.csv", b"a,b\n1,2\nx,4\n5,6\n", 1, "column 'a': invalid literal for int", "x,4"),
    ("a.csv", b"a,b\n1,2\n3_0,4\n", 1, "column 'a': invalid int: '3_0'", "3_0,4"),
]


@pytest.mark.parametrize(("name", "data", "position", "reason", "raw"), BAD)
def test_a_bad_record_fails_the_job_or_becomes_a_segment(
    tmp_path, name, data, position, reason, raw
):
    path = write(tmp_path / name, data)
    options = {"recordBytesMax": 100_000}
    if name == "a.csv":
        options["types"] = {"a": "int"}
    with pytest.raises(UserError) as failed:
        drain(path, **options)
    assert f"job 'flights', task 'work': {path}: record {position}" in str(failed.value)
    assert reason in str(failed.value)
    kept = read(path, onBadRecord="segment", **options)
    assert kept[position]["_raw"] == raw[: len(kept[position]["_raw"])]
    assert reason in kept[position]["_error"]
    assert [n for n, each in enumerate(kept) if "_error" in each] == [position]


@pytest.mark.parametrize(
    ("name", "good", "long"),
    [
        ("a.jsonl", '{"n":1}', '{"n":"%s"}'),
        ("a.txt", "short", "%s"),
        ("a.csv", "x,y", "%s,y"),
        ("a.csv", "x,y", '"%s,y'),
    ],
)
@pytest.mark.parametrize("ending", ["\n", ""])
def test_a_record_over_the_limit_is_one_bad_record(tmp_path, name, good, long, ending):
    header = "a,b\n" if name == "a.csv" else ""
    data = header + good + "\n" + long % ("x" * 500) + "\n" + good + ending
    path = write(tmp_path / name, data)
    kept = read(path, recordBytesMax=64, onBadRecord="segment")
    assert [("_error" in each) for each in kept] == [False, True, False]
    assert "longer than recordBytesMax, 64 bytes" in kept[1]["_error"]
    assert kept[0] == kept[2]
    with pytest.raises(UserError, match=r"record 1 .*longer than recordBytesMax"):
        drain(path, recordBytesMax=64)


def test_a_record_of_just_the_limit_is_read(tmp_path):
    for size in (63, 64, 65):
        path = write(tmp_path / "a.txt", "ab\n" + "x" * (size - 1) + "\ncd\n")
        kept = read(path, recordBytesMax=64, onBadRecord="segment")
        assert ("_error" in kept[1]) == (size > 64)


def parquet(path, rows, **options):
    pq.write_table(pa.Table.from_pylist(rows), path, **options)
    return path


def test_parquet_row_groups(tmp_path, monkeypatch):
    monkeypatch.setattr("onyx.plugins.files.parquet_reader.ROWS_AT_A_TIME", 4)
    rows = [{"n": n, "text": None if n % 3 else str(n), "list": [n]} for n in range(25)]
    path = parquet(tmp_path / "a.parquet", rows, row_group_size=7)
    assert read(path) == rows
    assert read(path, recordNumber="row") == [{**row, "row": row["n"]} for row in rows]
    assert read(parquet(tmp_path / "b.parquet", [{"n": 1}][:0])) == []


def test_parquet_values_keep_their_types_and_instants_are_in_utc(tmp_path):
    row = {
        "day": date(2013, 1, 2), "price": Decimal("1.50"), "at": time(1, 2, 3),
        "took": timedelta(5), "when": [date(2013, 1, 3)],
    }  # fmt: skip
    path = parquet(tmp_path / "a.parquet", [row | {"naive": NAIVE, "all": [NAIVE]}])
    (found,) = read(path)
    (within,) = found.pop("all")
    assert repr(found) == repr(row | {"naive": datetime(2013, 1, 2, 3, tzinfo=UTC)})
    assert within == found["naive"]


HUGE = '{"n": 123456789012345678901234567890}'


def test_a_record_that_cannot_travel_is_a_bad_one(tmp_path):
    lines = write(tmp_path / "a.jsonl", f'{{"n": 1}}\n{HUGE}\n')
    with pytest.raises(
        UserError, match=r"record 1 .*key 'n' holds an int beyond 64 bits.*onBadRec"
    ):
        read(lines)
    good, bad = read(lines, onBadRecord="segment")
    assert (good, bad["_raw"]) == ({"n": 1}, HUGE)
    assert "an int beyond 64 bits" in bad["_error"]
    table = write(tmp_path / "a.csv", "n\n18446744073709551616\n")
    (bad,) = read(table, types={"n": "int"}, onBadRecord="segment")
    assert "beyond 64 bits" in bad["_error"]


def test_a_record_of_some_megabytes_is_a_bad_one(tmp_path, monkeypatch):
    monkeypatch.setattr(file_reader, "BLOCK_BYTES", 32_768)
    path = write(tmp_path / "a.jsonl", '{"page": "' + "x" * 3_000_000 + '"}\n{"n": 1}\n')
    bad, good = read(path, onBadRecord="segment")
    assert bad["_error"] == "longer than recordBytesMax, 1048576 bytes"
    assert good == {"n": 1}
    rows = parquet(tmp_path / "a.parquet", [{"page": "x" * 5_000_000}])
    (bad,) = read(rows, onBadRecord="segment")
    assert "the segment takes 5000004 bytes, of which key 'page'" in bad["_error"]


def test_what_is_no_parquet_is_named(tmp_path):
    with pytest.raises(UserError, match=r"a.parquet is damaged"):
        drain(write(tmp_path / "a.parquet", b"no"))


def test_partitions_are_the_files_in_a_stable_order_each_once(tmp_path):
    for name in ("b.csv", "a.csv", "a b.csv", ".hidden.csv", "[1].csv", "c.jsonl"):
        write(tmp_path / name, "")
    (tmp_path / "folder.csv").mkdir()
    pattern = [str(tmp_path / "*.csv"), str(tmp_path / "a.csv"), str(tmp_path / "[1].csv")]
    plugin = build_input("files", plugin_context({"path": pattern}))
    names = [name.removeprefix(f"{tmp_path}/") for name in plugin.partitions()]
    assert names == ["[1].csv", "a b.csv", "a.csv", "b.csv"]


@pytest.mark.parametrize(
    ("path", "options", "why"),
    [
        ("nothing*.csv", {}, "matches no file on this worker; relative paths count from /"),
        ("", {}, "is a directory; write"),
        ("data.bin", {}, "option 'format' is missing"),
        ("data.csv", {"types": {"aa": "int"}}, "lacks; did you mean a?"),
        ("twice.csv", {}, "has the column 'a' twice"),
        ("data.csv", {"types": {"a": "date"}}, "option 'types"),
        ("data.csv", {"delimiter": ";;"}, "must be one character"),
        ("data.csv", {"columns": ["a"]}, "add header: false"),
        ("data.csv", {"header": False}, "needs names"),
        ("open.csv", {}, "does not begin with a record of column names: a quote is opened"),
    ],
)
def test_mistakes_are_told(tmp_path, path, options, why):
    write(tmp_path / "data.csv", "a,b\n1,2\n")
    write(tmp_path / "twice.csv", "a,b,a\n1,2,3\n")
    write(tmp_path / "open.csv", '"a,b\n1,2\n')
    write(tmp_path / "data.bin", "")
    with pytest.raises(UserError) as wrong:
        _first_read(files(tmp_path / path if path else tmp_path, **options))
    assert why in str(wrong.value)


def _first_read(plugin):
    return plugin.open(plugin.partitions()[0], START).read(1)


def test_a_file_that_vanished_is_unavailable_not_empty(tmp_path):
    path = write(tmp_path / "a.jsonl", JSONL)
    plugin = files(path)
    (name,) = plugin.partitions()
    path.unlink()
    with pytest.raises(Unavailable, match=r"a.jsonl cannot be read here: No such file"):
        plugin.open(name, START)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_a_file_that_became_shorter_is_told(tmp_path, name):
    path = tmp_path / name
    data = JSONL.encode()
    path.write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    with pytest.raises(UserError, match="has become shorter than 1000 bytes"):
        files(path).open(str(path), Cursor(9, 1000))


def test_cursors_that_were_passed_are_forgotten(tmp_path):
    path = write(tmp_path / "a.txt", "0123456789\n" * 1000)
    reader = files(path).open(str(path), START)
    while not reader.exhausted():
        read = reader.read(100)
        assert read
    cursor = reader.cursor(990)
    assert 900 < cursor.position <= 990
    assert cursor.state[0] == cursor.position * 11
    assert len(reader._blocks._cursors) < 100
    reader.close()
