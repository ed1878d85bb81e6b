"""Objects as input: every format and compression as from a disk, and what only a store does."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
from contextlib import closing
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.jobs.plugin_context import plugin_context
from tests.support.servers.object_stores import ObjectStore

from onyx.errors import Unavailable, UserError
from onyx.plugins.files import text_reader as file_reader
from onyx.plugins.protocol import START, Input
from onyx.plugins.registry import build_input
from onyx.storage.objects import reader as object_reader
from onyx.testing.plugin_kit import check_input

ROWS = [{"n": n, "name": f"row {n}"} for n in range(30)]
JSONL = "".join(f'{{"n":{row["n"]},"name":"{row["name"]}"}}\n' for row in ROWS).encode()


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records straddle blocks, and blocks ranges, all the time."""
    monkeypatch.setattr(file_reader, "BLOCK_BYTES", 64)
    monkeypatch.setattr(object_reader, "FIRST_BLOCK_BYTES", 100)
    monkeypatch.setattr(object_reader, "BLOCK_BYTES_MIN", 128)
    monkeypatch.setattr(object_reader, "BLOCK_BYTES_MAX", 400)


def files(path: str | list[str], **options: Any) -> Input:
    return build_input("files", plugin_context({"path": path, **options}))


def parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(ROWS), sink, row_group_size=7)
    return sink.getvalue()


def zipped(data: bytes) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inner.jsonl", data)
    return sink.getvalue()


def zstd(data: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(data))


CONTENTS = {
    "a.jsonl": JSONL,
    "a.jsonl.gz": gzip.compress(JSONL),
    "a.jsonl.bz2": bz2.compress(JSONL),
    "a.jsonl.xz": lzma.compress(JSONL),
    "a.jsonl.zip": zipped(JSONL),
    "a.jsonl.zst": zstd(JSONL),
    "a.csv": b"n,name\n" + b"".join(f"{row['n']},{row['name']}\n".encode() for row in ROWS),
    "a.parquet": parquet(),
}


@pytest.mark.short(6)
@pytest.mark.parametrize("name", CONTENTS)
def test_every_format_reads_as_from_a_disk(store: ObjectStore, name: str) -> None:
    url = store.put(f"in/{name}", CONTENTS[name])
    options = {"types": {"n": "int"}} if name.endswith(".csv") else {}
    check_input(lambda: files(url, **options), {url: ROWS})


@pytest.mark.parametrize("form", ["dicts", "arrow"])
@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.parquet"])
def test_folders_of_a_bucket_are_keys(store: ObjectStore, name: str, form: str) -> None:
    """With names that a store escapes in its own way, and a folder that holds nothing."""
    for folder in ("year=2024/city=S%C3%A3o%20Paulo", "year=2025/city=__HIVE_DEFAULT_PARTITION__"):
        store.put(f"sales/{folder}/{name}", CONTENTS[name])
    store.put("sales/year=2026/", "")
    options = {"path": f"{store.url}/sales/**/{name}", "types": {"year": "int"}}
    plugin = build_input("files", plugin_context(options, batch_format=form))
    found: list[tuple[Any, Any]] = []
    for partition in plugin.partitions():
        with closing(plugin.open(partition, START)) as reader:
            while not reader.exhausted():
                if form == "dicts":
                    found += [(each["year"], each["city"]) for each in reader.read(7)]
                    continue
                part = reader.read_columns(7)  # type: ignore[attr-defined]
                rows = part if isinstance(part, list) else part.to_pylist()
                found += [(each["year"], each["city"]) for each in rows]
    assert found == [(2024, "São Paulo")] * 30 + [(2025, None)] * 30


def test_partitions_are_the_objects_that_a_pattern_chooses_in_a_stable_order(
    store: ObjectStore,
) -> None:
    for key in ("in/b.jsonl", "in/a.jsonl", "in/deep/c.jsonl", "in/deep/", "in/.staging/g1/x.jsonl",
                "in/[1].jsonl", "inner.jsonl"):  # fmt: skip
        store.put(key, "" if key.endswith("/") else "{}\n")
    at = f"{store.url}/in"
    assert files(f"{at}/*.jsonl").partitions() == [
        f"{at}/[1].jsonl",
        f"{at}/a.jsonl",
        f"{at}/b.jsonl",
    ]
    assert files([f"{at}/**/*.jsonl", f"{at}/a.jsonl"]).partitions() == sorted(
        f"{at}/{name}" for name in ("[1].jsonl", "a.jsonl", "b.jsonl", "deep/c.jsonl")
    )
    assert files(f"{at}/[1].jsonl").partitions() == [f"{at}/[1].jsonl"]


def test_an_object_store_does_not_hold_up_the_thread_of_the_others(store: ObjectStore) -> None:
    assert not files(f"{store.url}/*.jsonl").cooperative
    assert files("/tmp/*.jsonl").cooperative


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("{url}/empty/*", "option 'path' 's3://.*/empty/\\*' matches no file$"),
        ("{url}/in", "option 'path': 's3://.*/in' is a directory; write s3://.*/in/\\* for its"),
        ("{url}", "option 'path': 's3://[^/]*' is a directory; write s3://[^/]*/\\* for its files"),
        ("{url}-no/*", "option 'path': s3://.*-no/: there is no such bucket"),
        ("s3://k:topsecret@bucket/*", "option 'path' is a s3:// URL with credentials in it"),
        ("az://bucket/*", r'option .path. is "az://bucket/\*", but there are only paths and URLs'),
    ],
)
def test_a_path_that_leads_nowhere_is_told(store: ObjectStore, path: str, why: str) -> None:
    store.put("in/a.jsonl", JSONL)
    with pytest.raises(UserError, match=f"job 'flights', task 'work': {why}") as caught:
        files(path.format(url=store.url)).partitions()
    assert "topsecret" not in str(caught.value)


def test_denied_access_is_told(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody-else")
    with pytest.raises(
        UserError, match=r"'flights', task 'work': option 'path': .*access is denied"
    ):
        files(f"{store.url}/*").partitions()


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.csv", "a.parquet"])
def test_an_object_that_changed_between_two_readings_is_noticed(
    store: ObjectStore, name: str
) -> None:
    """[read, CRASH, changed, read again elsewhere]"""
    url = store.put(name, CONTENTS[name])
    first = files(url)
    reader = first.open(url, START)
    reader.read(20)
    cursor = reader.cursor(20)
    reader.close()
    store.put(name, CONTENTS[name] + b" ")
    with pytest.raises(UserError, match=f"{url} has changed while a job was reading it"):
        files(url).open(url, cursor).read(10)
    with pytest.raises(UserError, match=f"{url} has changed while a job was reading it"):
        first.open(url, START).read(10)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.csv", "a.parquet"])
def test_a_store_that_is_away_in_the_middle_is_read_on_from_there(
    fake_store: ObjectStore, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    url = fake_store.put(name, CONTENTS[name])
    source = files(url, **({"types": {"n": "int"}} if name == "a.csv" else {}))
    faults = fake_store.server.store.faults  # type: ignore[union-attr]
    reader = source.open(url, START)
    read: list[Any] = []
    failures = 0
    while not reader.exhausted():
        faults.extend([("GET", "refuse")] * 20)
        try:
            read += reader.read(4)
            continue
        except Unavailable:
            failures += 1
        faults.clear()
        read += reader.read(4)
    faults.clear()
    reader.close()
    assert read == ROWS
    assert failures > 0
