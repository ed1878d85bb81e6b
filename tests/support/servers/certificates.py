"""Certificates made for a test, laid out as cert-manager lays out a secret."""

from __future__ import annotations

import datetime
import os
from pathlib import Path

import trustme

from onyx.settings import TlsSettings
from onyx.tls.files import GROUPS, CertificateFiles

WORKERS = "workers.test"
"""DNS name in the certificates of all workers."""
NAMES = (WORKERS, "localhost", "127.0.0.1")
EXPIRED = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


class Secret:
    """A folder with `ca.crt`, `tls.crt` and `tls.key`.

    Args:
        authority: issues the certificate.
        trusted: whose certificate is `ca.crt`; None means `authority`.
    """

    def __init__(
        self,
        folder: Path,
        authority: trustme.CA,
        names: tuple[str, ...] = NAMES,
        trusted: trustme.CA | None = None,
        not_after: datetime.datetime | None = None,
    ) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.issue(authority, names, trusted, not_after)

    def issue(
        self,
        authority: trustme.CA,
        names: tuple[str, ...] = NAMES,
        trusted: trustme.CA | None = None,
        not_after: datetime.datetime | None = None,
    ) -> None:
        """Replace all three files."""
        leaf = authority.issue_cert(*names, not_after=not_after)
        self.write("ca.crt", (trusted or authority).cert_pem.bytes())
        self.write("tls.crt", b"".join(each.bytes() for each in leaf.cert_chain_pems))
        self.write("tls.key", leaf.private_key_pem.bytes())

    def write(self, name: str, data: bytes) -> None:
        """Replace one file by a rename."""
        (self.folder / f"{name}.new").write_bytes(data)
        os.replace(self.folder / f"{name}.new", self.folder / name)

    def settings(self, server_name: str = "") -> TlsSettings:
        paths = (str(self.folder / name) for name in ("ca.crt", "tls.crt", "tls.key"))
        return TlsSettings(*paths, server_name)

    def files(self, server_name: str = WORKERS) -> CertificateFiles:
        """As a worker uses it."""
        return CertificateFiles(self.settings(server_name), GROUPS, serves=True)
