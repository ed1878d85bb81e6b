"""How far jobs are behind: workers are asked, and what they answer is not trusted."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from immutables import Map
from msgspec.structs import replace
from tests.operator.declaring import FAST, add_pod, phase, started
from tests.operator.fake_api.server import FakeApi
from tests.operator.harness import Logs, Operator, cluster
from tests.operator.workers import Workers
from tests.support.log.runs import altered

from onyx.ids import GroupId, JobId, PeerId, TaskName
from onyx.replica.state import Replica
from onyx.reports.measures import (
    Durations,
    InputMeasures,
    JobMeasures,
    TaskMeasures,
    WorkerMeasures,
)
from onyx.settings import Settings
from onyx.telemetry.http_server import TelemetryServer
from onyx_operator import pages
from onyx_operator.clusters import observe
from onyx_operator.kube import KubeError
from onyx_operator.logs import lags as module
from onyx_operator.logs.lags import JobLags, documents, lag_of, lags
from onyx_operator.logs.state import JobLag
from onyx_operator.owners import Tenant
from onyx_operator.pages import ANSWERED, obstacles, page

JOB, OTHER = JobId("job-1"), JobId("job-2")
READ = TaskName("t")
GROUPS = (GroupId("g0"), GroupId("g1"))
PEERS = (PeerId("p0"), PeerId("p1"))


def running(replica: Replica, job: JobId, *peers: PeerId) -> Replica:
    return altered(replica, job, allocation=Map({READ: peers}))


REPLICA = running(
    Replica(groups_reverse_index=Map(dict(zip(PEERS, GROUPS, strict=True)))), JOB, *PEERS
)


def worker(
    group: str, segments: int | None = 5, job: str = JOB, task: str = READ
) -> WorkerMeasures:
    read = InputMeasures(1, segments, None, 2.0, complete=Durations((0.1, 1.0), (1, 1, 0), 0.5))
    return WorkerMeasures(group, 0, (TaskMeasures(job, task, 1, in_per_s=10.4, input=read),))


def test_a_job_has_the_sum_of_its_workers() -> None:
    answers = [worker("g0"), worker("g1", 7), worker("of another job", 9, OTHER)]
    assert lags(REPLICA, [JOB], answers) == {JOB: JobLag(12, None, 2, 21, 1_000)}


@pytest.mark.parametrize(
    "answers",
    [[], [worker("g0")], [worker("g0", job=OTHER), worker("g1", job=OTHER)]],
    ids=["nobody", "one of two", "they have no such job yet"],
)
def test_where_a_worker_is_silent_nothing_is_said(answers: Sequence[WorkerMeasures]) -> None:
    assert lags(REPLICA, [JOB], answers) == {}


def test_of_what_nobody_knows_nothing_is_said() -> None:
    assert lag_of(JobMeasures()) is None
    assert lag_of(JobMeasures(per_s=0.4)) == JobLag(per_s=0)


def test_figures_fit_into_a_status_whatever_a_worker_says() -> None:
    found = lag_of(JobMeasures(1e300, 10**40, -5, float("inf")))
    assert found == JobLag(2**53, 0, 2**53, 2**53)


@pytest.mark.parametrize(
    "complete",
    [Durations((), (1,)), Durations((0.1,), (1,)), Durations((), (1, 2, 3))],
)
def test_a_histogram_that_is_none_counts_for_nothing(complete: Durations) -> None:
    task = TaskMeasures(JOB, READ, 1, input=InputMeasures(1, 5, complete=complete))
    (found,) = documents(msgspec.json.encode([WorkerMeasures("g0", 0, (task,))]), REPLICA)
    assert found.tasks == ()


def test_tasks_that_the_log_does_not_know_are_dropped() -> None:
    many = [TaskMeasures(JOB, READ, 1, input=InputMeasures(1, 1)) for _ in range(1_000)]
    others = [worker("", job=f"job-{n}").tasks[0] for n in range(5, 1_000)]
    others.append(worker("", task="another").tasks[0])
    body = msgspec.json.encode([WorkerMeasures("g0", 0, (*many, *others))])
    (found,) = documents(body, REPLICA)
    assert [(each.job, each.task, each.peers) for each in found.tasks] == [(JOB, READ, 1_000)]


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b"\xff", b"[" * 100_000, b'[{"group": 1}]'])
def test_what_is_no_document_says_nothing(body: bytes) -> None:
    assert documents(body, REPLICA) == []


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]


@contextlib.asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[int]:
    calls: list[asyncio.Task[Any]] = []

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        calls.append(asyncio.create_task(serve(reader, writer)))

    server = await asyncio.start_server(begin, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await asyncio.gather(*calls)


def answer(data: bytes, ends: bool = True) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        with contextlib.suppress(OSError):
            writer.write(data)
            await writer.drain()
            if not ends:
                await reader.read()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    return serve


def asked(serve: Serve) -> bytes:
    async def ask() -> bytes:
        async with serving(serve) as port:
            status, body = await page("127.0.0.1", port, "/lag")
            return body if status == ANSWERED else b""

    return asyncio.run(ask())


def test_a_page_is_its_body() -> None:
    assert asked(answer(b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n[]")) == b"[]"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"HTTP/1.1 404 Not Found\r\n\r\npages: /livez",
        b"200",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * pages.PAGE_BYTES_MAX,
    ],
    ids=["nothing", "an older worker", "no HTTP", "too much"],
)
def test_another_answer_is_none(data: bytes) -> None:
    assert asked(answer(data)) == b""


def test_who_hangs_or_is_not_there_has_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "TIMEOUT_S", 0.05)
    assert asked(answer(b"HTTP/1.1 200 OK\r\n\r\n[", ends=False)) == b""
    assert asyncio.run(page("127.0.0.1", 1, "/lag")) == (0, b"")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\nok\n", []),
        (
            b"HTTP/1.1 503 No\r\n\r\npaused: the log has not answered for 17 s\n",
            ["pod says: paused: the log has not answered"],
        ),
        (b"HTTP/1.1 503 No\r\n\r\nred \x1b[31m", ["pod does not answer"]),
        (b"HTTP/1.1 404 No\r\n\r\npages: /a", ["pod does not answer"]),
        (b"HTTP/1.1 503 No\r\n\r\n" + b"a" * 999, [f"pod says: {'a' * 200}"]),
        (b"", ["pod does not answer"]),
    ],
    ids=["ready", "since when", "no words", "an older one", "long", "nothing"],
)
def test_a_pod_says_why_it_is_not_ready(said: bytes, expected: list[str]) -> None:
    async def ask() -> list[str]:
        async with serving(answer(said)) as port:
            return await obstacles([("pod", ("127.0.0.1", port))])

    assert asyncio.run(ask()) == expected


def learnt(monkeypatch: pytest.MonkeyPatch, *serves: Serve) -> dict[JobId, JobLag]:
    """What is known of jobs when workers that answer so have been asked."""
    monkeypatch.setattr(pages, "TIMEOUT_S", 0.05)
    replica = replace(REPLICA, jobs=(JOB,))
    log: Any = SimpleNamespace(replica=replica, trouble=None)
    changed: list[Any] = []

    async def look() -> JobLag | None:
        async with contextlib.AsyncExitStack() as opened:
            ports = [await opened.enter_async_context(serving(each)) for each in serves]

            async def workers() -> list[tuple[str, int]]:
                return [("127.0.0.1", port) for port in ports]

            known = JobLags(log, workers, changed.append)
            await known.look()
            return known.of(JOB)

    found = asyncio.run(look())
    assert changed == ([] if found is None else [[JOB]])
    return {} if found is None else {JOB: found}


def says(*answers: WorkerMeasures) -> Serve:
    return answer(b"HTTP/1.1 200 OK\r\n\r\n" + msgspec.json.encode(answers))


def test_workers_that_hang_keep_nothing_of_what_others_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hang = [answer(b"HTTP/1.1 200 OK\r\n\r\n[", ends=False)] * 6
    found = learnt(monkeypatch, *hang, says(worker("g0")), says(worker("g1")), *hang)
    assert found[JOB].segments == 10


def test_what_all_workers_answer_together_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AT_ONCE", 1)
    both = says(worker("g0")), says(worker("g1"))
    assert learnt(monkeypatch, *both)
    monkeypatch.setattr(module, "PAGES_BYTES_MAX", 100)
    assert learnt(monkeypatch, *both) == {}


def test_that_nobody_answers_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log: Any = SimpleNamespace(replica=replace(REPLICA, jobs=(JOB,)), trouble=None)
    asked: list[int] = []

    async def workers() -> list[tuple[str, int]]:
        asked.append(1)
        if len(asked) == 1:
            raise KubeError(403, "Forbidden", "pods is forbidden")
        return []

    async def look() -> None:
        known = JobLags(log, workers, lambda _: None, "team.blue")
        for _ in range(3):
            await known.look()

    asyncio.run(look())
    assert [each.getMessage() for each in caplog.records] == [
        "how far the jobs of tenancy team.blue are behind is not known: 403 Forbidden: pods is "
        "forbidden"
    ]


class Pod:
    """A pod of a cluster, whose worker says how far a job is behind."""

    def __init__(self, api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
        self.says: list[WorkerMeasures] = []
        self.server = TelemetryServer(
            "127.0.0.1", 0, None, lambda: True, lambda: True, lag=self._lag
        )
        monkeypatch.setattr(observe, "METRICS_PORT", self.server.port)
        add_pod(api, "onyx")

    def _lag(self) -> bytes:
        return msgspec.json.encode(self.says)


@pytest.fixture
def pod(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> Any:
    found = Pod(api, monkeypatch)
    yield found
    found.server.close()


def test_a_status_says_how_far_a_job_is_behind_while_its_workers_say_it(
    api: FakeApi, logs: Logs, workers: Workers, pod: Pod
) -> None:
    api.create(cluster())
    with Operator(api, logs.connect, FAST):
        job = started(api)
        assert "lag" not in api.get("onyxjobs", "job")["status"]  # type: ignore[index]
        pod.says = [worker("group", 1_234, job, "read")]
        found = api.wait_for("onyxjobs", "job", lambda each: "lag" in each["status"])
        lag = found["status"]["lag"]
        assert lag.pop("measuredAt")
        assert lag == {
            "text": "1,234 (2 s)",
            "segments": 1_234,
            "seconds": 2,
            "segmentsPerSecond": 10,
            "latencyMilliseconds": 1_000,
        }
        pod.says = [worker("group", 0, job, "read")]
        api.wait_for("onyxjobs", "job", lambda each: each["status"]["lag"]["segments"] == 0)
        pod.says = []
        api.wait_for("onyxjobs", "job", lambda each: "lag" not in each["status"])
        assert phase("Running", "Running")(api.get("onyxjobs", "job"))


def test_workers_are_those_of_the_cluster_that_has_the_log() -> None:
    lists: list[tuple[Any, ...]] = []

    class Api:
        async def list_all(self, *asked: Any) -> list[Any]:
            lists.append(asked)
            return [{"status": {"podIP": "10.0.0.7"}}, {"status": {}}, {}]

    def pages(owner: str) -> list[tuple[str, int]]:
        api: Any = Api()
        return asyncio.run(observe.worker_pages(api, Settings(tenancy_owner=owner)))

    assert pages(str(Tenant("server", "team", "blue"))) == [("10.0.0.7", 9600)]
    assert pages("somebody") == []
    ((_, namespace, labels),) = lists
    assert namespace == "team"
    assert "onyx.dev/cluster=blue" in labels
