"""Who has sent a request, as far as it matters for what is open to it."""

from __future__ import annotations

import msgspec


class Caller(msgspec.Struct, frozen=True):
    """A client, or a worker that hands a part of a request over."""

    token: bytes = b""
    """The bearer token that was shown; empty: none."""
    worker: bool = False
    """Whether its certificate is that of a worker, which may do everything."""
    http: bool = False
    """Whether it came over HTTP, where only inputs with `plugin: http` are served."""

    def __repr__(self) -> str:
        return f"Caller(worker={self.worker}, http={self.http})"


NOBODY = Caller()
"""A client that shows nothing."""
