"""URLs of objects, `s3://bucket/key`.

Credentials are the worker's and never the job's: a URL that carries any is refused, and no message
repeats it, because jobs are kept in ZooKeeper and errors are shown to everybody.
"""

from __future__ import annotations

import re

import msgspec

from onyx.base.path_names import climbs
from onyx.errors import UserError
from onyx.model.locations import HINT, carries_credentials
from onyx.model.report import show

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}\Z")


class ObjectUrl(msgspec.Struct, frozen=True):
    """A bucket and a key within it, a prefix or a pattern."""

    bucket: str
    key: str

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.key}"

    def __truediv__(self, name: str) -> ObjectUrl:
        return ObjectUrl(self.bucket, f"{self.key}/{name}" if self.key else name)


def is_url(path: str) -> bool:
    """Whether a path of a job is a URL and not a path on this machine."""
    return _SCHEME.match(path) is not None


def parse_url(url: str) -> ObjectUrl:
    """The bucket and key that a URL names; slashes at the end do not count.

    Raises:
        UserError: it carries credentials, is not of S3, names no bucket, or has a part `..`.
    """
    found = _SCHEME.match(url)
    assert found, "only what is_url says is one"
    scheme = found[1].lower()
    authority, _, key = url[found.end() :].partition("/")
    if carries_credentials(url):
        raise UserError(f"is a {scheme}:// URL with credentials in it; {HINT}")
    if scheme != "s3":
        hint = "; write s3://" if scheme in ("s3a", "s3n") else ""
        raise UserError(
            f"is {show(url)}, but there are only paths and URLs that begin with s3://{hint}"
        )
    if not _BUCKET.match(authority):
        raise UserError(f"is {show(url)}, which names no bucket; write s3://bucket/path")
    if climbs(key):
        raise UserError(f"is {show(url)}, and a key of an object has no part `..`")
    return ObjectUrl(authority, key.strip("/"))
