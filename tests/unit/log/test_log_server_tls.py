"""The copies of certificate files that a ZooKeeper server reads: private, renewed, and removed."""

from __future__ import annotations

import stat
import tempfile
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from tests.support.servers.certificates import Secret

from onyx.errors import Unavailable
from onyx.log.server import process
from onyx.log.server.process import ZooKeeperServer
from onyx.log.server.tls import ServerTls


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def secret(tmp_path: Path, authority: trustme.CA) -> Secret:
    return Secret(tmp_path / "tls", authority)


def in_traditional_form(secret: Secret) -> bytes:
    """The key as cert-manager writes it by default."""
    return (secret.folder / "tls.key").read_bytes()


def test_the_key_is_copied_in_the_form_that_the_server_reads(secret: Secret, temporary: Path):
    assert b"BEGIN PRIVATE KEY" not in in_traditional_form(secret)
    tls = ServerTls(secret.settings())
    folder = tls.start()
    copy = (folder / "key.pem").read_bytes()
    assert b"BEGIN PRIVATE KEY" in copy
    numbers = [
        serialization.load_pem_private_key(each, None).private_numbers()
        for each in (copy, in_traditional_form(secret))
    ]
    assert numbers[0] == numbers[1]
    assert copy.endswith((secret.folder / "tls.crt").read_bytes())
    assert (folder / "ca.pem").read_bytes() == (secret.folder / "ca.crt").read_bytes()
    tls.stop()


def test_the_copies_are_for_this_user_only_and_go_with_the_server(secret: Secret, temporary: Path):
    tls = ServerTls(secret.settings())
    folder = tls.start()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "key.pem").stat().st_mode) == 0o600
    tls.stop()
    assert list(temporary.iterdir()) == []


def test_renewed_files_are_copied_and_bad_ones_are_not(
    secret: Secret, temporary: Path, stranger: trustme.CA
):
    tls = ServerTls(secret.settings())
    folder = tls.start()
    first = (folder / "key.pem").read_bytes()
    secret.write("tls.key", b"half a key")
    tls.refresh()
    assert (folder / "key.pem").read_bytes() == first
    secret.issue(stranger)
    tls.refresh()
    assert (folder / "key.pem").read_bytes() != first
    assert (folder / "ca.pem").read_bytes() == stranger.cert_pem.bytes()
    tls.stop()


def test_a_server_that_cannot_start_leaves_no_key_behind(
    secret: Secret, temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def no_java() -> None:
        raise Unavailable("no Java")

    monkeypatch.setattr(process, "find_java", no_java)
    server = ZooKeeperServer(tmp_path / "data", tls=secret.settings())
    with pytest.raises(Unavailable, match="no Java"):
        server.start()
    assert list(temporary.iterdir()) == []
    assert not any(b"PRIVATE" in path.read_bytes() for path in (tmp_path / "data").iterdir())
