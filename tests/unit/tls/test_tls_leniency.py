"""What newer versions of Python ask of an authority is asked nowhere."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any

import pytest
from kubernetes import client as kubernetes_client

from onyx.tls.leniency import STRICT
from onyx_operator.informers.cell import credentials
from onyx_operator.kube import api_client


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
