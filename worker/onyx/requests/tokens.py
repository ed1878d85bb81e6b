"""The bearer tokens that open something, as files and variables of a worker hold them, and the one
that a client shows.

A job is stored and shown, so it names where its tokens are. A file may hold several, one a line, so
that a token can be replaced while clients still have the old one. It is read again when it has
changed, and what it no longer holds opens nothing: an empty file opens to nobody. A file that is
away holds what it held for a minute, because whoever replaces it may remove it first; then nothing.
What has tokens that were never there is open to nobody.

Behind a token may stand whose it is, as in `5f3c... # ada`: the console records who has done what.

All wires ask here: requests, states and the console, over HTTP and over gRPC.
"""

from __future__ import annotations

import hmac
import os
import threading
from collections.abc import Iterator, Mapping
from hashlib import sha256

from onyx.base.seams import Clock
from onyx.errors import UserError
from onyx.requests.request import Answer, Status
from onyx.settings import ClientSettings

FILE_BYTES_MAX = 65_536
LOOK_INTERVAL_S = 1.0
"""How often it is looked whether a file has changed."""
KEPT_S = 60.0
"""How long the tokens of a file count that is away."""
AGAIN_S = 1.0
SCHEME = b"bearer"
KEY = "authorization"
"""Name of the header, or of the metadata, that has a token."""


class Tokens:
    """The tokens of one input, or of the states. Safe from any thread."""

    def __init__(self, clock: Clock, path: str | None = None, value: str | None = None) -> None:
        """`path`: of a file with tokens; `value`: the token itself."""
        self._clock = clock
        self._path = path
        self.wanted = path is not None or value is not None
        """Whether a client has to show one."""
        self._lock = threading.Lock()
        self._digests = _digests(value or "")
        self._stamp: tuple[int, int, int] | None = None
        self._looked_s: float | None = None
        self._away_since_s: float | None = None

    def known(self) -> bool:
        """Whether there is a token that opens it."""
        return bool(self._current())

    def opened_by(self, token: bytes) -> bool:
        """Whether this is one of the tokens. How long that takes tells nothing about them."""
        return self.holder(token) is not None

    def holder(self, token: bytes) -> str | None:
        """The name that stands behind a token, which may be empty; None: it is none of them."""
        digest, found = sha256(token.strip()).digest(), None
        for each, name in self._current():
            found = name if hmac.compare_digest(each, digest) else found
        return found

    def refusal(self, token: bytes, what: str) -> Answer | None:
        """Why a client with this token, empty if it has none, may not use `what`; None: it may."""
        if not self.wanted:
            return None
        if not self.known():
            reason = f"the token of {what} cannot be read on this worker"
            return Answer(Status.UNAVAILABLE, reason, AGAIN_S)
        if not token:
            return Answer(Status.UNAUTHENTICATED, f"{what} wants a bearer token")
        if not self.opened_by(token):
            return Answer(Status.UNAUTHENTICATED, "the token is another one")
        return None

    def _current(self) -> tuple[tuple[bytes, str], ...]:
        if self._path is not None:
            with self._lock:
                self._look(self._path)
        return self._digests

    def _look(self, path: str) -> None:
        now_s = self._clock.monotonic_s()
        if self._looked_s is not None and now_s - self._looked_s < LOOK_INTERVAL_S:
            return
        self._looked_s = now_s
        try:
            found = os.stat(path)
            stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
            if stamp != self._stamp:
                with open(path, encoding="utf-8") as file:
                    self._digests = _digests(file.read(FILE_BYTES_MAX))
                self._stamp = stamp
            self._away_since_s = None
        except (OSError, ValueError):
            self._miss(now_s)

    def _miss(self, now_s: float) -> None:
        """The file is away, or cannot be read."""
        if self._away_since_s is None:
            self._away_since_s = now_s
        if now_s - self._away_since_s >= KEPT_S:
            self._digests, self._stamp = (), None


def bearer(authorization: bytes | None) -> bytes:
    """The token in the header `authorization` of a call; empty if there is none."""
    kind, _, token = (authorization or b"").strip().partition(b" ")
    return token.strip() if kind.lower() == SCHEME else b""


def metadata_of(token: str) -> list[tuple[str, str]]:
    """The metadata of a call that shows a token, if there is one."""
    return [(KEY, f"Bearer {token}")] if token else []


def tokens_in(text: str) -> Iterator[tuple[str, str]]:
    """The tokens of a file or a variable, one a line, each with the name behind it."""
    for line in text.splitlines():
        token, _, name = line.partition(" # ")
        if token.strip():
            yield token.strip(), name.strip()


def _digests(text: str) -> tuple[tuple[bytes, str], ...]:
    return tuple((sha256(token.encode()).digest(), name) for token, name in tokens_in(text))


class ClientToken:
    """Safe from any thread."""

    def __init__(
        self, settings: ClientSettings, clock: Clock, env: Mapping[str, str] = os.environ
    ) -> None:
        """Nothing is read yet. Raises UserError when file and variable are named."""
        if settings.token_file and settings.token_env:
            raise UserError("a client takes its token from a file or a variable, and not from both")
        self._settings = settings
        self._clock = clock
        self._env = env
        self._read: tuple[float, str] | None = None

    def __call__(self) -> str:
        """The token of this moment; empty if none is named. Raises UserError if it is not there."""
        now_s = self._clock.monotonic_s()
        if self._read is None or now_s - self._read[0] >= LOOK_INTERVAL_S:
            self._read = (now_s, self._found())
        return self._read[1]

    def _found(self) -> str:
        file, variable = self._settings.token_file, self._settings.token_env
        if variable:
            return _checked(self._env.get(variable, ""), f"variable {variable}")
        if not file:
            return ""
        try:
            with open(file, encoding="utf-8") as opened:
                text = opened.read(FILE_BYTES_MAX)
        except (OSError, ValueError) as error:
            raise UserError(f"the token file {file} cannot be read: {error}") from error
        return _checked(text, f"the token file {file}")


def _checked(text: str, where: str) -> str:
    token, _ = next(tokens_in(text), ("", ""))
    if not token:
        raise UserError(f"{where} holds no token")
    if not (token.isascii() and token.isprintable()):
        raise UserError(f"{where} holds a token with characters that are not printable ASCII")
    return token
