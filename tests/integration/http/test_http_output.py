"""The http output and a real server: what is durable, what is sent again, who is told."""

from __future__ import annotations

import json
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import trustme
from msgspec.structs import replace
from tests.support.clocks import ManualClock
from tests.support.jobs.plugin_context import plugin_context
from tests.support.patience import WAIT_S
from tests.support.servers.certificates import Secret
from tests.support.servers.http_endpoint import HttpEndpoint, Reply

from onyx.errors import Unavailable, UserError
from onyx.flow.segment import Segment
from onyx.ids import GroupId
from onyx.plugins.http import connection, sender
from onyx.plugins.http import output as output_module
from onyx.plugins.http.output import HttpOutput
from onyx.plugins.protocol import Output, Token
from onyx.plugins.registry import build_output
from onyx.telemetry.catalog import Metric
from onyx.telemetry.interface import TaskMetrics
from onyx.testing.plugin_kit import SEGMENTS, check_output

pytestmark = pytest.mark.server

TURN_S = 0.02
TURNS_MAX = int(WAIT_S / TURN_S)
BATCHES = ("jsonl", "json-array", "arrow")


@pytest.fixture(autouse=True)
def _patient_and_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "FIRST_PAUSE_S", 0.01)


@pytest.fixture
def endpoint() -> Iterator[HttpEndpoint]:
    endpoint = HttpEndpoint()
    yield endpoint
    endpoint.stop()


@pytest.fixture
def made() -> Iterator[Callable[..., HttpOutput]]:
    outputs: list[HttpOutput] = []

    def make(endpoint: HttpEndpoint | str, **options: Any) -> HttpOutput:
        url = endpoint if isinstance(endpoint, str) else endpoint.url
        context = {key: options.pop(key) for key in CONTEXT if key in options}
        output = build_output("http", plugin_context({"url": url, **options}, **context))
        assert isinstance(output, HttpOutput)
        outputs.append(output)
        return output

    yield make
    for each in outputs:
        each.close()


CONTEXT = ("answers", "clock", "permitted", "incarnation", "task", "data_dir")
Make = Callable[..., HttpOutput]


def numbers(*of: int) -> list[Segment]:
    return [{"n": n} for n in of]


def columns(*of: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(of, pa.int64())})


def until(output: Output, done: Callable[[], bool]) -> None:
    """Turn as the engine does until something holds."""
    waiter = threading.Event()
    for _ in range(TURNS_MAX):
        output.tick()
        if done():
            return
        waiter.wait(TURN_S)
    raise AssertionError("it did not come to pass")


def settle(output: Output, count: int) -> None:
    output.flush()
    until(output, lambda: output.durable() == count)


def failure(output: Output) -> str:
    with pytest.raises(UserError) as raised:
        until(output, lambda: False)
    return str(raised.value)


# --- what is sent -------------------------------------------------------------------------------


def test_it_keeps_to_the_protocol_of_outputs(made: Make) -> None:
    endpoints: list[HttpEndpoint] = []
    permitted: set[str] = set()

    def start() -> tuple[Callable[[GroupId], Output], Callable[[], list[Segment]]]:
        endpoint = HttpEndpoint()
        endpoints.append(endpoint)
        permitted.clear()

        def make(incarnation: GroupId) -> Output:
            # An endpoint has no fence: whoever was declared dead is not permitted any more.
            permitted.clear()
            permitted.add(incarnation)
            return made(
                endpoint,
                format="jsonl",
                incarnation=incarnation,
                permitted=lambda: incarnation in permitted,
            )

        return make, endpoint.rows

    check_output(start, SEGMENTS[:4], batch_size=2)
    for each in endpoints:
        each.stop()


@pytest.mark.parametrize("form", ["json", *BATCHES])
def test_dicts_and_columns_are_sent_once_in_every_format(
    endpoint: HttpEndpoint, made: Make, form: str
) -> None:
    output = made(endpoint, format=form)
    output.write(numbers(0, 1))
    output.write_columns(columns(2, 3))
    output.write_columns(columns())
    output.write(numbers(4))
    settle(output, 5)
    assert endpoint.numbers() == Counter(range(5))
    assert len(endpoint.received) == (5 if form == "json" else 1)
    assert len({each.key for each in endpoint.received}) == len(endpoint.received)


def test_a_request_ends_at_its_limits_and_by_time(endpoint: HttpEndpoint, made: Make) -> None:
    clock = ManualClock()
    output = made(endpoint, format="jsonl", requestSegments=3, requestSeconds=2, clock=clock)
    output.write(numbers(*range(7)))
    until(output, lambda: output.durable() == 6)
    clock.advance(1.9)
    output.tick()
    assert len(endpoint.received) == 2
    clock.advance(0.2)
    until(output, lambda: output.durable() == 7)
    assert [len(each.rows()) for each in endpoint.received if len(each.rows()) == 1] == [1]


def test_method_headers_and_secrets_are_sent(
    endpoint: HttpEndpoint, made: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORDERS_KEY", "k1")
    token = tmp_path / "token"
    token.write_text("Bearer t1\n")
    output = made(
        endpoint,
        method="PUT",
        headers={"X-Source": "onyx", "Content-Type": "application/vnd.orders+json"},
        headersEnv={"X-Api-Key": "ORDERS_KEY"},
        headersFile={"Authorization": str(token)},
        idempotencyHeader="X-Request-Id",
    )
    output.write(numbers(1))
    settle(output, 1)
    token.write_text("Bearer t2, longer\n")
    output.write(numbers(2))
    settle(output, 2)
    first, second = endpoint.received
    assert (first.method, first.path) == ("PUT", "/orders")
    assert first.headers["content-type"] == "application/vnd.orders+json"
    assert first.headers["x-source"] == "onyx"
    assert first.headers["x-api-key"] == "k1"
    assert first.headers["authorization"] == "Bearer t1"
    assert second.headers["authorization"] == "Bearer t2, longer"
    assert first.headers["x-request-id"] != second.headers["x-request-id"]


def test_a_connection_is_kept(endpoint: HttpEndpoint, made: Make) -> None:
    output = made(endpoint, concurrency=1)
    output.write(numbers(*range(50)))
    settle(output, 50)
    assert endpoint.connections == 1
    assert [row["n"] for row in endpoint.rows()] == list(range(50)), "one at a time is in order"


def test_no_more_requests_are_on_their_way_than_allowed(endpoint: HttpEndpoint, made: Make) -> None:
    output = made(endpoint, concurrency=3)
    output.write(numbers(*range(200)))
    settle(output, 200)
    assert 1 <= endpoint.in_flight_max <= 3
    assert endpoint.connections <= 3


# --- keys ---------------------------------------------------------------------------------------


def test_the_key_comes_from_the_segment_or_from_the_content(
    endpoint: HttpEndpoint, made: Make
) -> None:
    by_field = made(endpoint, idempotencyKey="id")
    by_field.write([{"id": "a b", "n": 1}, {"id": 7, "n": 2}])
    by_field.write_columns(pa.record_batch({"id": ["c"], "n": [3]}))
    settle(by_field, 3)
    assert {each.key for each in endpoint.received} == {"a%20b", "7", "c"}
    with pytest.raises(UserError, match="key 'id' holds nothing"):
        by_field.write([{"n": 1}])
    by_content = made(endpoint, idempotency="content")
    by_content.write([{"n": 9}, {"n": 9}, {"n": 8}])
    settle(by_content, 3)
    assert endpoint.numbers() == Counter([1, 2, 3, 9, 8])


def test_a_request_is_repeated_under_its_key(endpoint: HttpEndpoint, made: Make) -> None:
    # Processed, but the answer is lost.
    endpoint.script.extend([Reply(how="close"), Reply(how="half"), Reply(503, taken=True)])
    output = made(endpoint, concurrency=1)
    output.write(numbers(1, 2))
    settle(output, 2)
    assert len(endpoint.received) == 5
    assert len({each.key for each in endpoint.received}) == 2
    assert endpoint.numbers() == Counter([1, 2])


# --- what passes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reply",
    [Reply(408), Reply(425), Reply(429), Reply(500), Reply(503), Reply(599), Reply(999),
     Reply(103), Reply(how="close"), Reply(how="reset"), Reply(how="garbage"), Reply(how="half"),
     Reply(200, {"Content-Length": "x"}), Reply(503, {"Retry-After": "0"}),
     Reply(503, {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}),
     Reply(503, {"Retry-After": "soon"})],
    ids=str,
)  # fmt: skip
def test_what_may_pass_is_tried_again(endpoint: HttpEndpoint, made: Make, reply: Reply) -> None:
    endpoint.script.extend([reply, reply])
    output = made(endpoint, concurrency=1, timeoutSeconds=0.5)
    output.write(numbers(1))
    settle(output, 1)
    assert len(endpoint.received) >= 2
    assert endpoint.numbers() == Counter([1])


def test_a_pause_that_the_server_asks_for_is_kept_by_all_requests(
    endpoint: HttpEndpoint, made: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    put_off = sender.Sender._put_off

    def seen(self: sender.Sender, answer: connection.HttpAnswer, tries: int) -> None:
        asked.append(connection.asked_pause_s(answer.retry_after, 0))
        put_off(self, answer, tries)

    monkeypatch.setattr(sender.Sender, "_put_off", seen)
    endpoint.script.append(Reply(429, {"Retry-After": "1"}))
    output = made(endpoint, concurrency=1)
    output.write(numbers(1, 2))
    assert output.durable() == 0
    settle(output, 2)
    assert asked == [1.0]
    assert len(endpoint.received) == 3


@pytest.mark.parametrize("how", ["hang", "drip"])
def test_a_server_that_never_comes_to_an_end_is_broken_off(
    endpoint: HttpEndpoint, made: Make, how: str
) -> None:
    endpoint.script.append(Reply(how=how, body=b"x" * 5_000, taken=False))
    output = made(endpoint, concurrency=1, timeoutSeconds=0.5)
    output.write(numbers(1))
    settle(output, 1)
    assert len(endpoint.received) == 2


def test_a_server_that_restarts_gets_everything(endpoint: HttpEndpoint, made: Make) -> None:
    output = made(endpoint, format="jsonl", requestSegments=5, retrySecondsMax=0.1)
    written = 0
    for round_ in range(5):
        output.write(numbers(*range(written, written + 50)))
        written += 50
        if round_ % 2:
            endpoint.stop()
            endpoint.start()
    settle(output, written)
    assert endpoint.numbers() == Counter(range(written))


def test_while_the_server_is_away_no_more_is_taken_than_there_is_room_for(
    endpoint: HttpEndpoint, made: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "QUEUE_REQUESTS_MAX", 10)
    endpoint.stop()
    output = made(endpoint, retrySecondsMax=0.1)
    output.write(numbers(*range(20)))
    with pytest.raises(Unavailable, match=r"POST http://localhost:\d+/orders: waits for answers"):
        output.write(numbers(20))
    assert output.durable() == 0
    endpoint.start()
    until(output, lambda: output.durable() == 20)
    output.write(numbers(20))
    settle(output, 21)
    assert endpoint.numbers() == Counter(range(21))


def test_room_is_counted_in_bytes_too(
    endpoint: HttpEndpoint, made: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "QUEUE_BYTES_MAX", 1_000)
    endpoint.stop()
    output = made(endpoint)
    output.write([{"text": "x" * 2_000}])
    with pytest.raises(Unavailable, match="waits for answers"):
        output.write(numbers(20))


def test_an_output_closes_while_the_server_is_away_or_hangs(made: Make) -> None:
    endpoint = HttpEndpoint()
    endpoint.rule = lambda request: Reply(how="hang", taken=False)
    output = made(endpoint)
    output.write(numbers(1, 2))
    until(output, lambda: len(endpoint.received) == 2)
    before = threading.active_count()
    output.close()
    endpoint.stop()
    away = made(endpoint)
    away.write(numbers(1))
    away.close()
    assert threading.active_count() <= before


def test_nothing_is_sent_while_this_incarnation_may_be_dead(
    endpoint: HttpEndpoint, made: Make
) -> None:
    allowed: list[bool] = []
    output = made(endpoint, permitted=lambda: bool(allowed))
    output.write(numbers(1))
    output.flush()
    assert endpoint.received == []
    allowed.append(True)
    settle(output, 1)


# --- what does not pass ---------------------------------------------------------------------------


def test_a_refusal_ends_the_job_with_url_status_and_answer(
    endpoint: HttpEndpoint, made: Make
) -> None:
    endpoint.script.append(Reply(422, body=b'{"why": "no customer"}'))
    output = made(endpoint)
    output.write(numbers(1))
    text = failure(output)
    assert text.startswith("job 'flights', task 'work': POST http://localhost:")
    assert '/orders failed: 422 Unprocessable Entity: {"why": "no customer"}' in text
    assert "begins with '{\"n\":1}'; deadLetterPath" in text
    assert output.durable() == 0
    with pytest.raises(UserError):
        output.write(numbers(2))


@pytest.mark.parametrize("form", ["json", *BATCHES])
def test_a_refusal_is_told_where_it_may_be_the_answer_to_a_request(
    endpoint: HttpEndpoint, made: Make, form: str
) -> None:
    endpoint.rule = lambda request: (
        Reply(422, body=b"odd") if any(row["n"] % 2 for row in request.rows()) else None
    )
    output = made(endpoint, format=form, requestSegments=1, answers=True)
    output.write(numbers(0, 1))
    settle(output, 2)
    output.write_columns(columns(2, 3, 4))
    settle(output, 5)
    assert endpoint.numbers() == Counter([0, 2, 4])
    told = output.take_refused()
    assert [(each.first, each.segments, each.kept) for each in told] == [
        (1, 1, False),
        (3, 1, False),
    ]
    assert "422 Unprocessable Entity: odd (deadLetterPath collects" in str(told[0].error)
    assert output.take_refused() == []


def test_tries_that_came_to_an_end_are_told_too(endpoint: HttpEndpoint, made: Make) -> None:
    endpoint.rule = lambda request: Reply(503, body=b"down")
    output = made(endpoint, retriesMax=2, answers=True)
    output.write(numbers(1))
    settle(output, 1)
    (told,) = output.take_refused()
    assert "503 Service Unavailable: down (it was tried 3 times" in str(told.error)


@pytest.mark.parametrize("status", [401, 302])
def test_a_job_that_is_wrong_ends_though_requests_have_come(
    endpoint: HttpEndpoint, made: Make, status: int
) -> None:
    endpoint.rule = lambda request: Reply(status)
    output = made(endpoint, answers=True)
    output.write(numbers(1))
    assert f"failed: {status}" in failure(output)


@pytest.mark.parametrize("exactly_once", [False, True])
def test_letters_are_told_with_what_they_are_about(
    endpoint: HttpEndpoint, made: Make, log: Log, tmp_path: Path, exactly_once: bool
) -> None:
    endpoint.rule = lambda request: Reply(400) if request.rows()[0]["n"] % 2 else None
    output = made(endpoint, deadLetterPath=str(tmp_path / "bad"), answers=True)
    if exactly_once:
        output.begin(log.commit)
    for n in range(4):
        output.write(numbers(n))
        settle(output, n + 1)
    told = output.take_refused()
    assert [(each.first, each.segments, each.kept) for each in told] == [(1, 1, True), (3, 1, True)]


def test_exactly_once_a_refusal_without_letters_ends_the_job_whoever_has_sent_it(
    endpoint: HttpEndpoint, made: Make, log: Log
) -> None:
    endpoint.rule = lambda request: Reply(400)
    output = made(endpoint, answers=True, rollSegments=1)
    output.begin(log.commit)
    output.write(numbers(1))
    assert "400 Bad Request" in failure(output)
    assert output.take_refused() == []


def test_secrets_are_in_no_message(
    endpoint: HttpEndpoint, made: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTHORIZATION", "Bearer s3cr3t")
    monkeypatch.setenv("URL", f"{endpoint.url}?key=hidden-too")
    endpoint.rule = lambda request: Reply(
        401, body=f"no {request.headers['authorization']}; s3cr3t, {request.path}".encode()
    )
    context = {"urlEnv": "URL", "headersEnv": {"Authorization": "AUTHORIZATION"}}
    output = build_output("http", plugin_context(context))
    output.write(numbers(1))
    text = failure(output)
    output.close()
    assert "s3cr3t" not in text
    assert "/orders?... failed: 401 Unauthorized: no ***; ***, /orders?***" in text
    assert "look at what headersEnv and headersFile name" in text


@pytest.mark.parametrize(
    ("status", "to", "followed"),
    [(307, "/other", True), (308, "{url}x", True), (302, "/other", False),
     (307, "http://127.0.0.1:{port}/orders", False), (307, "https://localhost/", False),
     (308, "", False), (307, "http://[", False)],
)  # fmt: skip
def test_a_redirect_is_followed_to_the_same_server_only(
    endpoint: HttpEndpoint, made: Make, status: int, to: str, followed: bool
) -> None:
    location = to.format(url=endpoint.url, port=endpoint.port)
    endpoint.script.append(Reply(status, {"Location": location} if location else {}))
    output = made(endpoint)
    output.write(numbers(1))
    if followed:
        settle(output, 1)
        assert endpoint.received[1].method == "POST"
    else:
        assert "is not followed; name the URL" in failure(output)
        assert len(endpoint.received) == 1


def test_a_server_that_redirects_in_a_circle_is_given_up(
    endpoint: HttpEndpoint, made: Make
) -> None:
    endpoint.rule = lambda request: Reply(307, {"Location": endpoint.url})
    output = made(endpoint)
    output.write(numbers(1))
    assert "is not followed" in failure(output)
    assert len(endpoint.received) <= 5


def test_a_server_that_is_still_at_work_on_a_request_is_waited_for(
    endpoint: HttpEndpoint, made: Make
) -> None:
    endpoint.script.extend([Reply(how="close", taken=True), Reply(409), Reply(409)])
    output = made(endpoint)
    output.write(numbers(1))
    settle(output, 1)
    assert len(endpoint.received) == 4
    endpoint.script.append(Reply(409))
    output.write(numbers(2))
    assert "409 Conflict" in failure(output)


def test_tries_come_to_an_end_if_the_job_says_so(endpoint: HttpEndpoint, made: Make) -> None:
    endpoint.rule = lambda request: Reply(503, body=b"down")
    output = made(endpoint, retriesMax=2)
    output.write(numbers(1))
    assert "failed: 503 Service Unavailable: down (it was tried 3 times" in failure(output)
    assert len(endpoint.received) == 3


# --- dead letters ---------------------------------------------------------------------------------


def letters(folder: Path) -> list[dict[str, Any]]:
    texts = [path.read_text() for path in sorted(folder.glob("part-*"))]
    return [json.loads(line) for text in texts for line in text.splitlines()]


@pytest.mark.parametrize("form", ["json", *BATCHES])
def test_what_is_refused_is_written_as_dead_letters(
    endpoint: HttpEndpoint, made: Make, tmp_path: Path, form: str
) -> None:
    endpoint.rule = lambda request: (
        Reply(400, body=b"odd") if any(row["n"] % 2 for row in request.rows()) else None
    )
    output = made(endpoint, format=form, requestSegments=1, deadLetterPath=str(tmp_path / "bad"))
    output.fence([GroupId("incarnation-1")])
    output.write(numbers(*range(6)))
    settle(output, 6)
    assert endpoint.numbers() == Counter([0, 2, 4])
    found = letters(tmp_path / "bad")
    assert sorted(each["segment"]["n"] for each in found) == [1, 3, 5]
    first = found[0]
    assert first["error"]["message"] == "400 Bad Request: odd"
    assert first["error"]["url"] == endpoint.url
    assert (first["job"], first["task"], first["tries"]) == ("job-1", "work", 1)


class Counted(TaskMetrics):
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.notes: list[str] = []

    def add(self, metric: Metric, amount: float = 1) -> None:
        self.counts[metric.name] += int(amount)

    def note(self, metric: Metric, text: Callable[[], str]) -> None:
        self.notes.append(text())


def test_what_happens_to_requests_is_counted(endpoint: HttpEndpoint, tmp_path: Path) -> None:
    metrics = Counted()
    given = {"url": endpoint.url, "deadLetterPath": str(tmp_path / "bad"), "concurrency": 1}
    output = build_output("http", replace(plugin_context(given), metrics=metrics))
    endpoint.script.extend([Reply(503), Reply(how="close"), Reply(), Reply(400, body=b"odd")])
    output.write(numbers(1, 2))
    settle(output, 2)
    output.close()
    assert metrics.counts == {
        "onyx_http_requests_total": 1,
        "onyx_http_retries_total": 2,
        "onyx_http_refusals_total": 1,
        "onyx_task_dead_letters_total": 1,
    }
    assert metrics.notes == ["400 Bad Request: odd"]


def test_a_refusal_is_not_durable_before_its_letter_is(
    endpoint: HttpEndpoint, made: Make, tmp_path: Path
) -> None:
    clock = ManualClock()
    endpoint.script.append(Reply(400))
    output = made(
        endpoint, deadLetterPath="bad", data_dir=str(tmp_path), concurrency=1, clock=clock
    )
    output.write(numbers(1, 2))
    until(output, lambda: endpoint.numbers() == Counter([2]))
    output.tick()
    assert output.durable() == 0
    assert letters(tmp_path / "bad") == []
    clock.advance(10)
    until(output, lambda: output.durable() == 2)
    assert [each["segment"] for each in letters(tmp_path / "bad")] == [{"n": 1}]


def test_credentials_that_are_refused_are_no_matter_of_dead_letters(
    endpoint: HttpEndpoint, made: Make, tmp_path: Path
) -> None:
    endpoint.rule = lambda request: Reply(401)
    output = made(endpoint, deadLetterPath=str(tmp_path))
    output.write(numbers(1))
    assert "401 Unauthorized" in failure(output)


# --- exactly once ---------------------------------------------------------------------------------


class Log:
    """The state log: what was committed."""

    def __init__(self, endpoint: HttpEndpoint) -> None:
        self._endpoint = endpoint
        self.commits: list[tuple[Token, int]] = []
        self.fails = False

    def commit(self, token: Token, segments: int) -> None:
        keys = {request[0] for request in token["requests"]}
        sent = {each.key for each in self._endpoint.received}
        assert not keys & sent, "nothing is sent before it is committed"
        if self.fails:
            raise Unavailable("the log is away")
        self.commits.append((token, segments))


@pytest.fixture
def log(endpoint: HttpEndpoint) -> Log:
    return Log(endpoint)


@pytest.mark.parametrize("form", ["json", *BATCHES])
def test_what_is_committed_is_sent_once_by_whoever_takes_over(
    endpoint: HttpEndpoint, made: Make, log: Log, form: str
) -> None:
    endpoint.rule = lambda request: Reply(503) if request.rows()[0]["n"] >= 4 else None
    output = made(endpoint, format=form, requestSegments=2)
    output.begin(log.commit)
    output.write(numbers(0, 1, 2))
    output.write_columns(columns(3, 4, 5))
    output.flush()
    until(output, lambda: endpoint.numbers() == Counter(range(4)))
    assert output.durable() == 0
    output.close()
    endpoint.rule = lambda request: None
    ((token, segments),) = log.commits
    assert segments == 6
    for incarnation in ("second", "third"):
        successor = made(endpoint, format=form, incarnation=incarnation)
        successor.finish(token)
        successor.finish(token)
    assert endpoint.numbers() == Counter(range(6))


def test_one_unit_is_sent_after_the_other(endpoint: HttpEndpoint, made: Make, log: Log) -> None:
    output = made(endpoint, rollSegments=2, retrySecondsMax=0.05)
    output.begin(log.commit)
    endpoint.rule = lambda request: Reply(503)
    output.write(numbers(0, 1))
    until(output, lambda: bool(endpoint.received))
    output.write(numbers(2, 3))

    def refusal() -> str:
        with pytest.raises(Unavailable) as refused:
            output.write(numbers(4))
        return str(refused.value)

    # The endpoint has the request before the output has its answer.
    until(output, lambda: "waits for answers, the last one was 503" in refusal())
    assert len(log.commits) == 1
    endpoint.rule = lambda request: None
    until(output, lambda: output.durable() == 2)
    output.write(numbers(4))
    settle(output, 5)
    assert endpoint.numbers() == Counter(range(5))
    assert sum(segments for _, segments in log.commits) == 5


def test_a_commit_in_doubt_is_repeated_under_its_token(
    endpoint: HttpEndpoint, made: Make, log: Log
) -> None:
    output = made(endpoint)
    output.begin(log.commit)
    output.write(numbers(0))
    log.fails = True
    with pytest.raises(Unavailable):
        output.flush()
    assert endpoint.received == []
    log.fails = False
    settle(output, 1)
    assert len(log.commits) == 1


def test_a_new_version_drops_what_is_not_committed(
    endpoint: HttpEndpoint, made: Make, log: Log
) -> None:
    output = made(endpoint, format="jsonl")
    output.begin(log.commit)
    output.write(numbers(0))
    settle(output, 1)
    output.write(numbers(1))
    output.begin(log.commit)
    assert output.durable() == 1
    output.finish(log.commits[0][0])
    assert len(endpoint.received) == 1, "what this output has settled need not be sent again"
    output.write(numbers(2))
    settle(output, 2)
    assert endpoint.numbers() == Counter([0, 2])


def test_a_new_version_waits_for_what_is_committed(
    endpoint: HttpEndpoint, made: Make, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_module, "WAIT_S_MAX", 0.1)
    endpoint.rule = lambda request: Reply(503)
    output = made(endpoint, retrySecondsMax=0.05)
    output.begin(log.commit)
    output.write(numbers(0))
    output.flush()
    with pytest.raises(Unavailable):
        output.begin(log.commit)
    endpoint.rule = lambda request: None
    until(output, lambda: output.durable() == 1)
    output.begin(log.commit)
    assert (output.durable(), endpoint.numbers()) == (1, Counter([0]))


def test_a_refusal_after_the_commit_becomes_a_letter(
    endpoint: HttpEndpoint, made: Make, log: Log, tmp_path: Path
) -> None:
    endpoint.rule = lambda request: Reply(400)
    output = made(endpoint, deadLetterPath=str(tmp_path / "bad"))
    output.begin(log.commit)
    output.write(numbers(0, 1))
    settle(output, 2)
    assert sorted(each["segment"]["n"] for each in letters(tmp_path / "bad")) == [0, 1]


# --- TLS ------------------------------------------------------------------------------------------


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


def served(authority: trustme.CA, clients: trustme.CA | None = None) -> HttpEndpoint:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    if clients is not None:
        clients.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return HttpEndpoint(context)


def test_a_server_is_trusted_by_a_file_and_gets_the_certificate_of_the_task(
    authority: trustme.CA, made: Make, tmp_path: Path
) -> None:
    Secret(tmp_path / "tls", authority)
    endpoint = served(authority, clients=authority)
    files = {"caFile": "tls/ca.crt", "certificateFile": "tls/tls.crt", "keyFile": "tls/tls.key"}
    output = made(endpoint, data_dir=str(tmp_path), **files)
    output.write(numbers(*range(20)))
    settle(output, 20)
    assert endpoint.connections <= 8, "they are kept"
    other = trustme.CA()
    endpoint.stop()
    Secret(tmp_path / "tls", other)
    renewed = served(other, clients=other)
    again = made(renewed, data_dir=str(tmp_path), **files)
    again.write(numbers(2))
    settle(again, 1)
    renewed.stop()


def test_certificates_that_change_are_used_by_the_next_connection(
    authority: trustme.CA, made: Make, tmp_path: Path
) -> None:
    secret = Secret(tmp_path / "tls", authority)
    endpoint = served(authority)
    output = made(endpoint, caFile=str(tmp_path / "tls" / "ca.crt"), concurrency=1)
    output.write(numbers(1))
    settle(output, 1)
    other = trustme.CA()
    secret.issue(other)
    endpoint.stop()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    other.issue_cert("localhost").configure_cert(context)
    endpoint.tls = context
    endpoint.start()
    output.write(numbers(2))
    settle(output, 2)
    endpoint.stop()


def test_a_server_that_is_not_trusted_gets_nothing(
    authority: trustme.CA, made: Make, tmp_path: Path
) -> None:
    endpoint = served(authority)
    Secret(tmp_path / "tls", authority, trusted=trustme.CA())
    output = made(endpoint, caFile=str(tmp_path / "tls" / "ca.crt"))
    output.write(numbers(1))
    text = failure(output)
    assert "certificate verify failed" in text
    assert "caFile names whom to trust" in text
    assert endpoint.received == []
    endpoint.stop()


@pytest.mark.parametrize(
    ("option", "file"), [("caFile", "none"), ("caFile", "tls.key"), ("certificateFile", "ca.crt")]
)
def test_a_wrong_file_is_named(
    authority: trustme.CA, made: Make, tmp_path: Path, option: str, file: str
) -> None:
    Secret(tmp_path / "tls", authority)
    with pytest.raises(UserError, match=f"option '{option}'"):
        made("https://localhost/", **{option: str(tmp_path / "tls" / file)})


def test_what_was_answered_behind_a_request_that_waits_is_limited(
    endpoint: HttpEndpoint, made: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_module, "UNSETTLED_MAX", 5)
    endpoint.rule = lambda request: Reply(503) if request.rows() == numbers(0) else None
    output = made(endpoint, retrySecondsMax=0.05)
    output.write(numbers(*range(9)))
    until(output, lambda: endpoint.numbers() == Counter(range(1, 9)))
    assert output.durable() == 0
    with pytest.raises(Unavailable, match="waits for answers"):
        output.write(numbers(9))
    endpoint.rule = lambda request: None
    until(output, lambda: output.durable() == 9)
