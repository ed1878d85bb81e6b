"""Mutual TLS between groups: who may speak, what is said to those who may not, and renewal."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from msgspec.structs import replace
from tests.integration.transport.test_transport_contract import (
    SETTINGS,
    A,
    B,
    Side,
    collect,
    eventually,
    grpc_world,
    pump,
    stop,
)
from tests.support.servers.certificates import EXPIRED, WORKERS, Secret

from onyx.tls.files import GROUPS, CertificateFiles
from onyx.transport.grpc_transport import GrpcTransport

pytestmark = pytest.mark.server


@contextlib.contextmanager
def pair(near: CertificateFiles | None, far: CertificateFiles | None) -> Iterator[None]:
    """Two groups that try to speak with each other; `near` dials."""
    sides = [
        Side(A, GrpcTransport(SETTINGS, "tenancy", near)),
        Side(B, GrpcTransport(SETTINGS, "tenancy", far)),
    ]
    try:
        for side, other in (sides, sides[::-1]):
            side.transport.start(side.group, side)
            side.transport.connect({other.group: other.transport.address})
        yield
        assert all(side.transport.counters().connects == 0 for side in sides)
    finally:
        stop(*(side.transport for side in sides))


@pytest.fixture
def good(tmp_path: Path, authority: trustme.CA) -> CertificateFiles:
    return Secret(tmp_path / "good", authority).files()


def unchecked(secret: Secret) -> CertificateFiles:
    """What a process might hold whose own check did not help: its files turned bad later."""
    return CertificateFiles(secret.settings(WORKERS), GROUPS, serves=False)


def complaint(caplog: pytest.LogCaptureFixture, *parts: str) -> None:
    """Wait for a warning that has all these parts."""

    def said() -> bool:
        return any(
            record.levelno == logging.WARNING and all(part in record.getMessage() for part in parts)
            for record in list(caplog.records)
        )

    eventually(said, f"a warning with {parts}, among {caplog.messages}")


NOT_SIGNED = "its certificate is not signed by the authority in ONYX_TLS_CA_FILE="
REFUSED = "it refuses our certificate ONYX_TLS_CERT_FILE="


def test_a_group_whose_certificate_is_of_another_authority_is_not_spoken_to(
    tmp_path, authority, stranger, good, caplog
):
    far = unchecked(Secret(tmp_path / "far", stranger, trusted=authority))
    with pair(good, far):
        complaint(caplog, f"no stream to group {B} at 127.0.0.1:", NOT_SIGNED)


def test_a_group_does_not_let_in_one_whose_certificate_is_of_another_authority(
    tmp_path, authority, stranger, good, caplog
):
    near = unchecked(Secret(tmp_path / "near", stranger, trusted=authority))
    with pair(near, good):
        complaint(caplog, f"no stream to group {B} at 127.0.0.1:", REFUSED)


@pytest.mark.parametrize(("side", "message"), [("near", REFUSED), ("far", "has expired: renew")])
def test_an_expired_certificate_is_refused(side, message, tmp_path, authority, good, caplog):
    expired = unchecked(Secret(tmp_path / "expired", authority, not_after=EXPIRED))
    with pair(*((expired, good) if side == "near" else (good, expired))):
        complaint(caplog, str(B), message)


@pytest.mark.parametrize(
    ("side", "message"),
    [
        ("near", f"carries else.test and not {WORKERS}, which every worker's must"),
        ("far", f"does not carry the name {WORKERS}: issue it with this DNS name"),
    ],
)
def test_a_certificate_of_the_authority_without_the_clusters_name_is_refused(
    side, message, tmp_path, authority, good, caplog
):
    other = unchecked(Secret(tmp_path / "other", authority, names=("else.test",)))
    with pair(*((other, good) if side == "near" else (good, other))):
        complaint(caplog, str(B), message)


def test_a_group_without_tls_is_told_that_the_other_has_it(good, caplog):
    with pair(None, good):
        complaint(caplog, str(B), "it uses TLS and this process does not: set ONYX_TLS_CA_FILE")


def test_a_group_with_tls_is_told_that_the_other_has_none(good, caplog):
    with pair(good, None):
        complaint(caplog, str(B), "it does not use TLS and this process does")


def served_by(address: str) -> bytes:
    """The certificate that a group shows now."""
    host, _, port = address.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection((host, int(port)), 10) as connection,
        context.wrap_socket(connection) as wrapped,
    ):
        return wrapped.getpeercert(binary_form=True) or b""


def test_a_new_authority_takes_over_under_running_groups_and_nothing_is_lost(
    tmp_path, authority, stranger
):
    """The old certificates go out of use within the age that a connection may have."""
    secret = Secret(tmp_path / "both", authority)
    young = replace(SETTINGS, tls_connection_age_max_s=0.2)
    with grpc_world(young, certificates=secret.files()) as world:
        inbox = world.far.open(segments_max=500)
        world.send([10**6])
        assert collect(inbox, 1) == [10**6]
        before = served_by(world.far.transport.address)

        def renew() -> None:
            if served_by(world.far.transport.address) == before:
                secret.issue(stranger)
                renewed = world.near.transport.counters().reconnects + 2
                eventually(lambda: world.near.transport.counters().reconnects >= renewed)

        assert pump(world, inbox, 1_000, renew) == list(range(1_000))
        assert served_by(world.far.transport.address) != before
        late = unchecked(Secret(tmp_path / "late", authority))
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(world.far.transport.address, late)


def handshake(address: str, files: CertificateFiles) -> None:
    host, _, port = address.rpartition(":")
    with (
        socket.create_connection((host, int(port)), 10) as connection,
        files.current().client.wrap_socket(connection, server_hostname=WORKERS),
    ):
        return
