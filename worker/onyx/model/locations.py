"""What may not stand in a path of a job: credentials, because a job is kept in ZooKeeper and shown
to everybody who asks. Those of an object store come from the environment of the workers."""

from __future__ import annotations

import re

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/]*)")
_SIGNED = re.compile(r"[?&](X-Amz-|AWSAccessKeyId|Signature|access.?key|secret|token)", re.I)
_USER = re.compile(r"(?<=[A-Za-z0-9+.-])(://)[^/\s@'\"]*@")
"""The scheme is not part of it: each letter of a long text could begin one."""
_SECRET = re.compile(
    r"([?&;](?:[\w.-]*(?:password|passwd|pwd|secret|token|signature|credential|access.?key(?:id)?)"
    r"|sig|api.?key)=)[^&\s;'\"]+",
    re.I,
)
HIDDEN = "***"
HINT = (
    "take them out of the job, and give them to the workers as AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY"
)


def carries_credentials(path: str) -> bool:
    """Whether a path is a URL with a user, a password or a signature in it."""
    found = _URL.match(path)
    return found is not None and ("@" in found[1] or _SIGNED.search(path) is not None)


def without_secrets(text: str) -> str:
    """The text, with users, passwords and signatures in URLs hidden."""
    return _SECRET.sub(rf"\1{HIDDEN}", _USER.sub(rf"\1{HIDDEN}@", text))
