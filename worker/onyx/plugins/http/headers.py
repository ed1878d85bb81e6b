"""The headers that a job gives, with secrets from the environment and from files.

A job is stored and shown, so it names where a secret is. A file is read again when it has changed,
as tokens on Kubernetes do; while it is away or empty, what it held before is used.
"""

from __future__ import annotations

import os
import re

from onyx.plugins.http.options import HttpOptions
from onyx.plugins.options import option_error, variable_of
from onyx.plugins.protocol import PluginContext

CONTENT_TYPES = {
    "json": "application/json",
    "jsonl": "application/x-ndjson",
    "json-array": "application/json",
    "arrow": "application/vnd.apache.arrow.stream",
}
SECRET_BYTES_MAX = 65_536
"""The size of a header; servers take less."""
_VALUE = re.compile(r"[ -~\t]+")


class Headers:
    """The headers of one task. Used by several threads."""

    def __init__(self, context: PluginContext, options: HttpOptions) -> None:
        """Raises UserError: a variable or file is not there, or holds no value of a header."""
        self._context = context
        self._plain = {"User-Agent": "onyx", "Content-Type": CONTENT_TYPES[options.format]}
        given = {name.lower() for name in options.headers}
        self._plain = {k: v for k, v in self._plain.items() if k.lower() not in given}
        self._plain |= options.headers
        self._secrets = {
            name: self._variable(name, variable) for name, variable in options.headers_env.items()
        }
        self._files = {
            name: _SecretFile(context.located(path)) for name, path in options.headers_file.items()
        }
        for name, file in self._files.items():
            if not file.value():
                what = f"names {file.path!r} for {name}, which cannot be read or holds no header"
                raise option_error(context, "headersFile", what)

    def all(self) -> dict[str, str]:
        """Name and value of each, as they are now."""
        headers = self._plain | self._secrets
        for name, file in self._files.items():
            headers[name] = file.value()
        return headers

    def secrets(self) -> list[str]:
        """What nobody may see: values, and of `Bearer ...` the second word alone too."""
        values = [*self._secrets.values(), *(each.known for each in self._files.values())]
        return values + [each.rpartition(" ")[2] for each in values]

    def _variable(self, name: str, variable: str) -> str:
        value = variable_of(self._context, "headersEnv", variable, name)
        if not _VALUE.fullmatch(value):
            what = f"names variable {variable!r} for {name}, which holds more than printable ASCII"
            raise option_error(self._context, "headersEnv", what)
        return value


class _SecretFile:
    def __init__(self, path: str) -> None:
        self.path = path
        self.known = ""
        self._stamp: tuple[int, int, int] | None = None

    def value(self) -> str:
        """What the file holds; what it held before where that is no value."""
        try:
            found = os.stat(self.path)
            stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
            if stamp != self._stamp:
                with open(self.path, encoding="ascii") as file:
                    text = file.read(SECRET_BYTES_MAX).strip()
                if _VALUE.fullmatch(text):
                    self.known, self._stamp = text, stamp
        except (OSError, ValueError):
            pass
        return self.known


def url_of(context: PluginContext, options: HttpOptions) -> tuple[str, str]:
    """The URL of a job, and the option that it comes from. Raises UserError."""
    if options.url is not None:
        return options.url, "url"
    assert options.url_env is not None, "checked with the options"
    return variable_of(context, "urlEnv", options.url_env), "urlEnv"
