"""Attacked: the memory of ZooKeeper, by nodes that somebody makes who reaches its port and has no
password, or that of another tenancy."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing
from pathlib import Path

import pytest
import trustme
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE
from msgspec.structs import replace
from tests.support.log.logs import settings_for
from tests.support.log.markers import marker
from tests.support.log.strangers import stranger as stranger_of
from tests.support.patience import WAIT_S
from tests.support.servers.certificates import Secret
from tests.support.servers.ports import free_port

from onyx.cli.commands.admit import admit
from onyx.errors import UserError
from onyx.ids import NO_POSITION
from onyx.log.server.process import ZooKeeperServer
from onyx.log.zookeeper.log import ZooKeeperClientLog
from onyx.settings import TlsSettings, ZooKeeperSettings

pytestmark = pytest.mark.server

PASSWORDS = {"onyx": "of-onyx", "blue": "of-blue"}
EVERYWHERE = ("/", "/onyx", "/zookeeper", "/zookeeper/quota", "/zookeeper/config")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tmp_path_factory.mktemp("filled"), heap_mib=64) as running:
        yield running


@pytest.fixture
def address(server: ZooKeeperServer) -> str:
    """Of a server as it is when it is new: open to all, without nodes of others."""
    with raw(server.address, *PASSWORDS) as client:
        for node in EVERYWHERE[:-1]:
            if client.exists(node):
                client.set_acls(node, OPEN_ACL_UNSAFE)
        for node in sorted({*tree(client)}.difference(EVERYWHERE), reverse=True):
            client.delete(node)
        if client.exists("/onyx"):
            client.delete("/onyx")
    return server.address


def raw(
    address: str, *users: str, tls: TlsSettings | None = None
) -> AbstractContextManager[KazooClient]:
    return stranger_of(address, *((user, PASSWORDS[user]) for user in users), tls=tls)


def tree(client: KazooClient, top: str = "/") -> Iterator[str]:
    yield top
    try:
        children = client.get_children(top)
    except NoAuthError:
        return
    for child in children:
        yield from tree(client, f"{top.rstrip('/')}/{child}")


def filled(client: KazooClient) -> list[str]:
    """The nodes that somebody can add to, grow, or open for himself."""

    def can(attempt: Callable[[], object]) -> bool:
        try:
            attempt()
        except KazooException:
            return False
        return True

    return [
        node
        for node in sorted({*tree(client), *EVERYWHERE})
        if can(lambda node=node: client.create(f"{node.rstrip('/')}/junk", b"x" * 1000))
        or can(lambda node=node: client.set(node, b"x" * 1000))
        or can(lambda node=node: client.set_acls(node, OPEN_ACL_UNSAFE))
    ]


def zookeeper(address: str, folder: Path, user: str = "onyx", **changes: str) -> ZooKeeperSettings:
    file = folder / f"password-of-{user}"
    file.write_text(PASSWORDS[user])
    return ZooKeeperSettings(address, auth_user=user, auth_password_file=str(file), **changes)


def opened(stack: ExitStack, found: ZooKeeperSettings, tenancy: str) -> ZooKeeperClientLog:
    settings = replace(settings_for(found.address, tenancy=tenancy), zookeeper=found)
    log = stack.enter_context(closing(ZooKeeperClientLog(settings)))
    log.append(marker("a"))
    return log


def test_a_stranger_finds_no_node_to_fill(address: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        assert opened(stack, zookeeper(address, tmp_path), "ours").usage().bytes
        for users in (), ("blue",):
            stranger = stack.enter_context(raw(address, *users))
            assert filled(stranger) == []
            assert "ours" in stranger.get_children("/onyx"), "names are no secret"
        ours = opened(stack, zookeeper(address, tmp_path), "more")
        assert ours.other_tenancies() == ["ours"]


def test_a_process_without_a_user_changes_nothing(address: str) -> None:
    with ExitStack() as stack:
        opened(stack, ZooKeeperSettings(address), "laptop")
        client = stack.enter_context(raw(address))
        for node in EVERYWHERE[:-1]:
            assert client.get_acls(node)[0] == OPEN_ACL_UNSAFE


def test_what_stands_open_is_closed_by_the_first_who_has_a_user(
    address: str, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        laptop = opened(stack, ZooKeeperSettings(address), "laptop")
        assert laptop.usage().bytes
        opened(stack, zookeeper(address, tmp_path), "ours")
        stranger = stack.enter_context(raw(address))
        assert [node for node in filled(stranger) if "/onyx/laptop" not in node] == []
        laptop.append(marker("b"))
        with pytest.raises(UserError, match=r"has no /onyx/other.*Set ONYX_ZOOKEEPER_AUTH_USER"):
            opened(stack, ZooKeeperSettings(address), "other")


@pytest.mark.parametrize(
    ("close_root", "is_closed", "warns"),
    [("alone", False, True), ("always", True, False), ("never", False, False)],
)
def test_a_root_that_others_use_is_closed_if_the_settings_say_so(
    address: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    close_root: str,
    is_closed: bool,
    warns: bool,
) -> None:
    with ExitStack() as stack:
        theirs = stack.enter_context(raw(address))
        theirs.create("/brokers")
        opened(stack, zookeeper(address, tmp_path, close_root=close_root), "ours")
        theirs.create("/brokers/ids")
        assert ("/" not in filled(theirs)) is is_closed
        assert not any(node.startswith("/onyx") for node in filled(theirs))
    said = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert any("ONYX_ZOOKEEPER_CLOSE_ROOT" in each and "brokers" in each for each in said) is warns


def test_a_second_user_is_told_what_to_do_and_comes_in_then(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blue = zookeeper(address, tmp_path, "blue")
    ours = zookeeper(address, tmp_path)
    monkeypatch.setenv("ONYX_ZOOKEEPER_ADDRESS", address)
    with ExitStack() as stack:
        opened(stack, ours, "ours")
        told = "onyx admit blue --user blue --password-file FILE"
        with pytest.raises(UserError, match=told):
            opened(stack, blue, "blue")
        monkeypatch.setenv("ONYX_ZOOKEEPER_AUTH_USER", "blue")
        monkeypatch.setenv("ONYX_ZOOKEEPER_AUTH_PASSWORD_FILE", blue.auth_password_file)
        with pytest.raises(UserError, match=r"belongs adds tenancies, and ONYX_.* is 'blue'"):
            admit("blue", "blue", Path(blue.auth_password_file))

        monkeypatch.setenv("ONYX_ZOOKEEPER_AUTH_USER", "onyx")
        monkeypatch.setenv("ONYX_ZOOKEEPER_AUTH_PASSWORD_FILE", ours.auth_password_file)
        admit("blue", "blue", Path(blue.auth_password_file))
        with pytest.raises(UserError, match="/onyx/blue is there already"):
            admit("blue", "blue", Path(blue.auth_password_file))
        theirs = opened(stack, blue, "blue")
        assert len(theirs.read(NO_POSITION)) == 1
        assert theirs.usage().bytes
        with pytest.raises(UserError, match="belong to a user"):
            opened(stack, ours, "blue")
        tenant = stack.enter_context(raw(address, "blue"))
        assert not [node for node in filled(tenant) if not node.startswith("/onyx/blue")]


def test_a_path_of_the_address_is_closed_as_a_root_of_its_own(address: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        company = stack.enter_context(raw(address))
        company.create("/team")
        ours = opened(stack, zookeeper(f"{address}/team", tmp_path), "ours")
        assert ours.usage().bytes
        assert not [node for node in filled(company) if node.startswith("/team")]
        company.create("/brokers")


def test_a_root_that_somebody_else_has_closed_is_asked_for(address: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        opened(stack, zookeeper(address, tmp_path), "ours")
        with raw(address, "onyx") as owner:
            owner.delete("/onyx", recursive=True)
        with pytest.raises(UserError, match="its / belongs to another user"):
            opened(stack, zookeeper(address, tmp_path, "blue"), "blue")


@pytest.mark.slow
def test_a_server_of_onyx_closes_itself_before_it_is_ready(
    tmp_path: Path, authority: trustme.CA
) -> None:
    """Whatever somebody has put there when nobody looked, and with certificates that carry none of
    the names by which it dials itself."""
    tls = Secret(tmp_path / "tls", authority, names=("zk.data.svc",)).settings()
    port, pages = free_port(), free_port()
    named = replace(tls, server_name="zk.data.svc")
    with (
        ZooKeeperServer(tmp_path / "data", port, tls=tls) as before,
        raw(before.address, tls=named) as early,
    ):
        early.create("/junk")
    own = zookeeper("unused:1", tmp_path)
    tls_files = {
        f"ONYX_ZOOKEEPER_SERVER_TLS_{name.upper()}": getattr(tls, name)
        for name in ("ca_file", "cert_file", "key_file")
    }
    command = [sys.executable, "-c", "from onyx.cli import main; main()", "zookeeper"]
    environment = {
        **os.environ,
        **tls_files,
        "ONYX_ZOOKEEPER_SERVER_PORT": str(port),
        "ONYX_ZOOKEEPER_SERVER_HEAP_MIB": "64",
        "ONYX_TELEMETRY_METRICS_PORT": str(pages),
        "ONYX_ZOOKEEPER_SERVER_DATA_DIR": str(tmp_path / "data"),
        "ONYX_ZOOKEEPER_AUTH_USER": own.auth_user,
        "ONYX_ZOOKEEPER_AUTH_PASSWORD_FILE": own.auth_password_file,
    }
    output = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdout=output, text=True) as running:
        guard = threading.Timer(WAIT_S, running.kill)
        guard.start()
        try:
            assert any("ZooKeeper serves" in line for line in running.stdout or ())
            with urllib.request.urlopen(f"http://127.0.0.1:{pages}/metrics") as page:
                shown = page.read().decode()
            assert re.search(r"^onyx_zookeeper_data_bytes [1-9]", shown, re.M)
            assert f"onyx_zookeeper_heap_bytes {64 << 20:.7e}" in shown
            with raw(f"127.0.0.1:{port}", tls=named) as stranger:
                assert [node for node in filled(stranger) if node != "/junk"] == []
        finally:
            guard.cancel()
            running.terminate()
