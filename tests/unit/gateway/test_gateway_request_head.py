"""The head of a request: whatever a stranger sends, it is understood or refused."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from onyx.gateway.app import rejection
from onyx.gateway.request_head import RequestHead, head_of
from onyx.requests.request import ID_CHARACTERS_MAX, TIMEOUT_S_MAX
from onyx.serving.replies import Rejected

NAMES = st.sampled_from(
    [b"content-type", b"authorization", b"idempotency-key", b"content-length", b"x-other"]
)
VALUES = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([b"application/json", b"Bearer x", b"7", b'"k"', b";;=;", b"9" * 5_000]),
)
UNDERSTOOD = [(b"content-type", b"application/json"), (b"authorization", b"Bearer x")]
"""Most heads are refused."""
QUERIES = st.one_of(
    st.binary(max_size=30),
    st.sampled_from([b"ack=ack", b"timeout=1", b"&&", b"=", b"ack=ack&" * 40]),
)
PATHS = st.one_of(st.binary(max_size=30), st.sampled_from([b"/jobs/a/b", b"/jobs/%zz/%00"]))


def understood(scope: dict[str, Any]) -> RequestHead | Rejected:
    try:
        return head_of(scope)
    except Rejected as rejected:
        return rejected


@given(PATHS, QUERIES, st.lists(st.tuples(NAMES, VALUES), max_size=6), st.text(max_size=6))
@example(b"/jobs/a/b", b"ack=ack", UNDERSTOOD, "POST")
def test_any_head_is_understood_or_refused(
    path: bytes, query: bytes, headers: list[tuple[bytes, bytes]], method: str
) -> None:
    for each in (method, "POST"):
        scope = {"method": each, "raw_path": path, "query_string": query, "headers": headers}
        asked = understood(scope)
        if isinstance(asked, Rejected):
            assert 400 <= rejection(asked).code < 500
        else:
            assert asked.job
            assert len(asked.id) <= ID_CHARACTERS_MAX
            assert 0 < asked.timeout_s <= TIMEOUT_S_MAX
            assert asked.caller.token == asked.caller.token.strip()
