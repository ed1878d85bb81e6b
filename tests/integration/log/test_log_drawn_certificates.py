"""What the operator draws opens and closes a real ZooKeeper, also while its authority changes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.support.log.logs import Inbox, settings_for
from tests.support.log.markers import marker
from tests.support.servers.tcp_proxy import TcpProxy

from onyx.errors import Unavailable
from onyx.ids import NO_POSITION, GroupId
from onyx.log.server import tls as server_tls
from onyx.log.server.process import ZooKeeperServer
from onyx.log.zookeeper.group_log import ZooKeeperGroupLog
from onyx.log.zookeeper.log import ZooKeeperClientLog
from onyx.settings import Settings, TlsSettings, ZooKeeperSettings
from onyx_operator.installation.authority import Authority, Pair, issue, new_authority
from onyx_operator.installation.installation import put

pytestmark = pytest.mark.server
NAMES = ("onyx-worker.onyx.svc", "localhost", "*.onyx-zookeeper-servers.onyx.svc")
NOW = datetime.now(UTC)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as entered:
        yield entered


def issued(authority: Authority) -> Pair:
    return issue(authority, NAMES, timedelta(days=90), NOW, client=True)


def write(folder: Path, pair: Pair, trusted: bytes) -> TlsSettings:
    """The files, as the operator and a mounted Secret have them."""
    put(folder, {"ca.crt": trusted, "tls.crt": pair.certificate, "tls.key": pair.key})
    return TlsSettings(*(str(folder / name) for name in ("ca.crt", "tls.crt", "tls.key")))


def settings(zookeeper: ZooKeeperSettings) -> Settings:
    return replace(settings_for(zookeeper.address), zookeeper=zookeeper)


@pytest.mark.slow
def test_sessions_go_on_while_certificate_and_authority_are_renewed(
    tmp_path: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_tls, "REFRESH_INTERVAL_S", 0.05)
    first = new_authority("onyx-authority", NOW)
    tls = write(tmp_path / "tls", issued(first), first.trusted)
    server = stack.enter_context(ZooKeeperServer(tmp_path / "zk", tls=tls))
    password = tmp_path / "password"
    password.write_text("drawn")
    proxy = TcpProxy(server.port)
    stack.callback(proxy.close)
    account = {"auth_user": "onyx", "auth_password_file": str(password)}
    zookeeper = ZooKeeperSettings(
        proxy.address.replace("127.0.0.1", "localhost"), tls=tls, **account
    )
    found = settings(zookeeper)
    group = stack.enter_context(closing(ZooKeeperGroupLog(found, GroupId("g1"))))
    group.register_pulse()
    client = stack.enter_context(closing(ZooKeeperClientLog(found)))
    inbox = Inbox()
    client.subscribe(NO_POSITION, inbox)
    shutil.copytree(tmp_path / "tls", tmp_path / "former")
    names = ("ca.crt", "tls.crt", "tls.key")
    former = replace(
        zookeeper, tls=TlsSettings(*(str(tmp_path / "former" / name) for name in names))
    )

    second = new_authority("onyx-authority", NOW, first)
    steps = [(issued(first), first.trusted), (issued(first), second.trusted),
             (issued(second), second.trusted)]  # fmt: skip
    for number, (pair, trusted) in enumerate(steps):
        write(tmp_path / "tls", pair, trusted)
        if number < 2:  # whoever has not got the new bundle yet is let in
            stack.enter_context(closing(ZooKeeperClientLog(settings(former))))
        stack.enter_context(closing(ZooKeeperClientLog(found)))
        proxy.cut()
        group.append([marker(f"step-{number}")])
        while inbox.names(1) != [f"step-{number}"]:
            pass  # what was under way when the connection broke is sent again

    stranger = new_authority("onyx-authority", NOW)
    strange = write(tmp_path / "strange", issued(stranger), second.trusted)
    with pytest.raises(Unavailable, match="refuses our certificate"):
        ZooKeeperClientLog(settings(replace(zookeeper, tls=strange, connect_timeout_s=1.0)))
