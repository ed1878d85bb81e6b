"""The certificate with which a process serves strangers: checked, and read again when it changes.

Unlike `files`, nobody has to show a certificate in return, and the authority that signed this one
is not known here. A changed set is used only when its files fit each other: while one of them is
replaced, the last good set stays in use.
"""

from __future__ import annotations

import logging
import os
import ssl

from onyx.errors import SettingsError

logger = logging.getLogger("onyx.tls")

Stamp = tuple[tuple[int, int, int], ...]


class ServerFiles:
    """Certificate, key, and authorities of clients. Used by one thread.

    Args:
        cert_file: certificate of this process, followed by its intermediate certificates.
        key_file: its private key.
        client_ca_file: authorities whose clients are let in; empty lets in all.
        variable: beginning of the names of the variables that name these, for messages.

    Raises:
        SettingsError: a file is not named, cannot be read or is not good; says which, and why.
    """

    def __init__(self, cert_file: str, key_file: str, client_ca_file: str, variable: str) -> None:
        self._files = {
            "CERT_FILE": cert_file,
            "KEY_FILE": key_file,
            "CLIENT_CA_FILE": client_ca_file,
        }
        self._variable = variable
        missing = [f"{variable}_{name}" for name in ("CERT_FILE", "KEY_FILE") if not self._of(name)]
        if missing:
            raise SettingsError(
                f"{', '.join(missing)} must be set too, when another {variable}_*_FILE is"
            )
        self._complaint = ""
        self._stamp = self._found()
        self._context = self._load()

    @classmethod
    def named_by(
        cls, cert_file: str, key_file: str, client_ca_file: str, variable: str
    ) -> ServerFiles | None:
        """The files as the constructor takes them, or None when none is named."""
        if not (cert_file or key_file or client_ca_file):
            return None
        return cls(cert_file, key_file, client_ca_file, variable)

    def context(self) -> ssl.SSLContext:
        """For a new connection."""
        stamp = self._found()
        if stamp != self._stamp:
            try:
                self._context, self._stamp, self._complaint = self._load(), stamp, ""
                logger.info("%s has changed and is in use", self._of("CERT_FILE"))
            except SettingsError as error:
                if str(error) != self._complaint:
                    self._complaint = str(error)
                    logger.warning("%s; what was read before stays in use", error)
        return self._context

    def _of(self, name: str) -> str:
        return self._files[name]

    def _where(self, name: str) -> str:
        return f"{self._variable}_{name}={self._of(name)}"

    def _found(self) -> Stamp:
        stamps = []
        for path in self._files.values():
            try:
                found = os.stat(path)
                stamps.append((found.st_mtime_ns, found.st_size, found.st_ino))
            except OSError:
                stamps.append((0, 0, 0))
        return tuple(stamps)

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(self._of("CERT_FILE"), self._of("KEY_FILE"), lambda: "")
        except ssl.SSLError as error:
            both = f"{self._where('CERT_FILE')} and {self._where('KEY_FILE')}"
            raise SettingsError(
                f"{both} are no certificate and its key in PEM: {error.reason or error}"
            ) from error
        except (OSError, ValueError) as error:
            both = f"{self._where('CERT_FILE')} or {self._where('KEY_FILE')}"
            raise SettingsError(f"{both} cannot be read: {error}") from error
        if self._of("CLIENT_CA_FILE"):
            try:
                context.load_verify_locations(self._of("CLIENT_CA_FILE"))
            except (OSError, ValueError) as error:  # of ssl as well
                raise SettingsError(
                    f"{self._where('CLIENT_CA_FILE')} holds no certificate: {error}"
                ) from error
            context.verify_mode = ssl.CERT_REQUIRED
        return context
