"""Attacked: what strangers learn of jobs by asking the port for HTTP."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.clocks import ManualClock
from tests.support.log.memory_log import MemoryLog
from tests.support.log.replica_log import ReplicaLog
from tests.support.servers.fake_requests import at_once

from onyx.client.submissions import submission
from onyx.gateway.app import App
from onyx.ids import JobId
from onyx.model.canonical import to_mapping
from onyx.model.job import CatalogEntry, Job
from onyx.peer.router.inputs import InputAccess, InputTokens, RequestInputs
from onyx.replica.commands import KillJob
from onyx.requests.request import Answer, Append, Caller, RequestTarget, Status
from onyx.rights import of_its_author
from onyx.settings import HttpSettings, Settings
from onyx.telemetry.interface import GroupMetrics

ID = "5e0c7a52-0000-4000-8000-000000000001"


class Cluster:
    """A gateway before what a worker knows of a log with a job of two inputs."""

    def __init__(self, tokens: Path) -> None:
        self.replicas, self.clock = ReplicaLog(), ManualClock()
        self.log = MemoryLog().client()
        self.known = RequestInputs(lambda: self.replicas.new, self.log, self.clock)
        settings = of_its_author(Settings(http=HttpSettings(port=0)))
        self.access = InputAccess(self.known, InputTokens(settings, self.clock), at_once)
        self.app = App(settings, self, self.clock, GroupMetrics())
        guarded = {"tokenFile": str(tokens)}
        entries = (
            CatalogEntry("orders", "input", plugin="http", options=guarded),
            CatalogEntry("bus", "input", plugin="requests"),
            CatalogEntry("out", "output", plugin="blackhole"),
        )
        self.job = Job("shop", (("orders", "out"), ("bus", "out")), entries)

    def submit(self, id: str = ID) -> None:
        digest = self.log.put_chunk(msgspec.json.encode(to_mapping(self.job)))
        self.replicas.tell(submission(JobId(id), self.job, digest, "balanced"))

    async def find(
        self, job: str, task: str, is_new: bool, caller: Caller
    ) -> RequestTarget | Answer:
        found = await self.access.find(job, task, is_new, caller)
        return found if isinstance(found, Answer) else RequestTarget(found.job, found.task)

    async def append(self, append: Append) -> Answer:
        return Answer(Status.PROCESSED, segments=1)

    def post(self, path: str, *, token: str = "", id: str = "") -> tuple[int, Any]:
        return asyncio.run(self._post(path, token, id))

    async def _post(self, path: str, token: str, id: str) -> tuple[int, Any]:
        headers = [(b"content-type", b"application/json"), (b"content-length", b"2")]
        headers += [(b"authorization", f"Bearer {token}".encode())] if token else []
        headers += [(b"idempotency-key", id.encode())] if id else []
        scope = {
            "type": "http", "method": "POST", "raw_path": path.encode(), "query_string": b"",
            "headers": headers,
        }  # fmt: skip
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": b"{}", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        self.clock.advance(1)
        await self.app(scope, receive, send)
        return sent[0]["status"], json.loads(sent[1]["body"])


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    tokens = tmp_path / "tokens"
    tokens.write_text("right\n")
    return Cluster(tokens)


ASKED = ["shop/nope", "shop/bus", "shop", f"{ID}/nope", f"{ID}/bus", "5/orders", "5e0c", "s/orders"]
BY_STRANGERS = pytest.mark.parametrize("token", ["", "wrong"])


@BY_STRANGERS
@pytest.mark.parametrize("id", ["", "request-1"])
@pytest.mark.parametrize("asked", ASKED)
def test_a_stranger_is_answered_as_if_the_job_were_not_there(
    asked: str, id: str, token: str, cluster: Cluster
) -> None:
    before = cluster.post(f"/jobs/{asked}", token=token, id=id)
    cluster.submit()
    after = cluster.post(f"/jobs/{asked}", token=token, id=id)
    assert after == before
    cluster.submit("5e0c7a52-0000-4000-8000-000000000002")
    assert cluster.post(f"/jobs/{asked}", token=token, id=id) == before
    cluster.replicas.tell(KillJob(JobId(ID)))
    assert cluster.post(f"/jobs/{asked}", token=token, id=id) == before
    assert ID not in str(before).replace(asked.partition("/")[0], "")
    assert "orders" not in str(before).replace(asked, "")


@BY_STRANGERS
def test_nor_does_a_job_without_inputs_for_clients_show(token: str, cluster: Cluster) -> None:
    entries = (CatalogEntry("read", "input", plugin="generator"), cluster.job.catalog[2])
    cluster.job = Job("batch", (("read", "out"),), entries)
    before = cluster.post("/jobs/batch/read", token=token)
    cluster.submit()
    assert cluster.post("/jobs/batch/read", token=token) == before


def test_a_client_of_the_job_learns_what_is_wrong(cluster: Cluster) -> None:
    cluster.submit()
    assert cluster.post("/jobs/shop/orders", token="right")[0] == 200
    assert cluster.post("/jobs/5e0c/orders", token="right")[0] == 200
    code, body = cluster.post("/jobs/shop/nope", token="right")
    assert (code, "those that do: orders, bus" in body["reason"]) == (404, True)
    code, body = cluster.post("/jobs/shop/bus", token="right")
    assert (code, "its plugin is 'requests'" in body["reason"]) == (404, True)
    cluster.replicas.tell(KillJob(JobId(ID)))
    code, body = cluster.post("/jobs/shop/orders", token="right")
    assert (code, "was killed" in body["reason"]) == (404, True)


@BY_STRANGERS
def test_who_names_an_input_wholly_is_asked_for_its_token(token: str, cluster: Cluster) -> None:
    cluster.submit()
    assert cluster.post("/jobs/shop/orders", token=token)[0] == 401
