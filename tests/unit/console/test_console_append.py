"""A segment is appended from the console: a form is sent, and the page says what became of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from tests.support.console_world import ASKED, HOSTILE, ConsoleWorld
from tests.unit.console.test_console_actions import TOKENS, Person
from tests.unit.console.test_console_app import HOSTS, ask
from tests.unit.console.test_console_pages import plain

from onyx.base.seams import SystemClock
from onyx.console.app import ConsoleApp, Guard
from onyx.console.board import followed
from onyx.errors import Unavailable
from onyx.ledger.outcomes import FailedSegment, Outcomes
from onyx.requests.request import Answer, Level, Status
from onyx.requests.tokens import Tokens


class Input:
    """What takes the segments, and answers as it is asked to."""

    def __init__(self) -> None:
        self.taken: list[tuple[Any, ...]] = []
        self.answer: Answer | Exception = Answer(Status.PROCESSED, segments=1)

    def append(self, *given: Any) -> Answer:
        self.taken.append(given[:4])
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def taking() -> Input:
    return Input()


@pytest.fixture
def ada(taking: Input) -> Iterator[Person]:
    world = ConsoleWorld()
    world.join("a" * 36, peers=16)
    world.submit("asked", id="first", catalog=ASKED)
    world.submit("deaf", id="second")
    with followed(world.client, lambda: None) as past:
        console = world.console(acts_on=past, append=taking.append)
        guard = Guard(HOSTS, Tokens(SystemClock(), value=TOKENS), "token:unnamed")
        yield Person(ConsoleApp(console, guard), world)


def sent(ada: Person, segment: str, **more: str) -> str:
    fields = {**ada.form("/append/first"), "segment": quote(segment), "input": "orders", **more}
    return plain(ada.send("/append/first", fields).text)


def test_a_segment_goes_to_the_input_once_and_the_page_says_what_became_of_it(
    ada: Person, taking: Input, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "onyx.console")
    taking.answer = Answer(Status.PROCESSED, values={"total": [7, HOSTILE]})
    fields = {**ada.form("/append/first"), "segment": quote('{"order": 7}'), "level": "journal"}
    answer = ada.send("/append/first", fields)
    assert answer.code == 200
    assert taking.taken == [("first", "orders", {"order": 7}, Level.JOURNAL)]
    text = plain(answer.text)
    assert "Processed after" in text
    assert "Waited until it is durable in the journal of the input" in text
    assert '{"total":[7,"<script>' in text
    assert "<script>alert" not in answer.text
    assert "token:ada appended a segment to orders of job first" in caplog.text
    assert ada.send("/append/first", fields).code == 409
    assert len(taking.taken) == 1


def test_what_did_not_simply_go_on_is_said(ada: Person, taking: Input) -> None:
    lost = Outcomes(1, 2, failures=(FailedSegment("clean", HOSTILE, 0),))
    taking.answer = Answer(Status.FAILED, "a segment failed", outcomes=lost, errors={"k": "late"})
    text = sent(ada, "{}")
    assert "Failed after" in text
    assert "2 went to the dead letters" in text
    assert f"segment 0, task clean: {HOSTILE}" in text
    assert "no value for k: late" in text
    taking.answer = Answer(Status.PROCESSED, outcomes=Outcomes(dead_letters=1))
    fields = {**ada.form("/append/first"), "segment": "%7B%7D"}
    assert (
        '<p class="notice warn" role="status"><strong>Processed'
        in ada.send("/append/first", fields).text
    )
    taking.answer = Answer(Status.TIMED_OUT, "not within 10 s")
    assert "Timed-out after" in sent(ada, "{}")


@pytest.mark.parametrize("segment", ["", "[1]", "7", '{"a": ', "null"])
def test_what_is_no_segment_is_not_sent_and_stays_in_the_form(
    ada: Person, taking: Input, segment: str
) -> None:
    text = sent(ada, segment)
    assert "Nothing was sent. The segment is no JSON object" in text
    assert segment in text
    assert not taking.taken


def test_when_no_worker_is_there_nothing_was_sent(ada: Person, taking: Input) -> None:
    taking.answer = Unavailable("the cluster has no worker")
    assert "Nothing was sent. the cluster has no worker" in sent(ada, "{}")


def test_an_unknown_input_or_level_is_the_first_one(ada: Person, taking: Input) -> None:
    sent(ada, "{}", input="store", level="never")
    assert taking.taken == [("first", "orders", {}, Level.ACK)]


@pytest.mark.parametrize("job", ["second", "third", "..%2f"])
def test_only_a_job_that_runs_and_takes_requests_has_the_page(ada: Person, job: str) -> None:
    assert ada.get(f"/append/{job}").code == 409


def test_a_page_of_another_site_appends_nothing(ada: Person, taking: Input) -> None:
    fields = {**ada.form("/append/first"), "segment": "%7B%7D"}
    assert ada.send("/append/first", fields, Origin="https://evil.example").code == 403
    assert ada.send("/append/first", {**fields, "seal": "0.0.0"}).code == 403
    assert not taking.taken


def test_a_console_that_only_shows_appends_nothing() -> None:
    world = ConsoleWorld()
    world.submit("asked", id="first", catalog=ASKED)
    console = ConsoleApp(world.console(), Guard(HOSTS, Tokens(SystemClock())))
    for method in ("GET", "POST"):
        assert ask(console, "/append/first", method).code == 404
    assert "/append/" not in ask(console, "/ask?job=first").text


def test_the_page_of_questions_leads_there(ada: Person) -> None:
    assert 'href="/append/first"' in ada.get("/ask?job=asked").text
    assert "/append/" not in ada.get("/ask?job=deaf").text
