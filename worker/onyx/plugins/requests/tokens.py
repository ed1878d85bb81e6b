"""The bearer tokens that open an input.

A job is stored and shown, so it names where its tokens are. A file may hold several, one a line, so
that a token can be replaced while clients still have the old one. It is read again when it has
changed; while it is away or empty, what it held before counts. An input whose tokens were never
there is open to nobody.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Mapping
from hashlib import sha256

from onyx.plugins.requests.options import HttpInputOptions
from onyx.seams import Clock
from onyx.storage.opening import absolute

FILE_BYTES_MAX = 65_536
LOOK_INTERVAL_S = 1.0
"""How often it is looked whether a file has changed."""


class Tokens:
    """The tokens of one input. Used by one thread."""

    def __init__(
        self, options: HttpInputOptions, data_dir: str, clock: Clock, env: Mapping[str, str]
    ) -> None:
        self._clock = clock
        self._path = None
        if options.token_file is not None:
            self._path = absolute(options.token_file, data_dir)
        self.wanted = self._path is not None or options.token_env is not None
        """Whether a client has to show one."""
        self._digests: tuple[bytes, ...] = ()
        self._stamp: tuple[int, int, int] | None = None
        self._looked_s: float | None = None
        if options.token_env is not None:
            self._digests = _digests(env.get(options.token_env, ""))

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
            if stamp == self._stamp:
                return
            with open(self._path, encoding="utf-8") as file:
                digests = _digests(file.read(FILE_BYTES_MAX))
        except (OSError, ValueError):
            return
        if digests:
            self._digests, self._stamp = digests, stamp


def _digests(text: str) -> tuple[bytes, ...]:
    tokens = filter(None, (line.strip() for line in text.splitlines()))
    return tuple(sha256(each.encode()).digest() for each in tokens)
