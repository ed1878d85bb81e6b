"""The webhook's certificate: from mounted files, and again when they change.

New handshakes use the renewed certificate; connections that are open keep theirs. A pair that does
not fit (a key that was not written yet) is tried on a context of its own first, so that it never
takes the place of a good one.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path

from onyx.errors import SettingsError

logger = logging.getLogger(__name__)

Stamp = tuple[tuple[int, int, int], ...]


class Certificates:
    """A TLS context for a server that follows its files.

    Raises:
        SettingsError: the files are no certificate with its key.
    """

    def __init__(self, cert_file: str, key_file: str) -> None:
        self._files = (cert_file, key_file)
        try:
            self._stamp = self._look()
            self.context = self._load(_context())
        except (OSError, ssl.SSLError) as error:
            raise SettingsError(
                f"{cert_file} and {key_file} are not a certificate with its key: {error}; see "
                "ONYX_OPERATOR_WEBHOOK_CERT_FILE and ONYX_OPERATOR_WEBHOOK_KEY_FILE"
            ) from error

    def refresh(self) -> bool:
        """Take the files as they are now; whether they were new, and good."""
        try:
            stamp = self._look()
            if stamp == self._stamp:
                return False
            self._load(_context())
            self._load(self.context)
        except (OSError, ssl.SSLError) as error:
            logger.warning("the webhook keeps its certificate: %s cannot be used: %s",
                           self._files[0], error)  # fmt: skip
            return False
        self._stamp = stamp
        logger.info("the webhook has a new certificate")
        return True

    async def follow(self, interval_s: float) -> None:
        """Refresh for ever."""
        while True:
            await asyncio.sleep(interval_s)
            self.refresh()

    def _look(self) -> Stamp:
        found = (Path(file).stat() for file in self._files)
        return tuple((each.st_ino, each.st_mtime_ns, each.st_size) for each in found)

    def _load(self, context: ssl.SSLContext) -> ssl.SSLContext:
        context.load_cert_chain(*self._files)
        return context


def _context() -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
