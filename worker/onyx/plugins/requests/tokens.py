"""The bearer tokens that open an input.

A job is stored and shown, so it names where its tokens are. A file may hold several, one a line, so
that a token can be replaced while clients still have the old one. It is read again when it has
changed, and what it no longer holds opens nothing: an empty file opens to nobody. A file that is
away holds what it held for a minute, because whoever replaces it may remove it first; then nothing.
An input whose tokens were never there is open to nobody.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Mapping
from hashlib import sha256

from onyx.plugins.requests.options import HttpInputOptions
from onyx.rights import Rights
from onyx.seams import Clock
from onyx.storage.opening import absolute

FILE_BYTES_MAX = 65_536
LOOK_INTERVAL_S = 1.0
"""How often it is looked whether a file has changed."""
KEPT_S = 60.0
"""How long the tokens of a file count that is away."""


class Tokens:
    """The tokens of one input. Used by one thread."""

    def __init__(self, clock: Clock, path: str | None = None, value: str | None = None) -> None:
        """`path`: of a file with tokens; `value`: the token itself."""
        self._clock = clock
        self._path = path
        self.wanted = path is not None or value is not None
        """Whether a client has to show one."""
        self._digests = _digests(value or "")
        self._stamp: tuple[int, int, int] | None = None
        self._looked_s: float | None = None
        self._away_since_s: float | None = None

    def known(self) -> bool:
        """Whether there is a token that opens the input."""
        self._look()
        return bool(self._digests)

    def opened_by(self, token: bytes) -> bool:
        """Whether this is one of the tokens. How long that takes tells nothing about them."""
        self._look()
        digest, found = sha256(token.strip()).digest(), False
        for each in self._digests:
            found |= hmac.compare_digest(each, digest)
        return found

    def _look(self) -> None:
        if self._path is None:
            return
        now_s = self._clock.monotonic_s()
        if self._looked_s is not None and now_s - self._looked_s < LOOK_INTERVAL_S:
            return
        self._looked_s = now_s
        try:
            found = os.stat(self._path)
            stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
            if stamp != self._stamp:
                with open(self._path, encoding="utf-8") as file:
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


def tokens_of(
    options: HttpInputOptions, rights: Rights, data_dir: str, clock: Clock, env: Mapping[str, str]
) -> Tokens:
    """The tokens of an input of a job. What the job may not name holds none."""
    path = options.token_file and absolute(options.token_file, data_dir)
    if path is not None and rights.why_not_path(path) is not None:
        path = os.devnull
    value = options.token_env
    if value is not None:
        value = "" if rights.why_not_variable(value) else env.get(value, "")
    return Tokens(clock, path, value)


def _digests(text: str) -> tuple[bytes, ...]:
    tokens = filter(None, (line.strip() for line in text.splitlines()))
    return tuple(sha256(each.encode()).digest() for each in tokens)
