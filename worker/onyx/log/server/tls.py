"""TLS files for the ZooKeeper server that Onyx starts, and their renewal.

The server reads PEM, but only with key and certificate in one file and the key in PKCS#8, which is
not what cert-manager writes by default. So the files are copied in that form into a private
temporary folder; never into the data folder, which outlives the server. The server watches the
copies. This process watches the originals: a volume of Kubernetes changes by a link, which the
server's own watch does not follow.
"""

from __future__ import annotations

import logging
import os
import shutil
import ssl
import tempfile
import threading
from pathlib import Path

from onyx.errors import SettingsError, Unavailable
from onyx.log.server.config import KEY_STORE, TRUST_STORE
from onyx.settings import TlsSettings
from onyx.tls.files import CertificateFiles, Pem

logger = logging.getLogger("onyx.log")

VARIABLE = "ONYX_ZOOKEEPER_SERVER_TLS"
REFRESH_INTERVAL_S = 10.0
"""How often the files are looked at; a mounted secret follows its change after up to a minute."""


class ServerTls:
    """The copies for one server.

    Raises:
        SettingsError: a file cannot be read or is not good.
        Unavailable: the package that converts the key is not installed.
    """

    def __init__(self, settings: TlsSettings) -> None:
        self._files = CertificateFiles(settings, VARIABLE, serves=True)
        self.near = CertificateFiles(settings, VARIABLE, serves=False, any_name=True)
        """With which this process dials its own server, by a name that the certificate has not."""
        self._folder: Path | None = None
        self._copied: Pem | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    @classmethod
    def of(cls, settings: TlsSettings) -> ServerTls | None:
        """The settings as the constructor, or None when the settings say nothing of TLS."""
        return None if settings == TlsSettings() else cls(settings)

    @property
    def files(self) -> CertificateFiles:
        """The originals."""
        return self._files

    @property
    def client(self) -> ssl.SSLContext:
        """With which this process asks its own server."""
        return self.near.current().client

    def start(self) -> Path:
        """Make the copies, and renew them until `stop`; the folder where they are."""
        self.stop()
        self._folder = Path(tempfile.mkdtemp(prefix="onyx-zookeeper-tls-"))
        self.refresh()
        self._stopped.clear()
        self._thread = threading.Thread(target=self._watch, name="onyx-zookeeper-tls", daemon=True)
        self._thread.start()
        return self._folder

    def stop(self) -> None:
        """Remove the copies; harmless when there are none."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder, self._copied = None, None

    def refresh(self) -> None:
        """Copy the files if they have changed."""
        pem = self._files.current().pem
        if pem != self._copied:
            self._write(KEY_STORE, _pkcs8(pem.key, self._files) + b"\n" + pem.certificate)
            self._write(TRUST_STORE, pem.ca)
            self._copied = pem

    def _write(self, name: str, data: bytes) -> None:
        assert self._folder is not None
        new = self._folder / f"{name}.new"
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(new, self._folder / name)

    def _watch(self) -> None:
        while not self._stopped.wait(REFRESH_INTERVAL_S):
            try:
                self.refresh()
            except (SettingsError, OSError) as error:
                logger.warning("the ZooKeeper server keeps its former certificate: %s", error)


def _pkcs8(key: bytes, files: CertificateFiles) -> bytes:
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
    except ImportError as error:
        raise Unavailable(
            "a ZooKeeper server with TLS needs the package `cryptography`: "
            "pip install 'onyx-on-kubernetes[spark]'"
        ) from error
    try:
        return serialization.load_pem_private_key(key, None).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # Not `from`: the message of a parser may quote what it has read.
        raise SettingsError(
            f"{VARIABLE}_KEY_FILE={files.settings.key_file} holds no private key that can be used"
        ) from None
