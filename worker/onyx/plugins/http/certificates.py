"""TLS towards an endpoint: whom to trust, and the certificate of this side.

Files are read again when they have changed, and new connections use what they hold then. While they
do not belong together, as in the middle of a change, connections go on with those before.
"""

from __future__ import annotations

import os
import ssl
import threading

from onyx.plugins.http.options import HttpOptions
from onyx.plugins.options import option_error
from onyx.plugins.protocol import PluginContext

Stamps = tuple[tuple[str, int, int], ...]


class Certificates:
    """What the connections of one task use. Safe from several threads."""

    def __init__(self, context: PluginContext, options: HttpOptions) -> None:
        """Raises UserError: a file is not there, or is none of its kind."""
        ca, certificate, key = (
            None if path is None else context.located(path)
            for path in (options.ca_file, options.certificate_file, options.key_file)
        )
        self._ca, self._certificate, self._key = ca, certificate, key
        self._lock = threading.Lock()
        self._stamps = self._found()
        for option, path in (("caFile", ca), ("certificateFile", certificate), ("keyFile", key)):
            if path is not None and not os.path.isfile(path):
                raise option_error(context, option, f"names {path!r}, which is not there")
        try:
            self._context = self._made()
        except (OSError, ValueError) as error:  # of ssl as well
            option = "caFile" if certificate is None else "certificateFile"
            what = f"leads to files that TLS does not take: {error}"
            raise option_error(context, option, what) from error

    def context(self) -> ssl.SSLContext:
        """For a new connection."""
        with self._lock:
            stamps = self._found()
            if stamps != self._stamps:
                try:
                    self._context = self._made()
                    self._stamps = stamps
                except (OSError, ValueError):
                    pass
            return self._context

    def _made(self) -> ssl.SSLContext:
        made = ssl.create_default_context(cafile=self._ca)
        if self._certificate is not None:
            # Without a password function OpenSSL would ask at a terminal.
            made.load_cert_chain(self._certificate, self._key, password=lambda: "")
        return made

    def _found(self) -> Stamps:
        stamps = []
        for path in filter(None, (self._ca, self._certificate, self._key)):
            try:
                found = os.stat(path)
                stamps.append((path, found.st_mtime_ns, found.st_ino))
            except OSError:
                stamps.append((path, 0, 0))
        return tuple(stamps)
