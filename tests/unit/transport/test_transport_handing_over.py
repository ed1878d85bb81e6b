"""Requests that one worker hands over to another."""

from __future__ import annotations

from onyx.requests.request import Append, Form, Payload, Status
from onyx.settings import TransportSettings
from onyx.transport.appends.streams import AppendStreams


def test_what_does_not_fit_into_a_message_breaks_nothing_else() -> None:
    """gRPC would end the call, with all requests that are on their way in it."""
    settings = TransportSettings()
    streams = AppendStreams(settings, None)
    try:
        payload = Payload(Form.JSON_LINES, b" " * settings.frame_bytes_max)
        answer = streams.send("127.0.0.1:1", Append("job", "in", payload)).result(timeout=10)
    finally:
        streams.close()
    assert answer.status is Status.INVALID
    assert "handed over" in answer.reason
