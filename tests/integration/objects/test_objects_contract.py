"""What Onyx relies on in an object store, of the server of our tests and of a real one alike."""

from __future__ import annotations

import base64
import hashlib
import itertools
import random
import socket
from urllib.parse import urlsplit

import pytest
from tests.support.servers.object_stores import ObjectStore

from onyx.errors import Unavailable, UserError
from onyx.storage.objects import reader, writer
from onyx.storage.objects.bucket import Bucket, only_if
from onyx.storage.objects.connection import ConditionFailed, ObjectMissing, RangeMissing
from onyx.storage.objects.reader import Allowance, ObjectFile
from onyx.storage.objects.urls import parse_url
from onyx.storage.objects.writer import ObjectWriter


def test_objects_are_written_read_listed_and_removed(store: ObjectStore) -> None:
    bucket = store.bucket
    names = [f"a/{n}" for n in range(8)] + ["a/ü &<%20+.csv", "b"]
    for name in names:
        bucket.put(name, name.encode())
    assert store.keys("a/") == sorted(names[:-1])
    assert [store.get(name) for name in names] == [name.encode() for name in names]
    bucket.delete("b")
    bucket.delete("b")
    assert bucket.get("b") is None
    assert bucket.look("b") is None


def test_a_write_under_a_condition_happens_once(store: ObjectStore) -> None:
    bucket = store.bucket
    bucket.put("x", b"first", only_if(None))
    with pytest.raises(ConditionFailed):
        bucket.put("x", b"second", only_if(None))
    found = bucket.get("x")
    bucket.put("x", b"third", only_if(found))
    with pytest.raises(ConditionFailed):
        bucket.put("x", b"fourth", only_if(found))
    assert store.get("x") == b"third"
    with pytest.raises(ObjectMissing):
        bucket.put("y", b"", only_if(found))


def test_ranges_are_of_one_version(store: ObjectStore) -> None:
    bucket = store.bucket
    bucket.put("x", b"0123456789")
    piece = bucket.read("x", 8, 100, None)
    assert (piece.data, piece.size_bytes) == (b"89", 10)
    assert bucket.read("x", 2, 3, piece.version).data == b"234"
    with pytest.raises(RangeMissing):
        bucket.read("x", 10, 1, None)
    bucket.put("x", b"other bytes")
    with pytest.raises(ConditionFailed):
        bucket.read("x", 2, 3, piece.version)
    bucket.delete("x")
    with pytest.raises(ObjectMissing):
        bucket.read("x", 2, 3, None)


def test_an_upload_is_visible_when_it_is_completed_and_not_before(store: ObjectStore) -> None:
    bucket = store.bucket
    upload = bucket.start_upload("x")
    tag = bucket.upload("x", upload, 1, b"data")
    assert store.keys() == []
    bucket.complete_upload("x", upload, [tag])
    assert store.get("x") == b"data"
    bucket.abort_upload("x", upload)
    assert store.get("x") == b"data"


def test_an_upload_that_was_aborted_can_never_be_completed(store: ObjectStore) -> None:
    bucket = store.bucket
    upload = bucket.start_upload("x")
    tag = bucket.upload("x", upload, 1, b"data")
    bucket.abort_upload("x", upload)
    bucket.abort_upload("x", upload)
    with pytest.raises(ObjectMissing):
        bucket.complete_upload("x", upload, [tag])
    with pytest.raises(ObjectMissing):
        bucket.upload("x", upload, 2, b"more")
    assert store.keys() == []


UNSIGNED = {"x-amz-content-sha256": "UNSIGNED-PAYLOAD"}
STREAMED = {
    "x-amz-content-sha256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
    "Content-Encoding": "aws-chunked",
    "x-amz-decoded-content-length": "4",
}
CHUNKS = b"4\r\ndata\r\n0\r\n\r\n"
MD5 = base64.b64encode(hashlib.md5(b"data", usedforsecurity=False).digest()).decode()


@pytest.mark.parametrize("sent", [b"", b"da"])
def test_what_a_dead_client_has_cut_short_is_never_stored(store: ObjectStore, sent: bytes) -> None:
    store.put("x", "before")
    put(store, {**UNSIGNED, "Content-Length": "4"}, sent)
    assert store.get("x") == b"before"
    put(store, {**UNSIGNED, "Content-Length": "4"}, b"data")
    assert store.get("x") == b"data"


def test_a_body_is_refused_that_is_not_what_its_client_has_summed_up(store: ObjectStore) -> None:
    for wrong in (
        {**UNSIGNED, "Content-MD5": MD5},
        {**UNSIGNED, "x-amz-checksum-crc32": "rfPz8w=="},
        {"x-amz-content-sha256": hashlib.sha256(b"data").hexdigest()},
    ):
        assert put(store, {**wrong, "Content-Length": "4"}, b"dada").startswith("HTTP/1.1 400 ")
    assert store.keys() == []
    assert put(store, {**UNSIGNED, "Content-MD5": MD5, "Content-Length": "4"}, b"data").startswith(
        "HTTP/1.1 200 "
    )


@pytest.mark.parametrize(
    "headers",
    [
        {"Transfer-Encoding": "chunked", **UNSIGNED},
        {"Content-Length": str(len(CHUNKS)), **STREAMED},
    ],
)
def test_the_server_of_tests_stores_chunks_when_the_last_one_has_come(
    fake_store: ObjectStore, headers: dict[str, str]
) -> None:
    for end in range(len(CHUNKS)):
        assert " 400 " in put(fake_store, headers, CHUNKS[:end])
    assert fake_store.keys() == []
    assert " 200 " in put(fake_store, headers, CHUNKS)
    assert fake_store.get("x") == b"data"


def test_the_server_of_tests_stores_nothing_of_a_length_that_it_was_not_given(
    fake_store: ObjectStore,
) -> None:
    """Its client has died in the middle of the headers."""
    assert " 411 " in put(fake_store, UNSIGNED, b"")
    assert fake_store.keys() == []


def put(store: ObjectStore, headers: dict[str, str], sent: bytes) -> str:
    """Write the object `x` by hand, and end the connection for writing; the answer."""
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    known = store.environment
    url = f"{known['AWS_ENDPOINT_URL']}/{store.name}/x"
    request = AWSRequest("PUT", url, headers={"Host": urlsplit(url).netloc, **headers})
    keys = Credentials(known["AWS_ACCESS_KEY_ID"], known["AWS_SECRET_ACCESS_KEY"])
    SigV4Auth(keys, "s3", known["AWS_REGION"]).add_auth(request)
    place = urlsplit(url)
    with socket.create_connection((place.hostname, place.port), 60.0) as connection:
        lines = [f"PUT {place.path} HTTP/1.1", *(f"{n}: {v}" for n, v in request.headers.items())]
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + sent)
        connection.shutdown(socket.SHUT_WR)
        answer = connection.makefile("rb").read()
    return answer.decode("latin-1")


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"AWS_ACCESS_KEY_ID": "somebody-else"}, "access is denied"),
        ({"AWS_ACCESS_KEY_ID": None, "AWS_EC2_METADATA_DISABLED": "true"}, "no credentials"),
    ],
)
def test_who_may_not_is_told_what_to_give(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, changed: dict[str, str | None], why: str
) -> None:
    environment = {**store.environment, **changed}
    for name, value in environment.items():
        if value is None:
            monkeypatch.delenv(name)
        else:
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    with pytest.raises(UserError, match=why) as caught:
        Bucket(store.name).get("x")
    assert "AWS_ACCESS_KEY_ID" in str(caught.value)
    assert store.environment["AWS_SECRET_ACCESS_KEY"] not in str(caught.value)


def test_a_missing_bucket_is_told(store: ObjectStore) -> None:
    missing = Bucket(f"{store.name}-2")
    for attempt in (
        lambda: list(missing.list("")),
        lambda: missing.put("x", b""),
        lambda: missing.start_upload("x"),
        lambda: missing.get("x"),
    ):
        with pytest.raises(UserError, match=f"s3://{store.name}-2/.*no such bucket"):
            attempt()


def test_a_store_that_is_not_there_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onyx.storage.objects.connection.ATTEMPTS_MAX", 1)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(Unavailable, match="s3://bucket/x: the object store cannot be reached"):
        Bucket("bucket").get("x")


@pytest.mark.parametrize("ahead", [True, False])
def test_a_file_over_an_object_reads_as_one_on_disk(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, ahead: bool
) -> None:
    monkeypatch.setattr(reader, "FIRST_BLOCK_BYTES", 8)
    monkeypatch.setattr(reader, "BLOCK_BYTES_MIN", 16)
    monkeypatch.setattr(reader, "BLOCK_BYTES_MAX", 32)
    chance = random.Random(7)
    data = chance.randbytes(300)
    url = parse_url(store.put("x", data))
    with ObjectFile(store.bucket, url, {}, Allowance() if ahead else None) as file:
        for _ in range(60):
            at, size = chance.randrange(320), chance.randrange(50)
            assert file.seek(at) == at
            assert file.read(size) == data[at : at + size]
            assert file.tell() == min(at + size, max(at, len(data)))
        file.seek(-10, 2)
        assert file.read() == data[-10:]
        assert file.read(1) == b""
    with ObjectFile(store.bucket, parse_url(store.put("empty", b"")), {}) as file:
        assert file.read(10) == b""


def test_many_open_objects_share_one_allowance() -> None:
    allowance = Allowance()
    shares = []
    for count in (1, 16, 10_000):
        allowance.open = count
        shares.append(allowance.block_bytes())
    assert shares == [reader.BLOCK_BYTES_MAX, reader.AHEAD_BYTES_MAX // 16, reader.BLOCK_BYTES_MIN]


def test_a_read_in_order_takes_few_requests(fake_store: ObjectStore) -> None:
    requests = fake_store.server.store.requests  # type: ignore[union-attr]
    url = parse_url(fake_store.put("x", bytes(3_000_000)))
    requests.clear()
    with ObjectFile(fake_store.bucket, url, {}, Allowance()) as file:
        total = sum(len(piece) for piece in iter(lambda: file.read(32_768), b""))
    assert total == 3_000_000
    assert len(requests) <= 6


@pytest.mark.parametrize("change", ["other bytes", None])
def test_an_object_that_changes_while_it_is_read_is_noticed(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, change: str | None
) -> None:
    monkeypatch.setattr(reader, "FIRST_BLOCK_BYTES", 4)
    url = parse_url(store.put("x", "0123456789"))
    versions: dict[str, str] = {}
    with ObjectFile(store.bucket, url, versions, Allowance()) as file:
        assert file.read(2) == b"01"
        if change is None:
            store.bucket.delete("x")
        else:
            store.put("x", change)
        with pytest.raises(UserError, match="while a job was reading it"):
            file.read(8)
    with (
        ObjectFile(store.bucket, url, versions) as again,
        pytest.raises(UserError, match="while a job was reading it"),
    ):
        again.seek(0, 2)


def test_a_large_object_goes_in_pieces_and_little_stays_in_memory(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    piece = 5 * 1024 * 1024
    monkeypatch.setattr(writer, "PIECE_BYTES", piece)
    ids: list[str] = []
    file = ObjectWriter(store.bucket, "x", ids.append)
    block = bytes(range(256)) * 4096
    for _ in range(12):
        file.write(block)
        assert len(file._waiting) < piece
    file.settle()
    file.settle()
    assert (len(ids), store.keys()) == (1, [])
    file.complete()
    file.complete()
    assert store.get("x") == block * 12


@pytest.mark.parametrize("fault", ["refuse", "lose"])
def test_what_a_store_does_not_take_at_once_is_sent_again(
    fake_store: ObjectStore, fault: str
) -> None:
    faults = fake_store.server.store.faults  # type: ignore[union-attr]
    for request in ("uploads", "partNumber=1", "POST.*uploadId"):
        faults.append((request, fault))
    file = ObjectWriter(fake_store.bucket, "x", lambda upload: None)
    file.write(b"data")
    file.settle()
    file.complete()
    assert fake_store.get("x") == b"data"
    assert faults == []


def test_a_store_that_is_away_for_long_loses_nothing(
    fake_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onyx.storage.objects.writer.PIECE_BYTES", 5 * 1024 * 1024)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    file = ObjectWriter(fake_store.bucket, "x", lambda upload: None)
    store = fake_store.server.store  # type: ignore[union-attr]
    store.faults.extend(itertools.repeat(("uploads|partNumber", "refuse"), 100))
    data = bytes(6 * 1024 * 1024)
    assert file.write(data) == len(data)
    tried = len(store.requests)
    assert file.write(data) == len(data)
    assert len(store.requests) == tried, "a writer that fails is not tried at every write"
    with pytest.raises(Unavailable):
        file.make_room()
    store.faults.clear()
    file.make_room()
    file.settle()
    file.complete()
    assert fake_store.get("x") == data * 2
