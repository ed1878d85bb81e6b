"""The installation's certificates: what follows from them at which time, and that all who hold them
take each other through every renewal."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store

from onyx.settings import TlsSettings
from onyx.tls.files import CertificateFiles
from onyx_operator.installation.authority import (
    AUTHORITY_DAYS,
    Authority,
    Pair,
    authority_is_due,
    certificate_is_due,
    is_usable,
    issue,
    new_authority,
)

NOW = datetime(2026, 11, 1, tzinfo=UTC)
DAY, LIFE = timedelta(days=1), timedelta(days=90)
NAMES = ("onyx-worker.onyx.svc", "*.onyx-zookeeper-servers.onyx.svc")


def issued(authority: Authority, now: datetime = NOW) -> Pair:
    return issue(authority, NAMES, LIFE, now, client=True)


def is_due(pair: Pair, authority: Authority, now: datetime) -> bool:
    return certificate_is_due(pair, authority, NAMES, now)


def is_trusted(pair: Pair, trusted: bytes, now: datetime) -> bool:
    """As whoever has this bundle sees it, by rules that are not ours."""
    certificate = x509.load_pem_x509_certificate(pair.certificate)
    store = Store(x509.load_pem_x509_certificates(trusted))
    verifier = PolicyBuilder().store(store).time(now)
    try:
        verifier.build_server_verifier(x509.DNSName(NAMES[0])).verify(certificate, [])
    except x509.verification.VerificationError:
        return False
    return True


def test_a_certificate_is_taken_by_those_who_have_the_authority() -> None:
    authority, other = new_authority("onyx", NOW), new_authority("onyx", NOW)
    pair = issued(authority)

    assert is_trusted(pair, authority.trusted, NOW)
    assert not is_trusted(pair, other.trusted, NOW)
    assert not is_trusted(pair, authority.trusted, NOW + LIFE + DAY)


def test_the_files_are_such_as_workers_and_zookeeper_start_with(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    authority = new_authority("onyx-authority", now)
    pair = issued(authority, now)
    for name, content in (("ca", authority.trusted), ("crt", pair.certificate), ("key", pair.key)):
        (tmp_path / name).write_bytes(content)
    settings = TlsSettings(
        *(str(tmp_path / each) for each in ("ca", "crt", "key")), server_name=NAMES[0]
    )

    assert CertificateFiles(settings, "ONYX_TLS", serves=True).current()


def test_the_webhooks_certificate_opens_nothing(tmp_path: Path) -> None:
    """It is for a server alone: workers and ZooKeeper refuse it from a client."""
    authority = new_authority("onyx", NOW)
    pair = issue(authority, NAMES, LIFE, NOW, client=False)
    certificate = x509.load_pem_x509_certificate(pair.certificate)
    verifier = PolicyBuilder().store(Store(x509.load_pem_x509_certificates(authority.trusted)))

    assert is_trusted(pair, authority.trusted, NOW)
    with pytest.raises(x509.verification.VerificationError):
        verifier.time(NOW).build_client_verifier().verify(certificate, [])


@pytest.mark.parametrize(
    ("after", "due"), [(timedelta(0), False), (59 * DAY, False), (61 * DAY, True), (91 * DAY, True)]
)
def test_a_certificate_is_renewed_after_two_thirds_of_its_life(after: timedelta, due: bool) -> None:
    authority = new_authority("onyx", NOW)

    assert is_due(issued(authority), authority, NOW + after) is due


def test_other_names_a_damaged_file_and_another_authority_are_due_at_once() -> None:
    authority = new_authority("onyx", NOW)
    pair = issued(authority)

    assert certificate_is_due(pair, authority, NAMES[:1], NOW)
    assert is_due(Pair(b"", b""), authority, NOW)
    assert is_due(Pair(pair.certificate, b"nonsense"), authority, NOW)
    assert is_due(Pair(pair.certificate, issued(authority).key), authority, NOW)
    assert is_due(issued(new_authority("onyx", NOW)), authority, NOW)


def test_an_authority_is_renewed_after_two_thirds_of_its_life_and_trusted_to_its_end() -> None:
    first = new_authority("onyx", NOW)
    assert not authority_is_due(first, NOW + 0.66 * AUTHORITY_DAYS * DAY)
    late = NOW + 0.67 * AUTHORITY_DAYS * DAY
    assert authority_is_due(first, late)

    second = new_authority("onyx", late, first)
    assert is_usable(second)
    assert not authority_is_due(second, late)
    assert first.trusted in second.trusted
    third = new_authority("onyx", NOW + 2 * AUTHORITY_DAYS * DAY, second)
    assert first.trusted not in third.trusted


def test_through_a_renewal_of_the_authority_nobody_is_refused() -> None:
    """Whoever still has the former bundle takes what is shown, until all can have the new one."""
    first = new_authority("onyx", NOW)
    old = issued(first, NOW + 2400 * DAY)
    change = NOW + 2450 * DAY
    second = new_authority("onyx", change, first)

    for minutes in (0, 30, 59):
        now = change + timedelta(minutes=minutes)
        assert not is_due(old, second, now)
        assert is_trusted(old, first.trusted, now)
        assert is_trusted(old, second.trusted, now)
    now = change + timedelta(minutes=61)
    assert is_due(old, second, now)
    new = issued(second, now)
    assert is_trusted(new, second.trusted, now)
    assert is_trusted(old, second.trusted, now)
    assert not is_due(new, second, now)


def test_an_authority_that_is_brought_may_be_of_another_kind() -> None:
    brought = trustme.CA(key_type=trustme.KeyType.RSA)
    pem, key = brought.cert_pem.bytes(), brought.private_key_pem.bytes()
    authority = Authority(Pair(pem, key), pem)
    now = datetime.now(UTC)

    assert is_usable(authority)
    assert is_trusted(issued(authority, now), authority.trusted, now)
    assert not is_usable(Authority(Pair(pem, trustme.CA().private_key_pem.bytes()), pem))
    assert not is_usable(Authority(Pair(pem, key), trustme.CA().cert_pem.bytes()))
    assert not is_usable(Authority(Pair(b"", b""), b""))


def test_no_key_is_shown_by_a_value() -> None:
    assert "PRIVATE" not in repr(new_authority("onyx", NOW))


def test_the_key_is_one_that_servers_of_java_and_openssl_read() -> None:
    assert issued(new_authority("onyx", NOW)).key.startswith(b"-----BEGIN PRIVATE KEY-----")
    assert ssl.PEM_cert_to_DER_cert(issued(new_authority("onyx", NOW)).certificate.decode())
