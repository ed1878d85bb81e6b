"""What pods say when they are asked for a page beside their metrics: how far they are, or why they
are not ready.

A pod of a tenant may answer anything, slowly, or nothing. So an answer has a deadline and is
bounded, and what it says in words is cut and has no line breaks: it goes into conditions.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

Address = tuple[str, int]
TIMEOUT_S = 2.0
"""Longest wait for a page."""
PAGE_BYTES_MAX = 1_048_576
ANSWERED, REFUSED = 200, 503
"""HTTP status of a page; of `/readyz` when it says why not."""
SAID_MAX = 3
"""Pods that are asked for their reasons at a time."""
_PIECE_BYTES = 65_536
_WORDS_MAX = 200
_SINCE = re.compile(r" for [0-9]+ s\b")
"""How long it has been so is another word each time, and would be another status."""


async def page(host: str, port: int, path: str) -> tuple[int, bytes]:
    """HTTP status and body of a page; status 0 when there is no answer, in time."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
                data = bytearray()
                while len(data) <= PAGE_BYTES_MAX and (piece := await reader.read(_PIECE_BYTES)):
                    data += piece
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return 0, b""
    head, _, body = bytes(data).partition(b"\r\n\r\n")
    status = (*head.split(b" ", 2), b"", b"")[1]
    if len(data) > PAGE_BYTES_MAX or not status.isdigit():
        return 0, b""
    return int(status), body


async def obstacles(pods: Sequence[tuple[str, Address]]) -> list[str]:
    """Why pods are not ready, as `/readyz` of each says it, by their names; of the first few. A pod
    that is ready says nothing."""
    asked = pods[:SAID_MAX]
    answers = await asyncio.gather(*(page(*address, "/readyz") for _, address in asked))
    return [
        f"{name} {_said(status, body)}"
        for (name, _), (status, body) in zip(asked, answers, strict=True)
        if status != ANSWERED
    ]


def _said(status: int, body: bytes) -> str:
    words = _SINCE.sub("", " ".join(body.decode(errors="replace").split()))
    if status != REFUSED or not words.isprintable():
        return "does not answer"
    return f"says: {words[:_WORDS_MAX]}"
