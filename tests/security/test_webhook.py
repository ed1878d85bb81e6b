"""The webhook, which any pod may reach: slow bodies, silence, and reviews made to take long."""

from __future__ import annotations

import asyncio
import difflib
import json
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trustme
from msgspec.structs import replace
from tests.operator.harness import job

from onyx.model.plain import VALUES_MAX as OF_A_MANIFEST
from onyx.model.report import PROBLEMS_MAX
from onyx_operator.admission import server
from onyx_operator.admission.server import PATHS, VALUES_MAX, Webhook
from onyx_operator.authors import Authors
from onyx_operator.metrics import OperatorMetrics
from onyx_operator.settings import WebhookSettings

NAME = "onyx-operator.onyx.svc"
STRANGER, SERVER = "127.0.0.2", "127.0.0.1"
HEAD = f"POST {PATHS[0]} HTTP/1.1\r\nhost: {NAME}\r\n"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def review(obj: Any) -> bytes:
    request = {"uid": "1", "operation": "CREATE", "object": obj}
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return json.dumps(body).encode()


RIGHT = review(job())


class Site:
    """A webhook, and who reaches it."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        issued = self.authority.issue_cert(NAME)
        issued.private_key_and_cert_chain_pem.write_to_path(str(folder / "both.pem"))
        self.authority.cert_pem.write_to_path(str(folder / "ca.crt"))
        both = str(folder / "both.pem")
        self.settings = WebhookSettings(both, both, host="127.0.0.1", port=0)
        self.trust = ssl.create_default_context()
        self.authority.configure_trust(self.trust)
        self._open: list[asyncio.StreamWriter] = []
        self.webhook: Webhook | None = None

    async def connect(self, address: str) -> Streams:
        assert self.webhook is not None
        port = self.webhook.port
        local = (address, 0)
        found = await asyncio.open_connection(
            "127.0.0.1", port, ssl=self.trust, server_hostname=NAME, local_addr=local
        )
        self._open.append(found[1])
        return found

    async def post(self, body: bytes, address: str = SERVER, ends: bool = True) -> Streams:
        reader, writer = await self.connect(address)
        length = len(body) if ends else 10 * len(body)
        writer.write(f"{HEAD}content-length: {length}\r\n\r\n".encode() + body)
        await writer.drain()
        return reader, writer

    async def status(self, body: bytes, address: str = SERVER) -> bytes:
        reader, _ = await self.post(body, address)
        return (await reader.readline()).split()[1]

    def run(self, attack: Callable[[], Awaitable[None]], **changed: Any) -> None:
        async def run() -> None:
            self.webhook = Webhook(
                replace(self.settings, **changed), OperatorMetrics(), Authors(marks=True)
            )
            await self.webhook.start()
            await attack()
            for each in self._open:
                each.close()
            await self.webhook.close()

        asyncio.run(run())


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_slow_bodies_have_a_bound_and_leave_room_for_the_api_server(site: Site) -> None:
    part = b" " * 10_000

    async def attack() -> None:
        slow = [await site.post(part, STRANGER, ends=False) for _ in range(40)]
        refused = 0
        for reader, _ in slow:
            try:
                async with asyncio.timeout(0.02):
                    refused += (await reader.readline()).startswith(b"HTTP/1.1 429")
            except TimeoutError:
                pass
        assert refused >= 32
        assert await site.status(RIGHT) == b"200"

    site.run(attack, bodies_bytes_max=100_000, body_bytes_max=100_000)


def test_connections_have_a_bound_and_the_api_server_gets_one(site: Site) -> None:
    async def attack() -> None:
        silent = [await site.connect(STRANGER) for _ in range(12)]
        assert await site.status(RIGHT) == b"200"
        ended = 0
        for reader, _ in silent:
            try:
                async with asyncio.timeout(0.02):
                    ended += await reader.read(1) == b""
            except (TimeoutError, ConnectionError):
                pass
        assert ended >= 12 - 4

    site.run(attack, connections_max=4)


def test_whoever_shows_no_certificate_is_not_heard_where_one_is_asked_for(
    site: Site, tmp_path: Path
) -> None:
    async def attack() -> None:
        with pytest.raises((ConnectionError, ssl.SSLError, IndexError)):
            await site.status(RIGHT)
        site.authority.issue_cert("kube-apiserver").configure_cert(site.trust)
        assert await site.status(RIGHT) == b"200"

    site.run(attack, client_ca_file=str(tmp_path / "ca.crt"))


def test_values_are_counted_before_they_are_made(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "judged", lambda review: pytest.fail("they have been made"))

    async def attack() -> None:
        assert await site.status(b"[" + b"[]," * VALUES_MAX + b"[]]") == b"400"

    site.run(attack)


def with_keys(part: str, count: int) -> dict[str, Any]:
    """A job with keys that are nearly right."""
    found = json.loads(json.dumps(job()))
    keys = {f"spark.sql.shuffle.partitons{number}": 1 for number in range(count)}
    spec = found["spec"]
    if part == "spec":
        spec |= keys
    elif part == "metadata":
        found["metadata"] |= keys
    elif part == "options":
        spec["catalog"][0]["options"] = keys
    elif part == "sparkConf":
        spec["catalog"][0].setdefault("options", {})["sparkConf"] = keys
    else:
        spec["workflow"] = [[f"x{number}", f"y{number}"] for number in range(1_000)]
        more = [{"name": f"xy{number}", "type": "function", "fn": "a:b"} for number in range(200)]
        spec["catalog"] += more
    return found  # type: ignore[no-any-return]


@pytest.mark.parametrize("part", ["spec", "metadata", "options", "sparkConf", "workflow"])
def test_words_that_are_near_are_looked_for_a_hundred_times(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, compared = 0, 0
    real = difflib.get_close_matches

    def counted(word: str, among: list[str], **how: Any) -> list[str]:
        nonlocal asked, compared
        asked += 1
        compared = max(compared, len(among))
        return real(word, among, **how)

    monkeypatch.setattr(difflib, "get_close_matches", counted)

    found = server._judged(review(with_keys(part, 10_000)))

    assert len(found.verdict.problems) + len(found.verdict.warnings) > 1
    assert 0 < asked <= 2 * PROBLEMS_MAX + 2
    assert compared <= 64


def test_looking_ends_with_the_number_of_values_that_a_job_may_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(difflib, "get_close_matches", lambda *a, **b: pytest.fail("it looked on"))

    found = server._judged(review(with_keys("spec", OF_A_MANIFEST + 1)))

    (problem,) = found.verdict.problems
    assert "has more than 20000 values" in problem.message
