"""Kazoo over TLS: bytes that TLS has read from the socket already are not waited for."""

from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path

import pytest
import trustme
from tests.support.servers.certificates import Secret

from onyx.log.zookeeper.dialler import TlsHandler
from onyx.tls.files import ZOOKEEPER, CertificateFiles


@pytest.fixture
def files(tmp_path: Path, authority: trustme.CA) -> CertificateFiles:
    return CertificateFiles(Secret(tmp_path, authority).settings(), ZOOKEEPER, serves=False)


def test_a_socket_of_which_tls_holds_bytes_is_ready(files: CertificateFiles):
    tls = files.settings
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tls.cert_file, tls.key_file)
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        connection, _ = listener.accept()
        with server.wrap_socket(connection, server_side=True) as wrapped:
            wrapped.sendall(b"ab")
            wrapped.recv(1)

    thread = threading.Thread(target=answer)
    thread.start()
    handler = TlsHandler(files)
    with listener, handler.create_connection(listener.getsockname(), "localhost", 60.0) as client:
        assert client.recv(1) == b"a"
        assert handler.select([client], [], [], 30.0) == ([client], [], [])
        assert handler.select([listener, client], [], [], 30.0) == ([client], [], [])
        assert client.recv(1) == b"b"
        assert handler.select([client], [], [], 0) == ([], [], [])
        client.sendall(b"x")
    thread.join()
