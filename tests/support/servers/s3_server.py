"""A small S3 server in this process: enough of the protocol for Onyx, and faults on demand.

It is kept honest by the contract tests, which run against a real server too (`make objects`). It
checks whose key signs a request, not the signature, and that the body is whole: what a client that
died has cut short is never stored. A library's fake (moto) was rejected: where a real server says
that an upload is gone, on which fences rely, it fails with an internal error.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import itertools
import re
import threading
import xml.etree.ElementTree as ElementTree
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import BinaryIO
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

ACCESS_KEY = "fake-access-key"
SECRET_KEY = "fake-secret-key"
PAGE_KEYS_MAX = 3
"""Small, so that listings have pages."""
MODIFIED = "Thu, 01 Jan 1970 00:15:00 GMT"
"""When every object was written: the server has no clock."""
PIECE_BYTES_MIN = 5 * 1024 * 1024
LINE_BYTES_MAX = 65_536
_SUMS: dict[str, Callable[[bytes], bytes]] = {
    "content-md5": lambda data: hashlib.md5(data, usedforsecurity=False).digest(),
    "x-amz-checksum-crc32": lambda data: zlib.crc32(data).to_bytes(4, "big"),
    "x-amz-checksum-sha1": lambda data: hashlib.sha1(data, usedforsecurity=False).digest(),
    "x-amz-checksum-sha256": lambda data: hashlib.sha256(data).digest(),
}
_OTHER_SUMS = re.compile(r"x-amz-checksum-(crc32c|crc64nvme)")


class Refused(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status = status
        self.code = code


@dataclass
class Upload:
    key: str
    pieces: dict[int, bytes] = field(default_factory=dict)


@dataclass
class Store:
    """What the server keeps, and what it has been asked."""

    buckets: dict[str, dict[str, tuple[bytes, str]]] = field(default_factory=dict)
    uploads: dict[str, Upload] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    """`METHOD path?query` of each."""
    faults: list[tuple[str, str]] = field(default_factory=list)
    """Expression over a request, and what becomes of the next one it matches: `refuse` it with a
    503, or `lose` the answer of what was done."""
    before: Callable[[str], None] = lambda request: None
    """Called before anything is done, with no lock held."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    numbers: itertools.count[int] = field(default_factory=itertools.count)


class S3Server:
    """A running server."""

    def __init__(self) -> None:
        self.store = Store()
        handler = type("Handler", (_Handler,), {"store": self.store})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.environment = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._server.server_address[1]}",
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": "eu-central-1",
        }

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    store: Store

    def do_GET(self) -> None:
        self._serve()

    def handle_expect_100(self) -> bool:
        reported = super().handle_expect_100()
        self.wfile.flush()
        return reported

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    def _serve(self) -> None:
        split = urlsplit(self.path)
        bucket, _, key = unquote(split.path).lstrip("/").partition("/")
        query = {name: each[0] for name, each in parse_qs(split.query, True).items()}
        try:
            body = self._body()
        except Refused as error:
            self.close_connection = True
            with contextlib.suppress(ConnectionError):  # it may be dead
                self._reply(error.status, {}, _reported(error))
            return
        request = f"{self.command} {unquote(self.path)}"
        fault = self._fault(request)
        try:
            if fault == "refuse":
                raise Refused(503, "SlowDown")
            if f"Credential={ACCESS_KEY}/" not in self.headers.get("Authorization", ""):
                raise Refused(403, "InvalidAccessKeyId")
            with self.store.lock:
                status, headers, data = self._answer(bucket, key, query, body)
        except Refused as error:
            status, headers, data = error.status, {}, _reported(error)
        if fault == "lose":
            self.close_connection = True
            return
        self._reply(status, headers, data)

    def _body(self) -> bytes:
        """The body, whole, and as its client has summed it up."""
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            data, _ = _of_chunks(self.rfile)
        elif self.command in ("PUT", "POST") and "Content-Length" not in self.headers:
            raise Refused(411, "MissingContentLength")  # or a client has died before it was sent
        else:
            data = _exactly(self.rfile, int(self.headers.get("Content-Length", "0")))
        headers = {name.lower(): value for name, value in self.headers.items()}
        declared = headers.get("x-amz-content-sha256", "")
        if declared.startswith("STREAMING-"):  # the encoding `aws-chunked`
            data, trailers = _of_chunks(BytesIO(data))
            headers |= trailers
            if len(data) != int(headers.get("x-amz-decoded-content-length", len(data))):
                raise Refused(400, "IncompleteBody")
        elif declared not in ("", "UNSIGNED-PAYLOAD", hashlib.sha256(data).hexdigest()):
            raise Refused(400, "XAmzContentSHA256Mismatch")
        _check_sums(data, headers)
        return data

    def _fault(self, request: str) -> str:
        self.store.before(request)
        with self.store.lock:
            self.store.requests.append(request)
            for number, (pattern, fault) in enumerate(self.store.faults):
                if re.search(pattern, request):
                    del self.store.faults[number]
                    return fault
        return ""

    def _reply(self, status: int, headers: dict[str, str], data: bytes) -> None:
        self.send_response(status)
        length = headers.pop("Length", str(len(data)))
        if status != 204:
            self.send_header("Content-Length", length)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _answer(
        self, name: str, key: str, query: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        buckets = self.store.buckets
        if not key and self.command == "PUT":
            buckets.setdefault(name, {})
            return 200, {}, b""
        if name not in buckets:
            raise Refused(404, "NoSuchBucket")
        bucket = buckets[name]
        match self.command:
            case "GET" if not key:
                return 200, {}, _listing(bucket, query).encode()
            case "POST" if "uploads" in query:
                upload = f"upload-{next(self.store.numbers)}"
                self.store.uploads[upload] = Upload(key)
                tags = f"<Bucket>{name}</Bucket><Key>{escape(key)}</Key>"
                return (
                    200,
                    {},
                    _xml("InitiateMultipartUploadResult", f"{tags}<UploadId>{upload}</UploadId>"),
                )
            case "PUT" if "uploadId" in query:
                self._upload(query, key).pieces[int(query["partNumber"])] = body
                return 200, {"ETag": _tag(body)}, b""
            case "POST":
                return 200, {}, self._complete(bucket, query, key, body)
            case "DELETE" if "uploadId" in query:
                self._upload(query, key)
                del self.store.uploads[query["uploadId"]]
                return 204, {}, b""
            case "DELETE":
                bucket.pop(key, None)
                return 204, {}, b""
            case "PUT" if "x-amz-copy-source" in self.headers:
                return self._copy(bucket, key)
            case "PUT":
                self._check_conditions(bucket.get(key))
                bucket[key] = (body, _tag(body))
                return 200, {"ETag": _tag(body)}, b""
        return self._object(bucket, key)

    def _copy(
        self, bucket: dict[str, tuple[bytes, str]], key: str
    ) -> tuple[int, dict[str, str], bytes]:
        source = unquote(self.headers["x-amz-copy-source"]).lstrip("/").partition("/")
        found = self.store.buckets.get(source[0], {}).get(source[2])
        if found is None:
            raise Refused(404, "NoSuchKey")
        bucket[key] = found
        return 200, {}, _xml("CopyObjectResult", f"<ETag>{escape(found[1])}</ETag>")

    def _object(
        self, bucket: dict[str, tuple[bytes, str]], key: str
    ) -> tuple[int, dict[str, str], bytes]:
        if key not in bucket:
            raise Refused(404, "NoSuchKey")
        data, tag = bucket[key]
        self._check_conditions(bucket[key])
        if self.command == "HEAD":
            return 200, {"ETag": tag, "Length": str(len(data)), "Last-Modified": MODIFIED}, b""
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if wanted is None:
            return 200, {"ETag": tag}, data
        first, last = int(wanted[1]), min(int(wanted[2]), len(data) - 1)
        if first >= len(data):
            raise Refused(416, "InvalidRange")
        place = f"bytes {first}-{last}/{len(data)}"
        return 206, {"ETag": tag, "Content-Range": place}, data[first : last + 1]

    def _check_conditions(self, found: tuple[bytes, str] | None) -> None:
        wanted = self.headers.get("If-Match")
        if wanted is not None and found is None:
            raise Refused(404, "NoSuchKey")
        if (wanted and found and wanted != found[1]) or (
            self.headers.get("If-None-Match") == "*" and found
        ):
            raise Refused(412, "PreconditionFailed")

    def _upload(self, query: dict[str, str], key: str) -> Upload:
        upload = self.store.uploads.get(query["uploadId"])
        if upload is None or upload.key != key:
            raise Refused(404, "NoSuchUpload")
        return upload

    def _complete(
        self, bucket: dict[str, tuple[bytes, str]], query: dict[str, str], key: str, body: bytes
    ) -> bytes:
        upload = self._upload(query, key)
        reported = ElementTree.fromstring(body)
        pieces = []
        for part in reported:
            values = {child.tag.rpartition("}")[2]: child.text or "" for child in part}
            piece = upload.pieces.get(int(values["PartNumber"]))
            if piece is None or _tag(piece) != values["ETag"]:
                raise Refused(400, "InvalidPart")
            pieces.append(piece)
        if any(len(piece) < PIECE_BYTES_MIN for piece in pieces[:-1]):
            raise Refused(400, "EntityTooSmall")
        tag = f'"{_tag(b"".join(pieces)).strip(chr(34))}-{len(pieces)}"'
        bucket[key] = (b"".join(pieces), tag)
        del self.store.uploads[query["uploadId"]]
        return _xml("CompleteMultipartUploadResult", f"<Key>{escape(key)}</Key>")


def _exactly(file: BinaryIO, length: int) -> bytes:
    data = file.read(length)
    if len(data) < length:
        raise Refused(400, "IncompleteBody")
    return data


def _line(file: BinaryIO) -> bytes:
    line = file.readline(LINE_BYTES_MAX)
    if not line.endswith(b"\r\n"):
        raise Refused(400, "IncompleteBody")
    return line.strip()


def _of_chunks(file: BinaryIO) -> tuple[bytes, dict[str, str]]:
    """What chunks hold, each with its size in front, and the headers behind the last one."""
    pieces = []
    while size := int(_line(file).partition(b";")[0], 16):
        pieces.append(_exactly(file, size))
        _line(file)
    trailers = {}
    while line := _line(file).decode("latin-1"):
        name, _, value = line.partition(":")
        trailers[name.lower()] = value.strip()
    return b"".join(pieces), trailers


def _check_sums(data: bytes, headers: dict[str, str]) -> None:
    """Refuse a body that is not what its client has summed up, and sums that nobody checks."""
    for name, of in _SUMS.items():
        if name in headers and base64.b64decode(headers[name]) != of(data):
            raise Refused(400, "BadDigest")
    if any(map(_OTHER_SUMS.fullmatch, headers)):
        raise Refused(501, "NotImplemented")


def _reported(error: Refused) -> bytes:
    return f"<Error><Code>{error.code}</Code><Message>-</Message></Error>".encode()


def _listing(bucket: dict[str, tuple[bytes, str]], query: dict[str, str]) -> str:
    keys = sorted(key for key in bucket if key.startswith(query.get("prefix", "")))
    after = query.get("continuation-token", "")
    left = [key for key in keys if key > after]
    page = left[:PAGE_KEYS_MAX]
    more = len(left) > len(page)
    entries = "".join(
        f"<Contents><Key>{escape(quote(key))}</Key><Size>{len(bucket[key][0])}</Size>"
        f"<ETag>{escape(bucket[key][1])}</ETag></Contents>"
        for key in page
    )
    token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
    reported = f"<IsTruncated>{str(more).lower()}</IsTruncated><EncodingType>url</EncodingType>"
    return _xml("ListBucketResult", reported + token + entries).decode()


def _xml(name: str, inner: str) -> bytes:
    return f'<?xml version="1.0" encoding="UTF-8"?><{name}>{inner}</{name}>'.encode()


def _tag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'
