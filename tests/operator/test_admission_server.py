"""The webhook's server: reviews over TLS, a renewed certificate, and clients that misbehave."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import trustme
from msgspec.structs import replace
from tests.operator.harness import job

from onyx.errors import SettingsError, Unavailable
from onyx_operator.admission import server
from onyx_operator.admission.server import MARK_PATH, PATHS, Webhook
from onyx_operator.authors import Authors
from onyx_operator.metrics import OperatorMetrics
from onyx_operator.settings import WebhookSettings

NAME = "onyx-operator.onyx.svc"
REVIEW = {
    "apiVersion": "admission.k8s.io/v1",
    "kind": "AdmissionReview",
    "request": {"uid": "1", "operation": "CREATE", "object": job()},
}

AUTHORS = Authors(marks=True)


@dataclass
class Site:
    """A running webhook, and a client that trusts its authority."""

    webhook: Webhook
    metrics: OperatorMetrics
    client: aiohttp.ClientSession
    trust: ssl.SSLContext

    async def post(self, body: bytes, path: str = PATHS[0]) -> tuple[int, str]:
        url = f"https://127.0.0.1:{self.webhook.port}{path}"
        async with self.client.post(
            url, data=body, ssl=self.trust, server_hostname=NAME
        ) as response:
            return response.status, await response.text()

    async def serial(self) -> Any:
        """Serial number of the certificate that a new connection is shown."""
        _, writer = await asyncio.open_connection(
            "127.0.0.1", self.webhook.port, ssl=self.trust, server_hostname=NAME
        )
        try:
            return writer.get_extra_info("peercert")["serialNumber"]
        finally:
            writer.close()
            await writer.wait_closed()


class Files:
    """The Secret as it is mounted: cert-manager's names, renewed at will."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.cert, self.key = folder / "tls.crt", folder / "tls.key"
        self.renew()

    def renew(self) -> None:
        issued = self.authority.issue_cert(NAME)
        self.cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        self.key.write_bytes(issued.private_key_pem.bytes())

    def settings(self, **changed: Any) -> WebhookSettings:
        found = WebhookSettings(str(self.cert), str(self.key), host="127.0.0.1", port=0)
        return replace(found, **changed)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def serve(settings: WebhookSettings, files: Files, act: Callable[[Site], Awaitable[None]]) -> None:
    async def run() -> None:
        metrics = OperatorMetrics()
        webhook = Webhook(settings, metrics, AUTHORS)
        await webhook.start()
        trust = ssl.create_default_context()
        files.authority.configure_trust(trust)
        async with aiohttp.ClientSession() as client:
            await act(Site(webhook, metrics, client, trust))
        await webhook.close()

    asyncio.run(run())


def count(metrics: OperatorMetrics, result: str) -> float:
    name = "onyx_operator_admission_reviews_total"
    return metrics.registry.get_sample_value(name, {"result": result}) or 0.0


@pytest.mark.parametrize("path", PATHS)
def test_reviews_are_answered_over_tls(files: Files, path: str) -> None:
    async def act(site: Site) -> None:
        status, text = await site.post(json.dumps(REVIEW).encode(), path)
        assert status == 200
        assert json.loads(text)["response"] == {"uid": "1", "allowed": True}

        bad = {**REVIEW, "request": {**REVIEW["request"], "object": {**job(), "spec": {}}}}
        status, text = await site.post(json.dumps(bad).encode(), path)
        assert status == 200
        assert "spec.catalog: is missing" in json.loads(text)["response"]["status"]["message"]
        assert (count(site.metrics, "allowed"), count(site.metrics, "denied")) == (1, 1)

    serve(files.settings(), files, act)


def test_who_changes_an_object_is_marked_over_tls(files: Files) -> None:
    async def act(site: Site) -> None:
        asked = {**REVIEW, "request": {**REVIEW["request"], "userInfo": {"username": "alice"}}}
        status, text = await site.post(json.dumps(asked).encode(), MARK_PATH)
        assert (status, json.loads(text)["response"]["patchType"]) == (200, "JSONPatch")
        assert (await site.post(b"{", MARK_PATH))[0] == 400

    serve(files.settings(), files, act)


MALFORMED = {
    "nothing": b"",
    "text": b"hello",
    "not utf-8": b"\xff\xfe",
    "half": json.dumps(REVIEW).encode()[:-5],
    "list": b"[]",
    "null": b"null",
    "nan": b'{"kind": NaN}',
    "deep": b"[" * 100_000,
    "deep object": b'{"a":' * 100_000,
    "other version": b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v9"}',
    "no request": b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}',
    "digits": b'{"kind": ' + b"9" * 5_000 + b"}",
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_review_is_refused_without_a_traceback(
    files: Files, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def act(site: Site) -> None:
        status, text = await site.post(body)
        assert status == 400
        assert text.count("\n") == 1
        assert "Traceback" not in text
        assert count(site.metrics, "failed") == 1

    serve(files.settings(), files, act)
    assert not any(record.exc_info for record in caplog.records)


def test_a_body_that_is_too_large_is_not_read(files: Files) -> None:
    async def act(site: Site) -> None:
        assert (await site.post(b" " * 2_000))[0] == 413

    serve(files.settings(body_bytes_max=1_000), files, act)


def test_other_paths_and_methods_are_refused(files: Files) -> None:
    async def act(site: Site) -> None:
        assert (await site.post(b"{}", "/"))[0] == 404
        url = f"https://127.0.0.1:{site.webhook.port}{PATHS[0]}"
        async with site.client.get(url, ssl=site.trust, server_hostname=NAME) as response:
            assert response.status == 405

    serve(files.settings(), files, act)


def test_a_review_that_takes_too_long_is_given_up(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = threading.Event()
    monkeypatch.setattr(server, "_judged", lambda body: finish.wait() and {})

    async def act(site: Site) -> None:
        status, text = await site.post(json.dumps(REVIEW).encode())
        finish.set()
        assert (status, text) == (503, "too many reviews wait; try again\n")

    serve(files.settings(review_timeout_s=0.01), files, act)


def test_a_bug_is_logged_and_not_shown(
    files: Files, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "answer", lambda review: review["secret"])

    async def act(site: Site) -> None:
        status, text = await site.post(json.dumps(REVIEW).encode())
        assert (status, text) == (500, "the validator failed, which is a bug in Onyx\n")

    serve(files.settings(), files, act)
    assert any(record.exc_info for record in caplog.records)


def test_a_renewed_certificate_is_shown_to_new_connections(files: Files) -> None:
    async def act(site: Site) -> None:
        first = await site.serial()
        assert await site.serial() == first
        files.renew()
        assert await site.serial() != first

    serve(files.settings(), files, act)


@pytest.mark.parametrize("broken", [b"", b"nonsense", None])
def test_a_broken_renewal_leaves_the_good_certificate(
    files: Files, broken: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def act(site: Site) -> None:
        first = await site.serial()
        if broken is None:
            files.key.unlink()
        else:
            files.key.write_bytes(broken)
        assert await site.serial() == first
        files.renew()
        assert await site.serial() != first

    serve(files.settings(), files, act)
    assert "what was read before stays in use" in caplog.text


def test_without_a_certificate_the_operator_says_which_setting(tmp_path: Path) -> None:
    settings = WebhookSettings(str(tmp_path / "tls.crt"), str(tmp_path / "tls.key"))
    with pytest.raises(SettingsError, match="ONYX_OPERATOR_WEBHOOK_CERT_FILE"):
        Webhook(settings, OperatorMetrics(), AUTHORS)


def test_a_taken_port_is_told(files: Files) -> None:
    async def act(site: Site) -> None:
        taken = files.settings(port=site.webhook.port)
        second = Webhook(taken, site.metrics, AUTHORS)
        with pytest.raises(Unavailable, match=rf"{site.webhook.port} \(ONYX_OPERATOR_WEBHOOK_HOST"):
            await second.start()
        await second.close()

    serve(files.settings(), files, act)
