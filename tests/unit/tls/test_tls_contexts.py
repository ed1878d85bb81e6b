"""What newer versions of Python ask of an authority is asked nowhere."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)
from kubernetes import client as kubernetes_client

from onyx.tls.contexts import STRICT, client_context
from onyx_operator.api_client import api_client
from onyx_operator.informers.cell import credentials


def _strict(make: Callable[..., ssl.SSLContext]) -> Callable[..., ssl.SSLContext]:
    """As Python 3.13 makes contexts."""

    def made(*args: Any, **kwargs: Any) -> ssl.SSLContext:
        context = make(*args, **kwargs)
        context.verify_flags |= STRICT
        return context

    return made


def test_the_operator_takes_an_api_server_that_kubectl_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ssl, "create_default_context", _strict(ssl.create_default_context))
    configuration = kubernetes_client.Configuration(host="https://127.0.0.1:6443")

    asked = api_client(configuration).rest_client.pool_manager.connection_pool_kw["ssl_context"]
    watched = credentials(configuration).as_ssl_context()

    for context in (asked, watched):
        assert not context.verify_flags & STRICT
        assert context.verify_mode == ssl.CERT_REQUIRED
        assert context.check_hostname


def test_a_client_has_what_its_files_say(tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("client.example")
    ca, shown = tmp_path / "ca.pem", tmp_path / "shown.pem"
    authority.cert_pem.write_to_path(ca)
    issued.private_key_and_cert_chain_pem.write_to_path(shown)

    context = client_context(str(ca), str(shown), None)

    assert [each["subject"] for each in context.get_ca_certs()]
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert not context.verify_flags & STRICT


def test_an_encrypted_key_is_an_error_and_asks_nobody(tmp_path: Path) -> None:
    key = rsa.generate_private_key(65537, 2048).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
    )
    issued = trustme.CA().issue_cert("client.example")
    shown, closed = tmp_path / "shown.pem", tmp_path / "key.pem"
    issued.cert_chain_pems[0].write_to_path(shown)
    closed.write_bytes(key)

    with pytest.raises(ssl.SSLError):
        client_context(None, str(shown), str(closed))
