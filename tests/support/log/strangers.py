"""Clients of a ZooKeeper that nothing of Onyx keeps back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kazoo.client import KazooClient
from tests.support.patience import WAIT_S

from onyx.log.zookeeper.dialler import TlsHandler
from onyx.settings import TlsSettings
from onyx.tls.files import ZOOKEEPER, CertificateFiles


@contextmanager
def stranger(
    address: str, *accounts: tuple[str, str], tls: TlsSettings | None = None
) -> Iterator[KazooClient]:
    """A client that shows these accounts, each a user with the password."""
    files = CertificateFiles(tls, ZOOKEEPER, serves=False) if tls else None
    shown = [("digest", ":".join(each)) for each in accounts]
    client = KazooClient(address, auth_data=shown, handler=TlsHandler(files) if files else None)
    client.start(WAIT_S)
    try:
        yield client
    finally:
        client.stop()
        client.close()
