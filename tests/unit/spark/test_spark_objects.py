"""Executors and object stores, without either: errors that travel, formats, columns that fit."""

from __future__ import annotations

import gzip
import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.jobs.plugin_context import plugin_context
from tests.support.spark.outputs import output

from onyx.errors import OnyxError, Unavailable, UserError
from onyx.spark.objects.forms import wrong_form
from onyx.spark.objects.messages import (
    CarriedError,
    Staged,
    carried,
    carried_in,
    read_list,
    write_list,
)
from onyx.spark.objects.reading import _with_columns, fetch_rows
from onyx.spark.objects.writing import body, suffix

STAGE = "tests.support.jobs.job_functions:spark_total"


def shown_by_spark(error: Exception) -> Exception:
    return RuntimeError(
        f"Job aborted ...\n  File worker.py\nCarriedError: {error}\n\tat org.apache"
    )


@pytest.mark.parametrize(
    ("raised", "kind"),
    [(UserError("s3://b/k is gone"), UserError), (Unavailable("no"), Unavailable)],
)
def test_an_error_of_an_executor_comes_out_of_what_spark_says(
    raised: OnyxError, kind: type[OnyxError]
) -> None:
    with pytest.raises(CarriedError) as caught, carried():
        raise raised
    found = carried_in(shown_by_spark(caught.value))
    assert type(found) is kind
    assert str(found) == f"in an executor of Spark: {raised}"


def test_errors_of_others_are_left_alone() -> None:
    with pytest.raises(ZeroDivisionError), carried():
        _ = 1 // 0
    assert carried_in(shown_by_spark(ValueError("boom"))) is None


def test_an_executor_without_credentials_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", "/nowhere")
    schema = pa.schema([("n", pa.int64())])
    batch = pa.record_batch({"id": pa.array([0])})
    with pytest.raises(CarriedError) as caught:
        list(fetch_rows(schema.serialize().to_pybytes(), ["s3://bucket/part.parquet"], 9, [batch]))
    found = carried_in(caught.value)
    assert isinstance(found, UserError)
    assert "s3://bucket/part.parquet" in str(found)
    assert "set AWS_ACCESS_KEY_ID" in str(found)


@pytest.mark.parametrize(
    ("form", "options", "problem"),
    [
        ("parquet", {"compression": "ZSTD"}, None),
        ("csv", {"header": True, "sep": ";", "compression": "gzip"}, None),
        ("json", {"dateFormat": "yyyy"}, None),
        ("orc", {}, None),
        ("xml", {}, "write.format is 'xml', which Spark's executors cannot write to an object"),
        ("avro", {}, "write.format is 'avro', which"),
        (
            "parquet",
            {"compression": "lzo"},
            "write.options.compression is 'lzo'; for parquet in an",
        ),
        ("parquet", {"maxRecordsPerFile": 1}, "write.options.maxRecordsPerFile has no effect on"),
        ("json", {"lineSep": "|"}, "write.options.lineSep has no effect on json"),
        ("text", {"header": True}, "write.options.header has no effect on text"),
    ],
)
def test_what_executors_cannot_write_to_an_object_store_is_refused_by_its_key(
    form: str, options: dict[str, Any], problem: str | None
) -> None:
    found = [f"{each.path} {each.message}" for each in wrong_form(form, options)]
    assert [each[: len(problem or "")] for each in found] == ([problem] if problem else [])


def test_the_output_refuses_such_a_format_at_a_url_and_not_in_a_folder(tmp_path: Any) -> None:
    def made(path: str) -> None:
        given = {"path": path, "stage": STAGE, "write": {"format": "xml"}}
        output(plugin_context(given, functions={STAGE: lambda frame: frame}))

    made(str(tmp_path))
    with pytest.raises(UserError, match=r"option .write\.format. is .xml., which"):
        made("s3://bucket/out")


def test_columns_that_an_object_lacks_are_null_and_others_are_left_out() -> None:
    wanted = pa.schema([("n", pa.float64()), ("text", pa.string())])
    batch = pa.record_batch({"other": [True], "n": pa.array([1], pa.int64())})
    assert _with_columns(batch, wanted).to_pylist() == [{"n": 1.0, "text": None}]


def test_times_finer_than_those_of_spark_are_cut_off() -> None:
    wanted = pa.schema([("at", pa.timestamp("us", "UTC"))])
    batch = pa.record_batch({"at": pa.array([1_001], pa.timestamp("ns", "UTC"))})
    assert _with_columns(batch, wanted).column("at").cast(pa.int64()).to_pylist() == [1]


def test_batches_are_gathered_into_one_group_of_rows() -> None:
    file = io.BytesIO()
    made = body(file, "parquet", "zstd", "")
    for n in range(50):
        made.add(pa.record_batch({"n": [n]}))
    made.finish()
    file.seek(0)
    found = pq.ParquetFile(file)
    assert (found.num_row_groups, found.metadata.num_rows) == (1, 50)


def test_lines_may_be_packed() -> None:
    file = io.BytesIO()
    made = body(file, "csv", "gzip", "n;m")
    made.add(pa.record_batch({"value": ["1;2", None]}))
    made.finish()
    assert gzip.decompress(file.getvalue()) == b"n;m\n1;2\n\n"
    assert (suffix("csv", "gzip"), suffix("text", "none")) == (".csv.gz", ".txt")


def test_a_run_that_has_not_said_what_it_wrote_is_run_again(tmp_path: Any) -> None:
    staged = (Staged("part-1.parquet", 3, 400, "upload-1", ("a", "b")),)
    write_list(tmp_path / "list", staged)
    assert read_list(tmp_path / "list") == staged
    with pytest.raises(Unavailable, match="has not said what it has written"):
        read_list(tmp_path / "other")
