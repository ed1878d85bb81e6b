"""The log in ZooKeeper behind TLS and a user: who gets in, what the others read, renewal."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE, make_acl
from msgspec.structs import replace
from tests.support.log.logs import Inbox, settings_for
from tests.support.log.markers import marker
from tests.support.patience import WAIT_S
from tests.support.servers.certificates import EXPIRED, Secret
from tests.support.servers.ports import free_ports
from tests.support.servers.tcp_proxy import TcpProxy

from onyx.errors import SettingsError, Unavailable, UserError
from onyx.ids import NO_POSITION, GroupId
from onyx.log.interface import Session
from onyx.log.server import tls as server_tls
from onyx.log.server.config import Ensemble
from onyx.log.server.member import Holds, Member, Unknown, ask
from onyx.log.server.process import ZooKeeperServer
from onyx.log.zookeeper.above import admit
from onyx.log.zookeeper.access import Access, read_access
from onyx.log.zookeeper.dialler import TlsHandler, zookeeper_certificates
from onyx.log.zookeeper.group_log import ZooKeeperGroupLog
from onyx.log.zookeeper.log import ZooKeeperClientLog
from onyx.settings import Settings, TlsSettings, ZooKeeperSettings
from onyx.tls.diagnosis import diagnose
from onyx.tls.files import ZOOKEEPER, CertificateFiles

pytestmark = pytest.mark.server
PASSWORD = "not-to-be-seen"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as entered:
        yield entered


def with_zookeeper(zookeeper: ZooKeeperSettings, tenancy: str | None = None) -> Settings:
    return replace(settings_for(zookeeper.address, tenancy=tenancy), zookeeper=zookeeper)


def open_client(stack: ExitStack, settings: Settings) -> ZooKeeperClientLog:
    return stack.enter_context(closing(ZooKeeperClientLog(settings)))


def open_group(stack: ExitStack, settings: Settings, name: str) -> ZooKeeperGroupLog:
    log = stack.enter_context(closing(ZooKeeperGroupLog(settings, GroupId(name))))
    log.register_pulse()
    return log


def raw_client(
    stack: ExitStack, zookeeper: ZooKeeperSettings, user: str | None = None
) -> KazooClient:
    """A client that may come in, but shows another user or none."""
    files = CertificateFiles(zookeeper.tls, ZOOKEEPER, serves=False)
    auth = [("digest", user)] if user else None
    client = KazooClient(zookeeper.address, handler=TlsHandler(files), auth_data=auth)
    client.start()
    stack.callback(client.close)
    stack.callback(client.stop)
    return client


# TLS


def refusal(zookeeper: ZooKeeperSettings) -> str:
    """The error of a client that is refused."""
    hasty = replace(zookeeper, connect_timeout_s=1.0)
    with pytest.raises(Unavailable) as raised:
        ZooKeeperClientLog(with_zookeeper(hasty))
    return str(raised.value)


@pytest.mark.slow
def test_a_client_without_tls_is_told_to_use_it(secure_zookeeper):
    message = refusal(replace(secure_zookeeper, tls=TlsSettings()))
    assert "it uses TLS and this process does not: set ONYX_ZOOKEEPER_TLS_CA_FILE" in message


def test_a_client_with_tls_is_told_of_a_server_without(secure_zookeeper, zookeeper):
    message = refusal(replace(secure_zookeeper, address=zookeeper.address))
    assert (
        "as a server without TLS does, and this process uses TLS (ONYX_ZOOKEEPER_TLS_CA_FILE)"
        in message
    )


def test_a_client_without_certificate_is_told_to_have_one(secure_zookeeper):
    message = refusal(replace(secure_zookeeper, tls=TlsSettings(secure_zookeeper.tls.ca_file)))
    assert "it asks for a certificate: set ONYX_ZOOKEEPER_TLS_CERT_FILE" in message


def test_a_server_of_another_authority_is_not_spoken_to(
    secure_zookeeper, tmp_path, stranger, caplog
):
    tls = Secret(tmp_path, stranger).settings()
    message = refusal(replace(secure_zookeeper, tls=tls))
    reason = f"not signed by the authority in ONYX_ZOOKEEPER_TLS_CA_FILE={tls.ca_file}"
    assert reason in message
    warnings = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert reason in warnings[0].getMessage()


def test_a_client_whose_certificate_is_of_another_authority_is_told_so(
    secure_zookeeper, tmp_path, stranger, authority
):
    tls = Secret(tmp_path, stranger, trusted=authority).settings()
    message = refusal(replace(secure_zookeeper, tls=tls))
    assert f"refuses our certificate ONYX_ZOOKEEPER_TLS_CERT_FILE={tls.cert_file}" in message


def test_a_client_whose_certificate_has_expired_is_told_so(secure_zookeeper, tmp_path, authority):
    tls = Secret(tmp_path, authority, not_after=EXPIRED).settings()
    message = refusal(replace(secure_zookeeper, tls=tls))
    assert "refuses our certificate" in message
    assert "it must be in date" in message


def test_a_server_is_known_by_the_name_that_the_settings_say(secure_zookeeper, stack):
    def named(name: str) -> ZooKeeperSettings:
        return replace(secure_zookeeper, tls=replace(secure_zookeeper.tls, server_name=name))

    open_client(stack, with_zookeeper(named("localhost")))
    message = refusal(named("else.test"))
    assert "does not carry the name else.test: issue it with this DNS name, or set" in message


@pytest.mark.slow
def test_certificates_are_renewed_under_a_server_and_its_sessions(
    tmp_path, authority, stranger, stack, monkeypatch
):
    """Both change to another authority: sessions go on, over new connections with new files."""
    monkeypatch.setattr(server_tls, "REFRESH_INTERVAL_S", 0.05)
    secret = Secret(tmp_path / "tls", authority)
    old = Secret(tmp_path / "old", authority)
    server = stack.enter_context(ZooKeeperServer(tmp_path / "zk", tls=secret.settings()))
    proxy = TcpProxy(server.port)
    stack.callback(proxy.close)
    zookeeper = ZooKeeperSettings(proxy.address, tls=secret.settings())
    settings = with_zookeeper(zookeeper)
    group, client = open_group(stack, settings, "g1"), open_client(stack, settings)
    inbox = Inbox()
    client.subscribe(NO_POSITION, inbox)
    group.append([marker("before")])
    assert inbox.names(1) == ["before"]

    secret.issue(stranger)
    newcomer = open_client(stack, settings)  # gets in once the server has the new files too
    proxy.cut()
    group.append([marker("after")])
    assert inbox.names(1) == ["after"]
    # What was under way when the connection broke is sent again, under the same sequence.
    assert {entry.sequence for entry in newcomer.read(NO_POSITION)} == {1, 2}
    message = refusal(replace(zookeeper, tls=old.settings()))
    assert "not signed by the authority" in message


def test_a_new_incarnation_goes_on_with_files_that_were_good(
    secure_zookeeper, tmp_path, authority, stack
):
    secret = Secret(tmp_path, authority)
    settings = with_zookeeper(replace(secure_zookeeper, tls=secret.settings()))
    files = zookeeper_certificates(settings.zookeeper)
    secret.write("tls.key", b"half a key")
    for group in ("g1", "g2"):
        stack.enter_context(
            closing(ZooKeeperGroupLog(settings, GroupId(group), certificates=files))
        ).register_pulse()
    with pytest.raises(SettingsError, match=r"ONYX_ZOOKEEPER_TLS_CERT_FILE=.*tls.key"):
        open_client(stack, settings)


def test_a_tls_handshake_without_an_answer_does_not_cost_the_session(secure_zookeeper, stack):
    proxy = TcpProxy(int(secure_zookeeper.address.rpartition(":")[2]))
    stack.callback(proxy.close)
    settings = with_zookeeper(replace(secure_zookeeper, address=proxy.address))
    log, heard = open_group(stack, settings, "g1"), Inbox()
    log.on_session(heard)
    proxy.ignore_next()
    proxy.cut()
    assert heard.take(2) == [Session.SUSPENDED, Session.CONNECTED]
    assert log.pulse_exists(GroupId("g1"))


def test_lost_packets_are_noticed_behind_tls_too(secure_zookeeper, stack):
    proxy = TcpProxy(int(secure_zookeeper.address.rpartition(":")[2]))
    stack.callback(proxy.close)
    shaky = replace(secure_zookeeper, address=proxy.address, session_timeout_s=4.0)
    log, heard = open_group(stack, with_zookeeper(shaky), "g1"), Inbox()
    log.on_session(heard)
    proxy.hold()
    assert heard.take() == [Session.SUSPENDED]
    proxy.release()
    assert heard.take()[0] in (Session.CONNECTED, Session.LOST)


@pytest.mark.slow
def test_the_servers_of_an_ensemble_speak_with_each_other_over_tls_too(
    tmp_path, authority, stranger, stack
):
    tls = Secret(tmp_path / "tls", authority, names=("localhost",)).settings()
    ports = free_ports(9)
    places = tuple(f"localhost:{ports[n]}:{ports[n + 3]}" for n in range(3))
    asked = tuple(("localhost", ports[n + 6]) for n in range(3))
    ensembles = [Ensemble(n, places, asked) for n in (1, 2, 3)]
    servers = [
        ZooKeeperServer(tmp_path / str(each.id), ensemble=each, tls=tls, heap_mib=64)
        for each in ensembles
    ]
    end = threading.Event()
    for server, ensemble in zip(servers, ensembles, strict=True):
        member = Member(server, ensemble, "127.0.0.1", lambda _: None)
        stack.callback(member.close)
        running = threading.Thread(target=run_until, args=(end, member, server))
        stack.callback(running.join)
        running.start()
    stack.callback(end.set)
    for server in servers:
        wait_for_port(server)
    addresses = ",".join(f"localhost:{server.port}" for server in servers)
    patient = ZooKeeperSettings(addresses, tls=tls, connect_timeout_s=WAIT_S)
    client = open_client(stack, with_zookeeper(patient))
    client.append(marker("a"))
    assert [entry.command.id for entry in client.read(NO_POSITION)] == ["a"]
    other = Secret(tmp_path / "other", stranger, trusted=authority).settings()
    files = CertificateFiles(other, ZOOKEEPER, serves=False)
    assert ask(ensembles[0], 2, servers[0].certificates) in (Holds.NOTHING, Holds.SHARED)
    for known in files, None:
        assert isinstance(ask(ensembles[0], 2, known), Unknown)
    for port in ports[3:6]:
        assert "refuses our certificate" in (diagnose("localhost", port, files, ZOOKEEPER) or "")
        assert "it uses TLS" in (diagnose("localhost", port, None, ZOOKEEPER) or "")


def run_until(end: threading.Event, member: Member, server: ZooKeeperServer) -> None:
    """The server dies with the thread that started it."""
    if member.start(end):
        end.wait()
    server.stop()


def wait_for_port(server: ZooKeeperServer) -> None:
    pause = threading.Event()
    for _ in range(int(WAIT_S / 0.1)):
        if server.port and server.serves():
            return
        pause.wait(0.1)


# The user


def test_every_node_of_a_tenancy_belongs_to_its_user_alone(secure_zookeeper, stack):
    settings = with_zookeeper(secure_zookeeper)
    group, client = open_group(stack, settings, "g1"), open_client(stack, settings)
    client.append(marker("a"))
    group.append([marker("b")])
    client.put_chunk(b"x" * 600_000)
    client.put_document("exception/j", b"1", None)
    group.put_document("frontier/j/t/0", b"1", None)
    client.establish({"job-scheduler": "balanced"})
    stranger = raw_client(stack, secure_zookeeper, "mallory:guess")
    nodes = list(tree(client._session._client, f"/onyx/{settings.tenancy_id}"))
    kinds = {"log", "pulse", "chunks", "documents", "origin", "parameters", "entry-0000000001"}
    assert kinds <= {node.rpartition("/")[2] for node in nodes}
    for node in nodes:
        forbidden = [
            lambda node=node: stranger.get(node),
            lambda node=node: stranger.get_children(node),
            lambda node=node: stranger.set(node, b"x"),
            lambda node=node: stranger.create(f"{node}/x", b""),
            lambda node=node: stranger.set_acls(node, OPEN_ACL_UNSAFE),
            lambda node=node: stranger.delete(node),
        ]
        for attempt in forbidden:
            with pytest.raises(NoAuthError):
                attempt()
    assert [entry.command.id for entry in client.read(NO_POSITION)] == ["a", "b"]


def tree(client: KazooClient, top: str) -> Iterator[str]:
    yield top
    for child in client.get_children(top):
        yield from tree(client, f"{top}/{child}")


def other_user(zookeeper: ZooKeeperSettings, folder: Path, user: str, password: str) -> Any:
    file = folder / f"password-of-{user}"
    file.write_text(password)
    return replace(zookeeper, auth_user=user, auth_password_file=str(file))


def test_a_client_with_no_user_another_or_a_wrong_password_cannot_open_the_log(
    secure_zookeeper, stack, tmp_path
):
    settings = with_zookeeper(secure_zookeeper)
    open_client(stack, settings).append(marker("a"))
    nobody = replace(secure_zookeeper, auth_user="", auth_password_file="")
    for zookeeper in (
        nobody,
        other_user(secure_zookeeper, tmp_path, "mallory", PASSWORD),
        other_user(secure_zookeeper, tmp_path, "onyx", "a guess"),
    ):
        for open_log in (open_client, lambda *args: open_group(*args, "g1")):
            with pytest.raises(UserError, match="Set ONYX_ZOOKEEPER_AUTH_USER and") as raised:
                open_log(stack, with_zookeeper(zookeeper, settings.tenancy_id))
            assert PASSWORD not in str(raised.value)
            assert "a guess" not in str(raised.value)


def test_users_share_a_server_each_with_a_tenancy_of_its_own(secure_zookeeper, stack, tmp_path):
    other = other_user(secure_zookeeper, tmp_path, "other", "another password")
    tenancy = uuid.uuid4().hex
    admit(secure_zookeeper, tenancy, read_access(other))
    for settings in (with_zookeeper(secure_zookeeper), with_zookeeper(other, tenancy)):
        client = open_client(stack, settings)
        client.append(marker("a"))
        assert len(client.read(NO_POSITION)) == 1


def test_a_tenancy_that_is_open_to_all_is_refused_by_a_process_with_a_user(secure_zookeeper, stack):
    settings = with_zookeeper(secure_zookeeper)
    admit(secure_zookeeper, settings.tenancy_id, Access(own=tuple(OPEN_ACL_UNSAFE)))
    nobody = replace(secure_zookeeper, auth_user="", auth_password_file="")
    open_client(stack, replace(settings, zookeeper=nobody)).append(marker("a"))
    with pytest.raises(UserError, match="was made without access control"):
        open_client(stack, with_zookeeper(secure_zookeeper, settings.tenancy_id))


def test_a_group_that_loses_its_rights_says_so(secure_zookeeper, stack):
    settings = with_zookeeper(secure_zookeeper)
    group = open_group(stack, settings, "g1")
    log = f"/onyx/{settings.tenancy_id}/log"
    admin = raw_client(stack, secure_zookeeper, f"onyx:{PASSWORD}")
    lost = Inbox()
    group.on_session(lost)
    admin.set_acls(log, [make_acl("world", "anyone", read=True)])
    group.append([marker("a")])
    lost.take(1)
    with pytest.raises(UserError, match="refuses access"):
        group.append([marker("b")])


def test_the_password_is_in_no_record_of_any_level(secure_zookeeper, stack, caplog):
    caplog.set_level(1)
    for name in ("onyx", "onyx.log.kazoo", "kazoo"):
        caplog.set_level(1, logger=name)
    client = open_client(stack, with_zookeeper(secure_zookeeper))
    client.append(marker("a"))
    assert "<hidden>" in caplog.text, "kazoo does tell its requests, the user's among them"
    assert PASSWORD not in caplog.text
    shown = repr(client._session.access)
    assert PASSWORD not in shown


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"auth_user": ""}, "ONYX_ZOOKEEPER_AUTH_USER must be set too"),
        ({"auth_password_file": ""}, "ONYX_ZOOKEEPER_AUTH_PASSWORD_FILE must be set too"),
        ({"auth_password_file": "/none"}, "FILE=/none: the file cannot be read: No such file"),
        ({"auth_user": "a:b"}, "a user has no ':'"),
    ],
)
def test_a_user_that_cannot_be_used_is_an_error(change, message, secure_zookeeper):
    with pytest.raises(SettingsError, match=message):
        ZooKeeperClientLog(with_zookeeper(replace(secure_zookeeper, **change)))
