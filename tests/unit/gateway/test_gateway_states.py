"""Questions about states over HTTP: who may ask, what is asked, how answers and refusals look."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.support.clocks import ManualClock
from tests.support.servers.fake_requests import FakeRequests

from onyx.codec.questions import encode_place
from onyx.errors import Unavailable, UserError
from onyx.gateway.app import App
from onyx.gateway.states import AskedState, ShownState, StateForm
from onyx.keystate.selection import EVERYTHING, Place, Selection
from onyx.requests.request import Caller
from onyx.settings import HttpSettings, Settings, StateSettings
from onyx.telemetry.interface import NULL_GROUP

TOKEN = {"authorization": "Bearer secret"}


class FakeStates:
    """Answers, or fails."""

    def __init__(self) -> None:
        self.asked: list[AskedState] = []
        self.answers: ShownState | Exception = ShownState(b"{}")

    async def answer(self, asked: AskedState) -> ShownState:
        self.asked.append(asked)
        if isinstance(self.answers, Exception):
            raise self.answers
        return self.answers


class Response(NamedTuple):
    code: int
    headers: dict[str, str]
    body: bytes

    @property
    def reason(self) -> str:
        return str(json.loads(self.body)["reason"])


class World:
    def __init__(self, requests: FakeRequests, folder: Path, token: str = "secret\n") -> None:
        self.states = FakeStates()
        file = folder / "tokens"
        file.write_text(token)
        settings = Settings(http=HttpSettings(port=0), state=StateSettings(token_file=str(file)))
        self.app = App(settings, requests, ManualClock(), NULL_GROUP, self.states)

    def get(
        self,
        path: str = "/jobs/j/state/w",
        query: str = "",
        method: str = "GET",
        headers: Mapping[str, str] = TOKEN,
    ) -> Response:
        return got(self.app, path, query, method, headers)


def got(app: App, path: str, query: str, method: str, headers: Mapping[str, str]) -> Response:
    scope = {
        "type": "http", "method": method, "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(k.encode(), v.encode()) for k, v in headers.items()],
    }  # fmt: skip
    sent: list[Mapping[str, Any]] = []

    async def receive() -> Mapping[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Mapping[str, Any]) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    start, end = sent
    headers_sent = {k.decode().lower(): v.decode() for k, v in start["headers"]}
    return Response(start["status"], headers_sent, end["body"])


@pytest.fixture
def world(requests: FakeRequests, tmp_path: Path) -> World:
    return World(requests, tmp_path)


def test_a_question_has_what_the_url_says(world: World) -> None:
    place = Place("ab", 10, 19)
    select = f"prefix=a&from=5&to=1970-01-01&after={encode_place(place)}"
    query = f"{select}&limit=7&durable=true&timeout=2.5"
    assert world.get("/jobs/the%2Djob/state/per%20hour", query).code == 200
    assert world.states.asked == [
        AskedState(
            "the-job",
            "per hour",
            Selection(prefix="a", time_from=5, time_to=0, after=place),
            7,
            True,
            2.5,
            StateForm.JSON,
            Caller(b"secret", http=True),
        )
    ]


@pytest.mark.parametrize(
    ("query", "select"),
    [
        ("", EVERYTHING),
        ("key=5", Selection(key=5)),
        ("key=%225%22", Selection(key="5")),
        ("key=%7B%22a%22:1%7D", Selection(key={"a": 1})),
        ("from-key=1&to-key=9", Selection(key_from=1, key_to=9)),
    ],
)
def test_groups_are_read_as_on_the_command_line(
    world: World, query: str, select: Selection
) -> None:
    world.get(query=query)
    assert world.states.asked[0].select == select


def test_without_a_name_the_states_of_the_job_are_listed(world: World) -> None:
    world.get("/jobs/j/state")
    assert world.states.asked[0].state == ""


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", StateForm.JSON),
        ("*/*", StateForm.JSON),
        ("text/html, application/x-ndjson;q=0.9", None),
        ("application/x-ndjson", StateForm.LINES),
        ("application/vnd.apache.arrow.stream", StateForm.ARROW),
    ],
)
def test_an_answer_has_the_type_that_is_accepted(
    world: World, accept: str, form: StateForm | None
) -> None:
    world.states.answers = ShownState(b"it", "next-one")
    response = world.get(headers={**TOKEN, "accept": accept})
    if form is None:
        assert response.code in (200, 406)
        return
    assert world.states.asked[0].form is form
    assert (response.code, response.body) == (200, b"it")
    assert response.headers["content-type"] == form
    assert response.headers["onyx-next"] == "next-one"


@pytest.mark.parametrize(
    ("query", "reported"),
    [
        ("limit=0", "limit is a number of extents up to 10000"),
        ("limit=10001", "limit is a number"),
        ("limit=x", "limit is a number"),
        ("durable=yes", "durable is true or false"),
        ("timeout=0", "timeout is a number of seconds"),
        ("fro=5", "there is no parameter 'fro', only key, prefix"),
        ("key=a&key=b", "a parameter is there twice"),
        ("key=a&prefix=b", "ask for one group"),
        ("from=soon", "'soon' is neither a number nor a moment"),
        ("after=x", "is not where a page has ended"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(world: World, query: str, reported: str) -> None:
    response = world.get(query=query)
    assert (response.code, reported in response.reason) == (400, True), response.reason
    assert world.states.asked == []


@pytest.mark.parametrize(
    ("headers", "code"),
    [({}, 401), ({"authorization": "Bearer other"}, 401), ({"authorization": "Basic x"}, 401)],
)
def test_only_who_has_the_token_of_the_worker_is_answered(
    world: World, headers: dict[str, str], code: int
) -> None:
    assert world.get(headers=headers).code == code
    assert world.get("/jobs/j/state", headers=headers).code == code
    assert world.states.asked == []


def test_without_tokens_nothing_is_shown(requests: FakeRequests, tmp_path: Path) -> None:
    assert World(requests, tmp_path, token="").get().code == 503
    app = App(Settings(http=HttpSettings(port=0)), requests, ManualClock(), NULL_GROUP)
    response = got(app, "/jobs/j/state/w", "", "GET", TOKEN)
    assert (response.code, "ONYX_STATE_TOKEN_FILE" in response.reason) == (404, True)


def test_a_state_is_only_read(world: World) -> None:
    response = world.get(method="DELETE")
    assert (response.code, response.headers["allow"]) == (405, "GET")


def test_an_input_may_be_called_state(world: World, requests: FakeRequests) -> None:
    headers = {"content-type": "application/json"}
    world.get("/jobs/orders/state", method="POST", headers=headers)
    assert world.states.asked == []


@pytest.mark.parametrize(
    ("error", "code"),
    [(UserError("no such window"), 400), (Unavailable("later"), 503), (TimeoutError(), 504)],
)
def test_a_failure_has_a_code_and_a_reason(world: World, error: Exception, code: int) -> None:
    world.states.answers = error
    response = world.get()
    assert response.code == code
    assert response.reason
    assert ("retry-after" in response.headers) == (code > 500)
