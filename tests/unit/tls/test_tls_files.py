"""Certificate files: what is wrong with them is said, and what was good stays in use."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from msgspec.structs import replace
from tests.support.servers.certificates import EXPIRED, WORKERS, Secret

from onyx.errors import SettingsError
from onyx.settings import TlsSettings
from onyx.tls.files import GROUPS, ZOOKEEPER, CertificateFiles


@pytest.fixture
def secret(tmp_path: Path, authority: trustme.CA) -> Secret:
    return Secret(tmp_path / "tls", authority)


def test_files_that_fit_each_other_are_taken(secret: Secret):
    assert secret.files().current().pem.ca == (secret.folder / "ca.crt").read_bytes()


def test_an_authority_that_another_one_has_signed_is_enough(tmp_path: Path, authority: trustme.CA):
    Secret(tmp_path, authority.create_child_ca()).files()


def test_without_any_setting_there_is_no_tls():
    assert CertificateFiles.named_by(TlsSettings(), GROUPS, serves=True) is None


@pytest.mark.parametrize("missing", ["ca_file", "cert_file", "key_file"])
def test_a_file_that_is_not_named_is_an_error_and_never_silently_no_tls(
    secret: Secret, missing: str
):
    settings = replace(secret.settings(), **{missing: ""})
    with pytest.raises(SettingsError, match=f"ONYX_TLS_{missing.upper()} must be set"):
        CertificateFiles.named_by(settings, GROUPS, serves=True)


def test_a_name_alone_is_an_error():
    with pytest.raises(SettingsError, match=r"ONYX_TLS_CA_FILE, .* must be set"):
        CertificateFiles.named_by(TlsSettings(server_name="x"), GROUPS, serves=True)


@pytest.mark.parametrize("serves", [True, False])
@pytest.mark.parametrize("name", [".x", "a..b", "x" * 64])
def test_a_name_that_is_none_is_an_error(secret: Secret, name: str, serves: bool):
    with pytest.raises(SettingsError, match=r"ONYX_TLS_SERVER_NAME='.*' is no DNS name"):
        CertificateFiles(secret.settings(name), GROUPS, serves)


def test_a_client_needs_only_the_authority(secret: Secret):
    settings = TlsSettings(ca_file=str(secret.folder / "ca.crt"))
    assert CertificateFiles(settings, ZOOKEEPER, serves=False).current().pem.key == b""
    with pytest.raises(SettingsError, match="ONYX_ZOOKEEPER_TLS_KEY_FILE must be set"):
        CertificateFiles(replace(settings, cert_file="x"), ZOOKEEPER, serves=False)


def remove_key(secret: Secret, authority: trustme.CA, other: trustme.CA) -> None:
    (secret.folder / "tls.key").unlink()


def replace_key(secret: Secret, authority: trustme.CA, other: trustme.CA) -> None:
    secret.write("tls.key", authority.issue_cert(WORKERS).private_key_pem.bytes())


def expire(secret: Secret, authority: trustme.CA, other: trustme.CA) -> None:
    secret.issue(authority, not_after=EXPIRED)


def sign_by_another(secret: Secret, authority: trustme.CA, other: trustme.CA) -> None:
    secret.issue(other, trusted=authority)


def name_differently(secret: Secret, authority: trustme.CA, other: trustme.CA) -> None:
    secret.issue(authority, names=("else.test",))


def spoil_authority(secret: Secret, authority: trustme.CA, other: trustme.CA) -> None:
    secret.write("ca.crt", b"hello")


def empty_authority(secret: Secret, authority: trustme.CA, other: trustme.CA) -> None:
    secret.write("ca.crt", b"")


def spoil_certificate(secret: Secret, authority: trustme.CA, other: trustme.CA) -> None:
    secret.write("tls.crt", b"hello")


def lock_key(secret: Secret, authority: trustme.CA, other: trustme.CA) -> None:
    key = serialization.load_pem_private_key((secret.folder / "tls.key").read_bytes(), None)
    locked = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"password"),
    )
    secret.write("tls.key", locked)


BROKEN = {
    lock_key: "the private key has a password; give one without",
    remove_key: r"ONYX_TLS_KEY_FILE=.*tls.key: the file cannot be read: No such file",
    replace_key: r"KEY_FILE=.*tls.key is not the private key of the certificate in .*tls.crt",
    expire: r"CERT_FILE=.*tls.crt would be refused .* certificate has expired",
    sign_by_another: r"tls.crt would be refused .* be signed by the authority in .*ca.crt",
    name_differently: r"not valid for 'workers.test'.* ONYX_TLS_SERVER_NAME=workers.test",
    spoil_authority: r"ONYX_TLS_CA_FILE=.*ca.crt",
    empty_authority: r"ONYX_TLS_CA_FILE=.*ca.crt",
    spoil_certificate: r"ONYX_TLS_CERT_FILE=.*tls.crt .* holds no certificate in PEM",
}
NAMES = [each.__name__ for each in BROKEN]


@pytest.mark.parametrize(("spoil", "message"), BROKEN.items(), ids=NAMES)
def test_what_is_wrong_at_the_start_is_said_with_variable_and_file(
    spoil, message, secret: Secret, authority: trustme.CA, stranger: trustme.CA
):
    spoil(secret, authority, stranger)
    with pytest.raises(SettingsError, match=message) as raised:
        secret.files()
    assert "PRIVATE KEY" not in str(raised.value)


@pytest.mark.parametrize(("spoil", "message"), BROKEN.items(), ids=NAMES)
def test_files_that_turn_bad_leave_the_good_ones_in_use_and_are_told_once(
    spoil, message, secret: Secret, authority: trustme.CA, stranger: trustme.CA, caplog
):
    files = secret.files()
    good = files.current()
    spoil(secret, authority, stranger)
    assert [files.current(), files.current()] == [good, good]
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    secret.issue(authority)
    assert files.current().pem.key == (secret.folder / "tls.key").read_bytes()


def test_renewed_files_are_used_from_the_next_connection_on(
    secret: Secret, stranger: trustme.CA, caplog
):
    files = secret.files()
    first = files.current()
    assert files.current() is first
    secret.issue(stranger)
    assert files.current().pem.ca == stranger.cert_pem.bytes()


def test_the_key_is_not_shown(secret: Secret):
    shown = repr(secret.files().current())
    assert "BEGIN" not in shown
