"""The certificate files of a process: checked before use, and read again at every connection.

cert-manager, or a person, renews certificates by replacing files, without a notice to this process.
Reading three small files at each new connection needs no watcher, no timer and no restart. A
changed set is used only when it is valid: while it is half written, does not fit together or has
expired, the last valid set stays in use, and the problem is logged once.

Valid means that this process can complete a handshake with itself, over two buffers in memory. That
one test covers dates, signature, chain, purpose and name.
"""

from __future__ import annotations

import logging
import ssl
import threading
from collections.abc import Callable

import msgspec

from onyx.errors import SettingsError
from onyx.settings import TlsSettings

logger = logging.getLogger("onyx.tls")

GROUPS, ZOOKEEPER = "ONYX_TLS", "ONYX_ZOOKEEPER_TLS"
"""Beginnings of the variables that name the files, for messages."""
READ_ATTEMPTS_MAX = 3
"""How often files that change while they are read are read again."""
FILE_BYTES_MAX = 1_048_576


class Pem(msgspec.Struct, frozen=True):
    """What the files held; never shown."""

    ca: bytes
    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "Pem(...)"


class Certificates(msgspec.Struct, frozen=True):
    """One good set of files."""

    pem: Pem
    client: ssl.SSLContext
    """For connections that this process opens."""
    server: ssl.SSLContext | None
    """For those that it accepts; None if it does not."""


class CertificateFiles:
    """The files that some settings name. Any thread may ask.

    Args:
        settings: with `ca_file`; the other two together or not at all.
        variable: beginning of the names of their variables, for messages.
        serves: whether this process also accepts connections with them, so that it needs all
            three, and they must fit each other.
        any_name: whether the other side may carry any name, as one at a loopback address does.

    Raises:
        SettingsError: a file is not named, cannot be read or is not good; says which, and why.
    """

    def __init__(
        self, settings: TlsSettings, variable: str, serves: bool, any_name: bool = False
    ) -> None:
        self.settings = settings
        self.variable = variable
        self._serves = serves
        self._any_name = any_name
        self._complaint = ""
        self._lock = threading.Lock()
        self._check_names()
        self._good = self._load(self._read())

    @classmethod
    def named_by(
        cls, settings: TlsSettings, variable: str, serves: bool
    ) -> CertificateFiles | None:
        """The certificates as the constructor, or None when the settings say nothing of TLS."""
        return None if settings == TlsSettings() else cls(settings, variable, serves)

    def current(self) -> Certificates:
        """The newest good set."""
        with self._lock:
            try:
                pem = self._read()
                if pem != self._good.pem:
                    self._good = self._load(pem)
                    logger.info("%s has changed and is in use", self.settings.cert_file)
                self._complaint = ""
            except SettingsError as error:
                self._complain(str(error))
            return self._good

    def _complain(self, complaint: str) -> None:
        if complaint != self._complaint:
            self._complaint = complaint
            logger.warning("%s; what was read before stays in use", complaint)

    def _check_names(self) -> None:
        tls = self.settings
        files = {"CA_FILE": tls.ca_file, "CERT_FILE": tls.cert_file, "KEY_FILE": tls.key_file}
        needed = set(files) if self._serves or tls.cert_file or tls.key_file else {"CA_FILE"}
        missing = [
            f"{self.variable}_{name}" for name in files if name in needed and not files[name]
        ]
        if missing:
            raise SettingsError(
                f"{', '.join(missing)} must be set too, when another {self.variable}_* is: "
                "with the authority's certificate, the certificate and its private key, in PEM"
            )

    def _read(self) -> Pem:
        tls = self.settings
        return Pem(
            self._read_file("CA_FILE", tls.ca_file),
            self._read_file("CERT_FILE", tls.cert_file),
            self._read_file("KEY_FILE", tls.key_file),
        )

    def _read_file(self, name: str, path: str) -> bytes:
        if not path:
            return b""
        try:
            with open(path, "rb") as file:
                return file.read(FILE_BYTES_MAX)
        except OSError as error:
            raise SettingsError(
                f"{self.variable}_{name}={path}: the file cannot be read: {error.strerror}"
            ) from error

    def _load(self, pem: Pem) -> Certificates:
        """`ssl` takes a key only from a file, so see that it was still the one that we know."""
        for _ in range(READ_ATTEMPTS_MAX):
            client = self._make(ssl.PROTOCOL_TLS_CLIENT, pem)
            self._check_server_name(client)
            server = self._make(ssl.PROTOCOL_TLS_SERVER, pem) if self._serves else None
            if server is not None:
                self._shake_hands(client, server)
            client.check_hostname = not self._any_name
            again = self._read()
            if again == pem:
                return Certificates(pem, client, server)
            pem = again
        raise SettingsError(f"{self.settings.cert_file} changes while it is read; try again")

    def _make(self, protocol: ssl._SSLMethod, pem: Pem) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_REQUIRED
        # The authority in `ca.crt` may itself be signed by another one.
        context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
        tls = self.settings
        self._try("CA_FILE", tls.ca_file, lambda: _load_ca(context, pem.ca))
        if tls.cert_file:
            self._try(
                "CERT_FILE",
                tls.cert_file,
                lambda: context.load_cert_chain(tls.cert_file, tls.key_file, _no_password),
            )
        return context

    def _try(self, name: str, path: str, load: Callable[[], None]) -> None:
        where = f"{self.variable}_{name}={path}"
        try:
            load()
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                key = f"{self.variable}_KEY_FILE={self.settings.key_file}"
                raise SettingsError(
                    f"{key} is not the private key of the certificate in {where}: "
                    "take both from the same secret"
                ) from error
            key = f" (or {self.settings.key_file})" if name == "CERT_FILE" else ""
            raise SettingsError(
                f"{where}{key} holds no certificate in PEM that can be used"
            ) from error
        except (ValueError, OSError) as error:
            raise SettingsError(f"{where}: {error}") from error

    def _check_server_name(self, client: ssl.SSLContext) -> None:
        name = self.settings.server_name
        try:
            client.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname=name or "localhost")
        except ValueError as error:
            raise SettingsError(f"{self.variable}_SERVER_NAME={name!r} is no DNS name") from error

    def _shake_hands(self, client: ssl.SSLContext, server: ssl.SSLContext) -> None:
        name = self.settings.server_name
        client.check_hostname = bool(name)  # `_load` sets it for good
        try:
            _shake_hands(client, server, name or None)
        except ssl.SSLError as error:
            why = str(getattr(error, "verify_message", None) or error.reason).rstrip(".")
            named = f", and carry the name {self.variable}_SERVER_NAME={name}" if name else ""
            raise SettingsError(
                f"{self.variable}_CERT_FILE={self.settings.cert_file} would be refused by others "
                f"with the same files: {why}. It must be in date, be signed by the authority in "
                f"{self.variable}_CA_FILE={self.settings.ca_file}, and be for server and for "
                f"client authentication{named}"
            ) from error


def _load_ca(context: ssl.SSLContext, ca: bytes) -> None:
    context.load_verify_locations(cadata=ca.decode("ascii", "replace"))
    if not context.cert_store_stats()["x509"]:
        raise ValueError("the file holds no certificate")


def _no_password() -> str:
    raise ValueError("the private key has a password; give one without")


def _shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, name: str | None) -> None:
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(back, there, server_hostname=name),
        server.wrap_bio(there, back, server_side=True),
    ]
    while ends:
        waiting = []
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                waiting.append(end)
        ends = waiting
