"""Why a TLS connection fails, in words for the person who must act.

Libraries report little: with TLS 1.3 a server refuses a client's certificate only after the
client's handshake has ended, and gRPC then reports a closed socket. So after a failure we make one
more handshake of our own, whose alerts can be read. Nothing else is sent on that connection.
"""

from __future__ import annotations

import socket
import ssl

from onyx.tls.files import CertificateFiles

TIMEOUT_S = 2.0
"""Longest wait for a connection, for each answer in the handshake, and for an alert after it."""
_EXPIRED = 10
_NAMES = (62, 64)
"""OpenSSL's verification results for a host name and for an IP address."""


def diagnose(
    host: str, port: int, ours: CertificateFiles | None, variable: str, http2: bool = False
) -> str | None:
    """What is wrong with TLS between this process and the one at an address; None if nothing is,
    or if it cannot be reached at all.

    Args:
        ours: what this process connects with; None if it connects without TLS.
        variable: beginning of the names of the variables that would be set here.
        http2: offer the protocol of gRPC.
    """
    context = _unchecked() if ours is None else ours.current().client
    if http2:
        context.set_alpn_protocols(["h2"])
    name = host if ours is None or not ours.settings.server_name else ours.settings.server_name
    try:
        with (
            socket.create_connection((host, port), TIMEOUT_S) as connection,
            context.wrap_socket(connection, server_hostname=name) as wrapped,
        ):
            return _plain(variable) if ours is None else _after_handshake(wrapped, ours)
    except ssl.SSLError as error:
        if ours is not None:
            return explain(error, ours, name)
        return _plain(variable) if "ALERT" in (error.reason or "") else None
    except OSError:
        return None
    return None


def _after_handshake(wrapped: ssl.SSLSocket, ours: CertificateFiles) -> str | None:
    """A server of TLS 1.3 refuses a certificate now: by an alert (raised), or by hanging up."""
    try:
        if wrapped.recv(1):
            return None
    except TimeoutError:
        return None
    except ConnectionError:
        pass
    return _refused(ours)


def explain(error: ssl.SSLError, ours: CertificateFiles, name: str) -> str:
    """What a failed handshake means.

    Args:
        name: that the other side's certificate was to carry.
    """
    tls, variable = ours.settings, ours.variable
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code == _EXPIRED:
            return "its certificate has expired: renew it there"
        if error.verify_code in _NAMES:
            return (
                f"its certificate does not carry the name {name}: issue it with this DNS name, or "
                f"set {variable}_SERVER_NAME to one that it carries"
            )
        return (
            f"its certificate is not signed by the authority in {variable}_CA_FILE={tls.ca_file} "
            f"({error.verify_message}): both sides need certificates of one authority"
        )
    reason = error.reason or ""
    if "UNKNOWN_CA" in reason or "CERTIFICATE" in reason:
        return _refused(ours)
    if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"):
        return f"it does not use TLS and this process does ({variable}_CA_FILE): set both alike"
    if isinstance(error, ssl.SSLEOFError):
        return (
            "it hangs up when the TLS handshake begins, as a server without TLS does, and this "
            f"process uses TLS ({variable}_CA_FILE): set both alike"
        )
    return f"the TLS handshake failed: {error.reason or error}"


def _refused(ours: CertificateFiles) -> str:
    if not ours.settings.cert_file:
        return (
            f"it asks for a certificate: set {ours.variable}_CERT_FILE and "
            f"{ours.variable}_KEY_FILE to one of the authority that it trusts"
        )
    return (
        f"it refuses our certificate {ours.variable}_CERT_FILE={ours.settings.cert_file}: it must "
        "be in date and signed by the authority that the other side trusts"
    )


def _plain(variable: str) -> str:
    return f"it uses TLS and this process does not: set {variable}_CA_FILE and the other files"


def _unchecked() -> ssl.SSLContext:
    """For asking whether somebody speaks TLS, never for talking."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
