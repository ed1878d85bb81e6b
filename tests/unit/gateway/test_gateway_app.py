"""The ASGI function: what a request asks for, and how each answer looks over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace
from tests.support.servers.fake_requests import FakeRequests

from onyx.gateway.app import App
from onyx.ledger.outcomes import FailedSegment, Outcomes, plain
from onyx.requests.request import Answer, Form, Level, Status
from onyx.rights import of_its_author
from onyx.settings import HttpSettings, Settings
from onyx.telemetry.catalog import HTTP_SERVED, HTTP_SERVED_SECONDS, Metric
from onyx.telemetry.interface import GroupMetrics
from onyx.telemetry.labels import Served

JSON = {"content-type": "application/json"}


class Response(NamedTuple):
    code: int
    headers: dict[str, str]
    body: Any


class Counted(GroupMetrics):
    def __init__(self) -> None:
        self.counts: list[str] = []
        self.observed = 0

    def add(self, metric: Metric, amount: float = 1, *labels: str) -> None:
        assert metric is HTTP_SERVED
        self.counts += labels

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        assert metric is HTTP_SERVED_SECONDS
        self.observed += 1


class World:
    """The function with all around it."""

    def __init__(self, requests: FakeRequests, **http: Any) -> None:
        self.clock = requests.clock
        self.metrics = Counted()
        settings = of_its_author(Settings(http=replace(HttpSettings(port=0), **http)))
        self.app = App(settings, requests, self.clock, self.metrics)

    def post(self, *body: bytes, **given: Any) -> Response:
        return asyncio.run(self.posted(*body, **given))

    async def posted(
        self,
        *body: bytes,
        path: str = "/jobs/orders/in",
        query: str = "",
        method: str = "POST",
        headers: Mapping[str, str] = JSON,
        more: list[tuple[bytes, bytes]] | None = None,
    ) -> Response:
        scope = {
            "type": "http",
            "method": method,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(k.encode(), v.encode()) for k, v in headers.items()] + (more or []),
        }
        coming = [
            {"type": "http.request", "body": each, "more_body": number < len(body) - 1}
            for number, each in enumerate(body)
        ]
        sent: list[Mapping[str, Any]] = []

        async def receive() -> Mapping[str, Any]:
            return coming.pop(0) if coming else await asyncio.Event().wait() or {}

        async def send(message: Mapping[str, Any]) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        start, end = sent
        headers_sent = {k.decode().lower(): v.decode() for k, v in start["headers"]}
        assert headers_sent["content-length"] == str(len(end["body"]))
        assert headers_sent["content-type"] == "application/json"
        return Response(start["status"], headers_sent, json.loads(end["body"]))


@pytest.fixture
def world(requests: FakeRequests) -> World:
    return World(requests)


# --- what is asked ------------------------------------------------------------------------------


def test_a_request_goes_to_the_input_that_its_path_names(world: World, requests: FakeRequests):
    assert world.post(b'{"n": ', b"1}").code == 200
    (append,) = requests.appended
    assert (append.job, append.task, append.id) == ("the-id", "in", "")
    assert (append.payload.form, append.payload.data) == (Form.JSON_LINES, b'{"n": 1}')
    assert (append.level, append.timeout_s) == (Level.ACK, 30.0)


def test_a_job_with_one_input_needs_no_name_of_it(world: World, requests: FakeRequests):
    assert world.post(b"{}", path="/jobs/orders").code == 200
    assert requests.appended[0].task == "in"


def test_names_in_paths_are_decoded_one_by_one(world: World, requests: FakeRequests):
    assert world.post(b"{}", path="/jobs/%6Frders/i%6E").code == 200
    assert world.post(b"{}", path="/jobs/orders%2Fin").code == 404


def test_level_timeout_and_key_are_those_of_the_request(world: World, requests: FakeRequests):
    headers = {**JSON, "idempotency-key": '"upload-17"'}
    world.post(b"{}", query="ack=journal&timeout=2.5", headers=headers)
    (append,) = requests.appended
    assert (append.level, append.timeout_s, append.id) == (Level.JOURNAL, 2.5, "upload-17")


@pytest.mark.parametrize(
    ("kind", "form"),
    [
        ("application/json; charset=UTF-8", Form.JSON_LINES),
        ("application/x-ndjson", Form.JSON_LINES),
        ("Application/Vnd.Apache.Arrow.Stream", Form.ARROW),
    ],
)
def test_the_type_says_how_segments_are_written(
    world: World, requests: FakeRequests, kind: str, form: Form
):
    world.post(b"{}", headers={"content-type": kind})
    assert requests.appended[0].payload.form is form


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": "text/plain"},
        {"content-type": "application/json; charset=latin-1"},
        {**JSON, "content-encoding": "gzip"},
    ],
)
def test_other_types_are_refused(world: World, headers: dict[str, str]):
    assert world.post(b"{}", headers=headers).code == 415


@pytest.mark.parametrize(
    "query",
    [
        "ack=all",
        "akc=journal",
        "timeout=0",
        "timeout=nan",
        "timeout=x",
        "timeout=1e9",
        "a",
        "%ff=1",
    ],
)
def test_a_query_that_is_not_understood_is_refused(
    world: World, requests: FakeRequests, query: str
):
    assert world.post(b"{}", query=query).code == 400
    assert not requests.appended


@pytest.mark.parametrize("key", ["", '""', "x" * 257, "a\tb", "\xe9"])
def test_a_key_that_is_none_is_refused(world: World, key: str):
    assert world.post(b"{}", headers={**JSON, "idempotency-key": key}).code == 400


def test_what_may_be_there_once_is_refused_twice(world: World):
    for name in (b"authorization", b"idempotency-key", b"content-type"):
        assert world.post(b"{}", more=[(name, b"x"), (name, b"x")]).code == 400


@pytest.mark.parametrize("path", ["/", "/jobs", "/jobs/", "/jobs//in", "/jobs/orders/in/x", "/x/y"])
def test_other_paths_lead_nowhere(world: World, path: str):
    assert world.post(b"{}", path=path).code == 404


def test_other_methods_are_refused(world: World):
    response = world.post(b"", method="GET")
    assert (response.code, response.headers["allow"]) == (405, "POST")


def test_inputs_of_other_plugins_are_not_served(world: World):
    response = world.post(b"{}", path="/jobs/orders/bus")
    assert response.code == 404
    assert "its plugin is 'requests'" in response.body["reason"]


def test_a_job_of_before_may_have_served_the_input_that_is_not_served_now(
    world: World, requests: FakeRequests
):
    requests.follows = True
    path, key = "/jobs/orders/bus", {**JSON, "idempotency-key": "order-7"}
    assert world.post(b"{}", path=path).code == 404, "without an id nothing was taken"
    response = world.post(b"{}", path=path, headers=key)
    assert (response.code, response.headers["retry-after"]) == (503, "1")
    assert "whether this request was taken before is not known" in response.body["reason"]
    assert not requests.appended


# --- what is answered ---------------------------------------------------------------------------


FAILED = Outcomes(1, first_error="f: y", failures=(FailedSegment("f", "y", 0),))


@pytest.mark.parametrize(
    ("answer", "code", "retry_after"),
    [
        (Answer(Status.PROCESSED, segments=2), 200, None),
        (Answer(Status.JOURNALLED, segments=2), 202, None),
        (Answer(Status.ACCEPTED, segments=2), 202, None),
        (Answer(Status.CONFLICT, "x"), 409, None),
        (Answer(Status.INVALID, "x"), 400, None),
        (Answer(Status.INVALID, "x", refused={3: "y"}), 422, None),
        (Answer(Status.FAILED, "x", outcomes=FAILED), 422, None),
        (Answer(Status.PROCESSED, outcomes=Outcomes(dead_letters=1, first_error="y")), 200, None),
        (Answer(Status.UNKNOWN, "x"), 404, None),
        (Answer(Status.BUSY, "x", 0.2), 429, "1"),
        (Answer(Status.UNAVAILABLE, "x", 2.5), 503, "3"),
        (Answer(Status.UNAVAILABLE, "x"), 503, "1"),
        (Answer(Status.TIMED_OUT, "x"), 504, "1"),
    ],
)
def test_each_status_has_its_code(
    world: World, requests: FakeRequests, answer: Answer, code: int, retry_after: str | None
):
    requests.answer = answer
    response = world.post(b"{}")
    assert (response.code, response.headers.get("retry-after")) == (code, retry_after)
    assert response.body == {
        "status": answer.status,
        "reason": answer.reason,
        "segments": answer.segments,
        **plain(answer.outcomes),
        "values": {},
        "errors": {},
        "refused": {str(row): why for row, why in answer.refused.items()},
    }


def test_values_that_functions_return_are_in_the_body(world: World, requests: FakeRequests):
    values = {"total": Decimal("1.50"), "odd": float("nan"), "own": {1, 2} and object}
    requests.answer = Answer(Status.PROCESSED, segments=1, values=values)
    body = world.post(b"{}").body
    assert (body["values"]["total"], body["values"]["odd"]) == ("1.50", None)
    assert "object" in body["values"]["own"]


def test_a_bug_is_an_answer_too(
    world: World, requests: FakeRequests, monkeypatch: pytest.MonkeyPatch
):
    async def broken(*_: object) -> Answer:
        raise RuntimeError("boom")

    monkeypatch.setattr(requests, "append", broken)
    response = world.post(b"{}")
    assert response.code == 503
    assert "boom" in response.body["reason"]


def test_requests_are_counted_by_how_they_were_answered(world: World, requests: FakeRequests):
    world.post(b"{}")
    world.post(b"{}", path="/")
    requests.answer = Answer(Status.UNAVAILABLE)
    world.post(b"{}")
    assert world.metrics.counts == [Served.TAKEN, Served.REFUSED, Served.FAILED]
    assert world.metrics.observed == 3


# --- tokens -------------------------------------------------------------------------------------


def bearer(token: str) -> dict[str, str]:
    return {**JSON, "authorization": f"Bearer {token}"}


def test_an_input_with_a_token_is_closed_without_it(
    world: World, requests: FakeRequests, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("ORDERS_TOKEN", "sesame")
    requests.options = {"tokenEnv": "ORDERS_TOKEN"}
    for headers in (JSON, bearer("other"), bearer(""), {**JSON, "authorization": "Basic sesame"}):
        response = world.post(b"{}", headers=headers)
        assert response.code == 401
        assert response.headers["www-authenticate"].startswith("Bearer")
    assert not requests.appended
    assert world.post(b"{}", headers=bearer("sesame")).code == 200


def test_a_file_of_tokens_is_read_again_when_it_changes(
    world: World, requests: FakeRequests, tmp_path: Path
):
    file = tmp_path / "tokens"
    requests.options = {"tokenFile": str(file)}
    assert world.post(b"{}", headers=bearer("one")).code == 503  # it is open to nobody
    for text, opened in (("one\ntwo\n", {"one", "two"}), ("", set()), ("two\n", {"two"})):
        file.write_text(text)
        world.clock.advance(2)
        codes = {each: world.post(b"{}", headers=bearer(each)).code for each in ("one", "two")}
        assert {each for each, code in codes.items() if code == 200} == opened
    file.unlink()
    world.clock.advance(2)
    assert world.post(b"{}", headers=bearer("two")).code == 200
    world.clock.advance(60)
    assert world.post(b"{}", headers=bearer("two")).code == 503  # it is open to nobody again


# --- limits -------------------------------------------------------------------------------------


def test_a_body_that_is_announced_as_too_large_is_not_read(requests: FakeRequests):
    world = World(requests, body_bytes_max=10)
    assert world.post(headers={**JSON, "content-length": "11"}).code == 413


def test_a_body_that_becomes_too_large_is_given_up(requests: FakeRequests):
    world = World(requests, body_bytes_max=10)
    assert world.post(b"[{}" * 3, b"  ", b"never read").code == 413
    assert world.post(b"[{},{},{}]").code == 200


def test_a_body_that_does_not_come_is_given_up(requests: FakeRequests):
    world = World(requests, body_timeout_s=0.01)
    response = world.post()
    assert (response.code, response.headers["connection"]) == (408, "close")


def test_without_room_for_bodies_others_come_again(requests: FakeRequests):
    world = World(requests, bodies_bytes_max=100)
    requests.hold = True

    async def both() -> tuple[Response, Response]:
        first = asyncio.create_task(world.posted(b"x" * 90))
        await asyncio.sleep(0.02)
        second = await world.posted(b"x" * 90)
        requests.hold = False
        return await first, second

    first, second = asyncio.run(both())
    assert (first.code, second.code, second.headers["retry-after"]) == (200, 429, "1")
    assert world.post(b"x" * 90).code == 200


def test_beyond_a_number_of_requests_others_come_again(requests: FakeRequests):
    world = World(requests, requests_max=1)
    requests.hold = True

    async def both() -> tuple[Response, Response]:
        first = asyncio.create_task(world.posted(b"{}"))
        await asyncio.sleep(0.02)
        second = await world.posted(b"{}")
        requests.hold = False
        return await first, second

    assert [each.code for each in asyncio.run(both())] == [200, 429]
    assert world.app.active == 0
