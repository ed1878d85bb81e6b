"""Packets are lost and no connection breaks: whoever is cut off notices it, says so and returns."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest
from tests.support.log.logs import Inbox, expire_session, pulse_gone, settings_for
from tests.support.log.markers import marker
from tests.support.patience import WAIT_S
from tests.support.servers.tcp_proxy import TcpProxy

from onyx.ids import NO_POSITION, GroupId
from onyx.log.interface import Session
from onyx.log.server.process import ZooKeeperServer
from onyx.log.zookeeper.group_log import ZooKeeperGroupLog
from onyx.log.zookeeper.log import ZooKeeperClientLog
from onyx.settings import Settings

pytestmark = pytest.mark.server
POLL_S = 0.05


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as entered:
        yield entered


def proxied(stack: ExitStack, server: ZooKeeperServer) -> TcpProxy:
    proxy = TcpProxy(server.port)
    stack.callback(proxy.close)
    return proxy


def direct(server: ZooKeeperServer, settings: Settings) -> Settings:
    """The same tenancy, by the way on which nothing is lost."""
    return settings_for(server.address, tenancy=settings.tenancy_id)


def wait_until(reached: Callable[[], bool]) -> bool:
    pause = threading.Event()
    return any(reached() or pause.wait(POLL_S) for _ in range(int(WAIT_S / POLL_S)))


def opened(stack: ExitStack, settings: Settings) -> tuple[ZooKeeperGroupLog, Inbox]:
    log = stack.enter_context(closing(ZooKeeperGroupLog(settings, GroupId("g1"))))
    log.register_pulse()
    heard = Inbox()
    log.on_session(heard)
    return log, heard


def test_requests_that_pile_up_do_not_hide_that_nothing_is_answered(
    zookeeper: ZooKeeperServer, stack: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    proxy = proxied(stack, zookeeper)
    settings = settings_for(proxy.address, session_timeout_s=6.0)
    _, heard = opened(stack, settings)
    proxy.hold()
    assert heard.take() == [Session.SUSPENDED], "while the packets are lost"
    assert "though the connection stands: packets are lost" in caplog.text
    with closing(ZooKeeperGroupLog(direct(zookeeper, settings), GroupId("g2"))) as observer:
        assert pulse_gone(observer, GroupId("g1")).wait(WAIT_S)
    proxy.release()
    assert heard.take() == [Session.LOST]


def test_the_session_goes_on_at_another_server_before_it_expires(
    zookeeper: ZooKeeperServer, stack: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = proxied(stack, zookeeper), proxied(stack, zookeeper)
    both = settings_for(f"{first.address},{second.address}", session_timeout_s=9.0)
    log, heard = opened(stack, both)
    (first if first.connections else second).hold()
    log.append([marker("n", number=1)])
    assert heard.take(2) == [Session.SUSPENDED, Session.CONNECTED]
    with closing(ZooKeeperClientLog(direct(zookeeper, both))) as observer:
        inbox = Inbox()
        observer.subscribe(NO_POSITION, inbox)
        assert inbox.names(1) == ["n"]
    assert heard.is_empty
    assert wait_until(lambda: "answers again after" in caplog.text)


def test_a_client_that_outlived_an_expiry_notices_the_next_silence_and_only_that(
    zookeeper: ZooKeeperServer, stack: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    proxy = proxied(stack, zookeeper)
    settings = settings_for(proxy.address, session_timeout_s=6.0)
    client = stack.enter_context(closing(ZooKeeperClientLog(settings)))
    expire_session(client, zookeeper.address)
    inbox = Inbox()
    client._session.on_session(inbox)
    for number in range(40):
        client.append(marker("n", number=number))
        client._session._pause()
    assert "packets are lost" not in caplog.text
    inbox.take_until(Session.CONNECTED)
    proxy.hold()
    assert inbox.take() == [Session.SUSPENDED]
    proxy.release()
    inbox.take_until(Session.CONNECTED)
