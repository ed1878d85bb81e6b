"""What somebody has cut short, or put something else in the place of: whatever is read of a folder
or a bucket is an error that names it and says what to do, and never a bare one of a decoder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from tests.support.jobs.plugin_context import plugin_context

from onyx.base.seams import SystemClock
from onyx.errors import StateError
from onyx.history.archive import decode_file, encode_file
from onyx.ids import JobId, Position
from onyx.journal.held_requests import HeldBatch, HeldName
from onyx.journal.logs import ChunkPlace, PartitionFolder, decode_chunk, decode_summary
from onyx.log.interface import Origin
from onyx.requests.request import BatchOfWrite, Form, Payload
from onyx.settings import Settings, StateSettings
from onyx.spark.input.plugin import FrameSnapshot
from onyx.spark.middle.bundles import Bundles
from onyx.spark.result_files import remove_left
from onyx.spark.stage import versions
from onyx.spark.stage.direct import DirectWrite, WriteNotes
from onyx.spark.stage.output import _manifest, is_result_of
from onyx.spark.target import opened
from onyx.spark.windows.spool import LIST, Spool
from onyx.spark_source.outputs import document
from onyx.state.buckets import read_bucket
from onyx.state.names import LogKey, TaskFolder, bucket_chunk
from onyx.state.recovery import recover
from onyx.storage.interface import Location
from onyx.storage.objects.bucket import ObjectBytes

JOB = JobId("job-1")
CUT = [b"", b"{", b'{"number": 1, "par', b"ONYX", b"PAR1\x00"]
FOREIGN = [b'{"foreign": {"shape": [1]}}', b"[7]", b"null", b'{"job": "\xff"}', b"[" * 5_000]
FOLDER = PartitionFolder(JOB, "in", 0)


def snapshot(location: Location, data: bytes) -> None:
    location.create("job-1.work/_onyx.json", data)
    context = replace(plugin_context({}), job=JOB)
    assert FrameSnapshot(location, context).folder


def bundle(location: Location, data: bytes) -> None:
    location.create("bundles/00000001.json", data)
    Bundles(location, SystemClock()).bundle(1)


def result(location: Location, data: bytes) -> None:
    location.create("results/00000001/_onyx.json", data)
    Bundles(location, SystemClock()).result(1)


def earlier_versions(location: Location, data: bytes) -> None:
    location.create("parts/job-1/_onyx.json", data)
    versions.whose(versions.Notes(location), JOB)


def direct_write(location: Location, data: bytes) -> None:
    location.create("writes/job-1.json", data)
    DirectWrite(JOB, WriteNotes(location, JOB), lambda: None).is_done()


def files_of_a_window(location: Location, data: bytes) -> None:
    location.create(f"job-1/windows.spark/sum/r-1/{LIST}", data)
    Spool(location / "job-1/windows.spark/sum").files("r-1")


def rows_of_a_window(location: Location, data: bytes) -> None:
    location.create("job-1/windows.spark/sum/p-1.parquet", data)
    with opened(location / "job-1/windows.spark/sum", "p-1.parquet"):
        pass


def chunk_of_state(location: Location, data: bytes) -> None:
    name = TaskFolder(JOB, "sum").chunk(LogKey(1, 0), 0)
    location.create(name, data)
    recover(location, JOB, "sum", 2, 0, [0], StateSettings())


def chunk_of_a_bucket(location: Location, data: bytes) -> None:
    location.create(bucket_chunk(JOB, "sum", "1-0-abc"), data)
    read_bucket(location, TaskFolder(JOB, "sum"), "1-0-abc", [0])


def journal(location: Location, data: bytes) -> None:
    decode_chunk(FOLDER, ChunkPlace(1, 0), data)


def summary_of_a_journal(location: Location, data: bytes) -> None:
    decode_summary(FOLDER.mark(1, 0), data)


def held_request(location: Location, data: bytes) -> None:
    held, name = HeldBatch(location, [JOB], "in", BatchOfWrite("w", 1)), HeldName("writer", 0)
    held.hold(name, Payload(next(iter(Form)), b"[]"))
    (stored,) = location.list("")
    location.delete(stored.name)
    location.create(stored.name, data)
    held.read(name)


def committed_batch(location: Location, data: bytes) -> None:
    held = HeldBatch(location, [JOB], "in", BatchOfWrite("w", 1))
    held.commit([], 0)
    (stored,) = location.list("")
    location.delete(stored.name)
    location.create(stored.name, data)
    held.commit([], 0)


def archive(location: Location, data: bytes) -> None:
    decode_file("tenancy/job-1-to-9", data)


NAMED: dict[str, Callable[[Location, bytes], None]] = {
    "job-1.work/_onyx.json": snapshot,
    "bundles/00000001.json": bundle,
    "results/00000001/_onyx.json": result,
    "parts/job-1/_onyx.json": earlier_versions,
    "writes/job-1.json": direct_write,
    f"job-1/windows.spark/sum/r-1/{LIST}": files_of_a_window,
    "job-1/windows.spark/sum/p-1.parquet": rows_of_a_window,
    "job 'job-1', task 'sum'": chunk_of_state,
    "buckets.spark/sum/1-0-abc|chunk of state|format": chunk_of_a_bucket,
    "job-1/": journal,
    "job-1/.*": summary_of_a_journal,
    "file job-1/.*writer/0": held_request,
    "file job-1/.*committed": committed_batch,
    "tenancy/job-1-to-9": archive,
}
REMEDY = "restore|submit|put it back|remove them|initialize"


@pytest.mark.short(100)
@pytest.mark.parametrize("data", [*CUT, *FOREIGN])
@pytest.mark.parametrize("named", NAMED)
def test_what_is_damaged_is_an_error_that_names_it_and_what_to_do(
    location: Location, named: str, data: bytes
) -> None:
    with pytest.raises(StateError, match=f"(?s)({named}).*({REMEDY})"):
        NAMED[named](location, data)


def test_the_rows_of_a_file_that_lost_its_middle_are_an_error_that_names_it(
    location: Location, tmp_path: Path
) -> None:
    pq.write_table(pa.table({"n": list(range(10_000))}), tmp_path / "whole", compression="none")
    data = (tmp_path / "whole").read_bytes()
    location.create("p-1.parquet", data[:4] + bytes(len(data) // 2) + data[4 + len(data) // 2 :])
    with (
        pytest.raises(StateError, match=f"(?s)p-1.parquet is damaged.*({REMEDY})"),
        opened(location, "p-1.parquet") as file,
    ):
        list(file.iter_batches())


def test_an_archive_file_that_is_cut_short_or_has_a_wrong_byte_is_an_error_that_names_it() -> None:
    whole = encode_file(Origin(Position(-1), b""), [])
    header = 10  # of gzip, in which not every byte means something
    for at in range(header, len(whole)):
        for data in (whole[:at], whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :]):
            with pytest.raises(StateError, match="name in the archive of the log is damaged"):
                decode_file("name", data)


@pytest.mark.parametrize("data", [*CUT, *FOREIGN])
def test_what_is_no_result_is_replaced(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "_onyx.json").write_bytes(data)
    assert not is_result_of(tmp_path, JOB)
    assert _manifest(ObjectBytes(data, len(data), "1")) is None


@pytest.mark.parametrize("data", CUT)
def test_files_stay_that_a_damaged_snapshot_may_need(location: Location, data: bytes) -> None:
    location.create("old.work/run/part.parquet", b"")
    location.create("new.work/_onyx.json", data)
    settings = Settings(data_dir="/")
    assert not remove_left(str(location), "old.work", settings)
    location.delete("new.work/_onyx.json")
    location.create("new.work/_onyx.json", b'{"snapshot": "new.work"}')
    assert remove_left(str(location), "old.work", settings)


@pytest.mark.parametrize("data", CUT)
def test_a_document_of_an_output_is_named(location: Location, data: bytes) -> None:
    location.create("_onyx.json", data)
    with pytest.raises(StateError, match=r"_onyx\.json is damaged"):
        document(str(location), "_onyx.json")
