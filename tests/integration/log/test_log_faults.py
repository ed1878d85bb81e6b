"""The log in ZooKeeper under faults: lost replies, broken connections, a killed server."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from tests.support.log.logs import Inbox, expire_session, pulse_gone, settings_for
from tests.support.log.markers import marker
from tests.support.patience import WAIT_S
from tests.support.servers.ports import free_port
from tests.support.servers.proxy import ReplyLossProxy
from tests.support.servers.tcp_proxy import TcpProxy

from onyx.errors import Fenced, LogReplaced, Unavailable
from onyx.ids import NO_POSITION, GroupId
from onyx.log.interface import Session
from onyx.log.server.process import ZooKeeperServer
from onyx.log.zookeeper import dialler
from onyx.log.zookeeper.group_log import ZooKeeperGroupLog
from onyx.log.zookeeper.log import ZooKeeperClientLog
from onyx.replica.command import Entry
from onyx.settings import LogSettings, Settings, ZooKeeperSettings

pytestmark = pytest.mark.server


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as entered:
        yield entered


def open_group(stack: ExitStack, settings: Settings, name: str) -> ZooKeeperGroupLog:
    log = stack.enter_context(closing(ZooKeeperGroupLog(settings, GroupId(name))))
    log.register_pulse()
    return log


def open_client(stack: ExitStack, settings: Settings) -> ZooKeeperClientLog:
    return stack.enter_context(closing(ZooKeeperClientLog(settings)))


def follow(log: Any) -> Inbox:
    inbox = Inbox()
    log.subscribe(NO_POSITION, inbox)
    return inbox


def effects(entries: list[Entry]) -> list[int]:
    """What a replica does with entries: a sequence that it has seen has no effect."""
    last, kept = 0, []
    for entry in entries:
        if entry.sequence > last:
            last = entry.sequence
            kept.append(entry.command.peer_site["number"])
    return kept


def read_until(inbox: Inbox, sequence: int) -> list[Entry]:
    entries = inbox.take()
    while entries[-1].sequence != sequence:
        entries += inbox.take()
    return entries


def test_lost_replies_to_appends_have_each_effect_once_and_in_order(zookeeper, stack):
    proxy = stack.enter_context(ReplyLossProxy(zookeeper.port))
    direct = settings_for(zookeeper.address)
    through = settings_for(proxy.address, tenancy=direct.tenancy_id)
    inbox = follow(open_client(stack, direct))
    group = open_group(stack, through, "g1")
    proxy.lose_replies_to(b"log/entry-", times=3)
    for number in range(200):
        group.append([marker("n", number=number)])
    entries = read_until(inbox, 200)
    assert effects(entries) == list(range(200))
    assert proxy.replies_lost == 3
    assert len(entries) > 200, "the lost replies were of entries that had been written"
    assert {entry.writer for entry in entries} == {"g1"}, "the same incarnation goes on"


def test_a_lost_reply_to_a_document_is_resolved_by_looking(zookeeper, stack):
    proxy = stack.enter_context(ReplyLossProxy(zookeeper.port))
    group = open_group(stack, settings_for(proxy.address), "g1")
    assert group.put_document("frontier", b"1", None) == 0
    proxy.lose_replies_to(b"=frontier")
    assert group.put_document("frontier", b"2", 0) == 1
    assert proxy.replies_lost == 1
    assert group.put_document("frontier", b"2", 0) is None


@pytest.mark.parametrize("of_group", [True, False], ids=["group", "client"])
def test_a_reader_whose_connection_broke_goes_on_where_it_was(zookeeper, stack, of_group):
    proxy = TcpProxy(zookeeper.port)
    stack.callback(proxy.close)
    direct = settings_for(zookeeper.address)
    writer = open_client(stack, direct)
    through = settings_for(proxy.address, tenancy=direct.tenancy_id)
    reader = open_group(stack, through, "g1") if of_group else open_client(stack, through)
    inbox, heard = follow(reader), Inbox()
    reader.on_session(heard)
    writer.append(marker("a"))
    assert inbox.names(1) == ["a"]
    proxy.cut()
    assert heard.take(2) == [Session.SUSPENDED, Session.CONNECTED]
    writer.append(marker("b"))
    writer.append(marker("c"))
    assert inbox.names(2) == ["b", "c"]


def test_a_handshake_without_an_answer_does_not_cost_the_session(
    zookeeper: ZooKeeperServer, stack: ExitStack
) -> None:
    proxy = TcpProxy(zookeeper.port)
    stack.callback(proxy.close)
    log, heard = open_group(stack, settings_for(proxy.address), "g1"), Inbox()
    log.on_session(heard)
    proxy.ignore_next()
    proxy.cut()
    assert heard.take(2) == [Session.SUSPENDED, Session.CONNECTED]
    assert log.pulse_exists(GroupId("g1"))


def test_a_pulse_that_goes_after_a_reconnect_is_still_reported(zookeeper, stack):
    proxy = TcpProxy(zookeeper.port)
    stack.callback(proxy.close)
    direct = settings_for(zookeeper.address)
    watched = open_group(stack, direct, "g1")
    watcher = open_group(stack, settings_for(proxy.address, tenancy=direct.tenancy_id), "g2")
    heard = Inbox()
    watcher.on_session(heard)
    gone = pulse_gone(watcher, GroupId("g1"))
    proxy.cut()
    heard.take_until(Session.CONNECTED)
    watched.close()
    assert gone.wait(WAIT_S)


def test_a_client_whose_session_expired_follows_and_writes_under_a_new_one(zookeeper, stack):
    client = open_client(stack, settings_for(zookeeper.address))
    inbox = follow(client)
    client.append(marker("a"))
    assert inbox.names(1) == ["a"]
    expire_session(client, zookeeper.address)
    client.append(marker("b"))
    assert inbox.names(1) == ["b"]


def test_an_incarnation_that_was_cut_off_past_its_session_writes_nothing_when_it_returns(
    zookeeper, stack
):
    proxy = TcpProxy(zookeeper.port)
    stack.callback(proxy.close)
    direct = settings_for(zookeeper.address)
    zombie = open_group(
        stack,
        settings_for(proxy.address, session_timeout_s=4.0, tenancy=direct.tenancy_id),
        "g1",
    )
    observer = open_group(stack, direct, "g2")
    gone, heard = pulse_gone(observer, GroupId("g1")), Inbox()
    zombie.on_session(heard)
    proxy.hold()
    zombie.append([marker("late", number=1)])
    assert gone.wait(WAIT_S), "the server ends the session of a group that it cannot hear"
    proxy.release()
    heard.take_until(Session.LOST)
    with pytest.raises(Fenced):
        zombie.append([marker("later")])
    assert observer.read(NO_POSITION) == []


def test_sessions_survive_a_killed_server_and_nothing_is_lost(tmp_path, stack):
    server = stack.enter_context(ZooKeeperServer(tmp_path / "zk", port=free_port()))
    settings = settings_for(server.address)
    group, observer = open_group(stack, settings, "g1"), open_group(stack, settings, "g2")
    inbox, heard = follow(observer), Inbox()
    group.on_session(heard)
    gone = pulse_gone(observer, GroupId("g1"))
    group.append([marker("n", number=0)])
    before = read_until(inbox, 1)
    server.kill()
    assert heard.take() == [Session.SUSPENDED]
    for number in range(1, 20):
        group.append([marker("n", number=number)])
    server.start()
    entries = before + read_until(inbox, 20)
    assert heard.take() == [Session.CONNECTED], "the same session"
    assert effects(entries) == list(range(20))
    assert not gone.is_set()


@pytest.mark.slow
def test_a_log_that_was_made_anew_is_refused_by_all_who_knew_the_old_one(tmp_path, stack):
    server = stack.enter_context(ZooKeeperServer(tmp_path / "zk", port=free_port()))
    settings = settings_for(server.address, log=LogSettings(poll_interval_s=0.2))
    group = open_group(stack, settings, "g1")
    follow(group)
    heard = Inbox()
    group.on_session(heard)
    client = open_client(stack, settings)
    log = client._paths.log
    client._session.perform(lambda kazoo: kazoo.delete_async(log))
    client._session.perform(lambda kazoo: kazoo.create_async(log))
    heard.take_until(Session.LOST)
    with pytest.raises(LogReplaced, match="deleted and made anew"):
        group.append([marker("a")])
    with pytest.raises(LogReplaced, match="deleted and made anew"):
        ZooKeeperClientLog(settings)


def test_a_wiped_zookeeper_ends_the_sessions_of_those_who_know_more_than_it_does(tmp_path, stack):
    """It refuses them without a word, so they have to find out by themselves."""
    server = stack.enter_context(ZooKeeperServer(tmp_path / "zk", port=free_port()))
    settings = settings_for(server.address, session_timeout_s=2.0)
    group = open_group(stack, settings, "g1")
    heard = Inbox()
    group.on_session(heard)
    inbox = follow(group)
    for number in range(100):
        group.append([marker("n", number=number)])
    read_until(inbox, 100)
    server.kill()
    shutil.rmtree(tmp_path / "zk")
    server.start()
    assert heard.take_until(Session.LOST)[0] is Session.SUSPENDED
    with pytest.raises(LogReplaced, match="lost its data"):
        ZooKeeperGroupLog(settings, GroupId("g1"), identity=group.identity)


def test_a_process_that_knew_a_log_refuses_an_empty_one_in_its_place(zookeeper):
    with pytest.raises(LogReplaced, match="lost its data"):
        ZooKeeperGroupLog(settings_for(zookeeper.address), GroupId("g1"), identity=1)


def test_no_server_gives_an_error_that_says_what_to_do():
    address = "127.0.0.1:1"
    settings = Settings(zookeeper=ZooKeeperSettings(address=address, connect_timeout_s=0.2))
    with pytest.raises(Unavailable, match=r"no ZooKeeper answered at 127.0.0.1:1.*onyx zookeeper"):
        ZooKeeperClientLog(settings)


def test_a_client_that_waits_says_for_what_before_it_gives_up(monkeypatch, caplog):
    monkeypatch.setattr(dialler, "TELL_AFTER_S", 0.01)
    nowhere = ZooKeeperSettings(address="127.0.0.1:1", connect_timeout_s=1.0)
    with pytest.raises(Unavailable):
        ZooKeeperClientLog(Settings(zookeeper=nowhere))
    assert "waiting for ZooKeeper at 127.0.0.1:1, for up to 1 s" in caplog.text


def test_two_servers_cannot_have_one_port(zookeeper, tmp_path: Path):
    with pytest.raises(Unavailable, match="is in use"):
        ZooKeeperServer(tmp_path, port=zookeeper.port).start()


def test_a_number_that_was_never_an_entry_does_not_stop_a_reader(zookeeper, stack):
    often = LogSettings(poll_interval_s=0.2)
    client = open_client(stack, settings_for(zookeeper.address, log=often))
    inbox = follow(client)
    client.append(marker("a"))
    assert inbox.names(1) == ["a"]
    client._session.perform(
        lambda kazoo: kazoo.create_async(f"{client._paths.log}/stray"),
    )
    assert client.append(marker("b")) == 2
    client._session.perform(lambda kazoo: kazoo.delete_async(f"{client._paths.log}/stray"))
    assert client.append(marker("c")) == 3
    assert inbox.names(2) == ["b", "c"]


def test_a_backlog_of_the_largest_entries_is_read(zookeeper, stack):
    settings = settings_for(zookeeper.address)
    group, client = open_group(stack, settings, "g1"), open_client(stack, settings)
    large = marker("n", text="x" * (settings.log.entry_bytes_max - 200))
    group.append([large] * 70)
    inbox = follow(client)
    assert [len(entry.command.peer_site["text"]) for entry in inbox.take(70)] == [
        262_144 - 200
    ] * 70


def test_requests_to_zookeeper_are_measured(zookeeper, stack):
    group = open_group(stack, settings_for(zookeeper.address), "measured")
    before = group.traffic()
    group.put_document("measured", b"x" * 10_000, None)
    assert group.get_document("measured") is not None
    after = group.traffic()
    assert after.requests.since(before.requests).count >= 2
    assert after.requests.total_s > before.requests.total_s
    assert after.sent_bytes - before.sent_bytes > 10_000
    assert after.received_bytes - before.received_bytes > 10_000
