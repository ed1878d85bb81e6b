"""Attacked: what an installation is closed with. A password that nobody chooses, certificates that
end, operators that race, Secrets that somebody deletes or brings."""

from __future__ import annotations

import asyncio
import base64
import logging
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from kubernetes.client import Configuration
from msgspec.structs import replace
from tests.operator.fake_api.faults import Fault
from tests.operator.fake_api.server import CRDS, FakeApi
from tests.operator.harness import (
    Logs,
    Operator,
    chart_rights,
    cluster,
    deployment,
    installation,
    settings,
)
from tests.operator.test_clusters_operator import says
from tests.operator.test_watches import eventually
from tests.support.generated.chart import NAMESPACE, named

from onyx.errors import SettingsError
from onyx_operator.installation.installation import InstallationSecrets
from onyx_operator.kube import Kube
from onyx_operator.metrics import OperatorMetrics
from onyx_operator.settings import KubeSettings

NOW = datetime.now(UTC)
DAY = timedelta(days=1)
ACCOUNT, AUTHORITY, TLS = "onyx-zookeeper-account", "onyx-authority", "onyx-tls"
CONSOLE = "onyx-console"
HOOKS = ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")


@pytest.fixture
def api() -> Iterator[FakeApi]:
    """An API server with what Helm has made."""
    with FakeApi(*CRDS) as server:
        server.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        for kind in ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"):
            server.create(named(kind, "onyx-onyx"))
        yield server


class One:
    """An operator's view of the installation, in its own folder."""

    def __init__(self, api: FakeApi, folder: Path, console: str = "") -> None:
        configuration = Configuration()
        configuration.host = api.url
        chosen = replace(settings(**installation(folder)).installation, console_secret=console)
        self.now = NOW
        self.folder = folder / "onyx"
        self.kube = Kube(KubeSettings(), configuration)
        self.installation = InstallationSecrets(
            self.kube, chosen, OperatorMetrics(), lambda: self.now
        )

    def look(self) -> None:
        asyncio.run(self.installation.look())

    def file(self, path: str) -> bytes:
        return (self.folder / path).read_bytes()

    def certificate(self, where: str) -> x509.Certificate:
        return x509.load_pem_x509_certificate(self.file(f"{where}/tls.crt"))


@pytest.fixture
def one(api: FakeApi, tmp_path: Path) -> Iterator[One]:
    found = One(api, tmp_path / "one")
    yield found
    found.kube.close()


def secret(api: FakeApi, name: str) -> dict[str, bytes]:
    found = api.get("secrets", name, NAMESPACE)
    assert found is not None
    return {key: base64.b64decode(value) for key, value in found["data"].items()}


def bundles(api: FakeApi) -> set[bytes]:
    """What the API server trusts, of each webhook."""
    trusted = set()
    for kind in HOOKS:
        found = api.get(kind, "onyx-onyx", "")
        assert found is not None
        trusted |= {
            base64.b64decode(each["clientConfig"]["caBundle"]) for each in found["webhooks"]
        }
    return trusted


def bring(api: FakeApi, name: str, **data: str) -> None:
    """A Secret that somebody else makes."""
    metadata = {"name": name, "namespace": NAMESPACE}
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": encoded}
    api.create(body, NAMESPACE)


def test_what_is_drawn_is_what_zookeeper_workers_and_api_server_are_given(
    api: FakeApi, one: One
) -> None:
    one.look()

    account, tls = secret(api, ACCOUNT), secret(api, TLS)
    assert account["user"] == b"onyx"
    assert len(account["password"]) > 40
    assert one.file("zookeeper/password") == account["password"]
    for key, value in tls.items():
        assert one.file(f"tls/{key}") == value
    assert secret(api, AUTHORITY)["tls.key"] != tls["tls.key"]
    assert bundles(api) == {secret(api, AUTHORITY)["ca.crt"]} == {tls["ca.crt"]}
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(one.folder / "webhook/tls.crt", one.folder / "webhook/tls.key")
    modes = {each.stat().st_mode & 0o777 for each in (one.folder / "tls").iterdir()}
    assert modes == {0o600}


def test_the_token_of_the_console_is_drawn_once_and_its_owner_may_replace_it(
    api: FakeApi, tmp_path: Path
) -> None:
    one = One(api, tmp_path / "one", CONSOLE)
    one.look()
    drawn = secret(api, CONSOLE)
    one.look()
    assert secret(api, CONSOLE) == drawn
    assert len(drawn["token"]) > 40
    api.delete("secrets", CONSOLE, NAMESPACE)
    bring(api, CONSOLE, token="mine\nbefore")
    one.look()
    assert secret(api, CONSOLE) == {"token": b"mine\nbefore"}
    api.delete("secrets", CONSOLE, NAMESPACE)
    bring(api, CONSOLE, password="?")
    with pytest.raises(SettingsError, match="onyx-console has no token"):
        one.look()
    one.kube.close()


def test_two_installations_have_different_passwords(tmp_path: Path) -> None:
    found = set()
    for name in ("a", "b"):
        with FakeApi(*CRDS) as server:
            server.create(
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
            )
            each = One(server, tmp_path / name)
            each.look()
            each.kube.close()
            found.add(each.file("zookeeper/password"))

    assert len(found) == 2


def test_operators_that_race_agree(api: FakeApi, tmp_path: Path) -> None:
    racing = [One(api, tmp_path / str(number)) for number in range(6)]

    async def race() -> None:
        await asyncio.gather(*(each.installation.look() for each in racing))

    asyncio.run(race())
    for each in racing:
        each.kube.close()

    assert {each.file("zookeeper/password") for each in racing} == {
        secret(api, ACCOUNT)["password"]
    }
    assert {each.file("tls/tls.key") for each in racing} == {secret(api, TLS)["tls.key"]}
    trusted = {each.file("webhook/ca.crt") for each in racing}
    assert trusted == bundles(api) == {secret(api, AUTHORITY)["ca.crt"]}
    (authority,) = x509.load_pem_x509_certificates(trusted.pop())
    for each in racing:
        each.certificate("webhook").verify_directly_issued_by(authority)


def test_an_upgrade_and_a_new_pod_change_nothing(api: FakeApi, one: One, tmp_path: Path) -> None:
    one.look()
    before = [api.get("secrets", name, NAMESPACE) for name in (ACCOUNT, AUTHORITY, TLS)]
    another = One(api, tmp_path / "another")
    for each in (one, another, another):
        each.look()
    another.kube.close()

    assert [api.get("secrets", name, NAMESPACE) for name in (ACCOUNT, AUTHORITY, TLS)] == before
    assert another.file("zookeeper/password") == one.file("zookeeper/password")


def test_certificates_are_renewed_before_they_end_and_the_password_never_is(
    api: FakeApi, one: One
) -> None:
    one.look()
    password, trusted = secret(api, ACCOUNT)["password"], bundles(api)
    ends = {where: one.certificate(where).not_valid_after_utc for where in ("tls", "webhook")}
    one.now = NOW + 59 * DAY
    one.look()
    assert {where: one.certificate(where).not_valid_after_utc for where in ends} == ends

    one.now = NOW + 61 * DAY
    one.look()

    assert all(one.certificate(where).not_valid_after_utc > end for where, end in ends.items())
    assert one.file("tls/tls.crt") == secret(api, TLS)["tls.crt"]
    assert bundles(api) == trusted
    assert secret(api, ACCOUNT)["password"] == password


def test_another_authority_is_trusted_everywhere_before_it_signs(api: FakeApi, one: One) -> None:
    one.look()
    (first,) = bundles(api)
    one.now = NOW + 2400 * DAY
    one.look()
    signed = one.certificate("tls")
    one.now = NOW + 2440 * DAY
    one.look()

    assert one.certificate("tls") == signed
    (both,) = bundles(api)
    assert first in both != first
    assert secret(api, TLS)["ca.crt"] == one.file("webhook/ca.crt") == both
    one.now += timedelta(minutes=61)
    one.look()
    newest = x509.load_pem_x509_certificates(both)[0]
    for where in ("tls", "webhook"):
        one.certificate(where).verify_directly_issued_by(newest)
    assert one.certificate("tls") != signed


def test_a_password_that_is_deleted_is_made_again_as_it_was(api: FakeApi, one: One) -> None:
    one.look()
    before = secret(api, ACCOUNT)
    api.delete("secrets", ACCOUNT, NAMESPACE)

    one.look()

    assert secret(api, ACCOUNT) == before


def test_an_authority_that_is_deleted_is_trusted_no_more(api: FakeApi, one: One) -> None:
    one.look()
    (former,) = bundles(api)
    api.delete("secrets", AUTHORITY, NAMESPACE)

    one.look()

    (now,) = bundles(api)
    assert former not in now
    authority = x509.load_pem_x509_certificate(now)
    for where in ("tls", "webhook"):
        one.certificate(where).verify_directly_issued_by(authority)
    assert secret(api, TLS)["ca.crt"] == now


def test_a_secret_that_somebody_brings_is_used_and_never_changed(api: FakeApi, one: One) -> None:
    bring(api, ACCOUNT, user="onyx", password="of-a-person")
    bring(api, TLS, **{"ca.crt": "a", "tls.crt": "b", "tls.key": "c"})

    one.look()
    one.now = NOW + 4000 * DAY
    one.look()

    assert secret(api, ACCOUNT) == {"user": b"onyx", "password": b"of-a-person"}
    assert secret(api, TLS) == {"ca.crt": b"a", "tls.crt": b"b", "tls.key": b"c"}
    assert one.file("zookeeper/password") == b"of-a-person"
    assert one.file("tls/tls.key") == b"c"


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        (ACCOUNT, {"user": "onyx"}, "onyx/onyx-zookeeper-account has no password"),
        (ACCOUNT, {"user": "me", "password": "x"}, "zookeeper.authSecret"),
        (AUTHORITY, {"ca.crt": "a", "tls.crt": "b"}, "onyx/onyx-authority has no tls.key"),
        (AUTHORITY, {"ca.crt": "a", "tls.crt": "b", "tls.key": "c"}, "holds no authority"),
        (TLS, {"tls.crt": "b", "tls.key": "c"}, "onyx/onyx-tls has no ca.crt"),
    ],
)
def test_a_secret_that_cannot_be_used_is_named(
    api: FakeApi, one: One, name: str, data: dict[str, str], said: str
) -> None:
    bring(api, name, **data)

    with pytest.raises(SettingsError, match=said):
        one.look()


def test_what_was_drawn_is_not_logged(
    api: FakeApi, one: One, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        one.look()

    assert "Secret onyx-tls is made" in caplog.text
    assert secret(api, ACCOUNT)["password"].decode() not in caplog.text
    assert "PRIVATE KEY" not in caplog.text


def test_the_operator_waits_for_what_it_is_closed_with(
    api: FakeApi, logs: Logs, tmp_path: Path
) -> None:
    """It starts with an API server that refuses at first, and has drawn before it does anything."""
    api.faults.add(Fault(verb="create", resource="secrets", code=403, times=1))
    files = {"WEBHOOK_CERT_FILE": "webhook/tls.crt", "WEBHOOK_KEY_FILE": "webhook/tls.key"}
    paths = {name: str(tmp_path / "onyx" / path) for name, path in files.items()}
    chosen = settings(**installation(tmp_path), **paths, WEBHOOK_PORT="0")
    api.create(deployment("onyx", "onyx-operator"))
    api.create(cluster())
    with Operator(api, logs.connect, chosen, rights=chart_rights()):
        api.wait_for("onyxclusters", "onyx", says("Reconciled", "True"))
        eventually(lambda: bundles(api) == {secret(api, TLS)["ca.crt"]})

    asked = [(each.target.verb, each.target.resource) for each in api.requests]
    assert asked.index(("create", "secrets")) < asked.index(("list", "onyxclusters"))
