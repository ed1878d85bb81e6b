"""The endpoint of a job: its address, headers and certificates, and how a request is sent to it.

A job is stored and shown, so it names where the secret of a header is: in the environment or in a
file. A file is read again when it has changed, as tokens on Kubernetes do; while it is away or
empty, what it held before is used.
"""

from __future__ import annotations

import os
import re

from msgspec.structs import replace

from onyx.plugins.http.connection import (
    ClientCertificates,
    EndpointConnection,
    HttpAnswer,
    verdict_of,
)
from onyx.plugins.http.options import EndpointAddress, HttpOptions, address_of
from onyx.plugins.http.sender import HttpRequest
from onyx.plugins.options import option_error, variable_of
from onyx.plugins.protocol import PluginContext

SECRET_CHARACTERS_MIN = 4
"""Shorter text is in every other word."""
HIDDEN = "***"
CONTENT_TYPES = {
    "json": "application/json",
    "jsonl": "application/x-ndjson",
    "json-array": "application/json",
    "arrow": "application/vnd.apache.arrow.stream",
}
SECRET_BYTES_MAX = 65_536
"""The size of a header; servers take less."""
_VALUE = re.compile(r"[ -~\t]+")


class JobEndpoint:
    """Where the requests of one task go. Used by several threads."""

    def __init__(self, context: PluginContext, options: HttpOptions) -> None:
        """Raises UserError: something that the options name is not there, or is wrong."""
        self._options = options
        self._address = _address(context, options)
        self._headers = Headers(context, options)
        is_https = self._address.scheme == "https"
        self._certificates = ClientCertificates(context, options) if is_https else None
        self.doing = f"{options.method} {self._address.shown}"
        """What a request does, for messages."""

    @property
    def shown(self) -> str:
        """The URL, for messages."""
        return self._address.shown

    def connect(self) -> EndpointConnection:
        """A connection, which is opened with the first request."""
        options = self._options
        return EndpointConnection(
            self._address,
            options.method,
            self._certificates,
            options.connect_seconds,
            options.timeout_seconds,
        )

    def exchange(self, connection: EndpointConnection, request: HttpRequest) -> HttpAnswer:
        """Send a request once. What is answered may repeat what was sent, so secrets are taken
        out of it."""
        headers = self._headers.all()
        if self._options.idempotency_header is not None:
            headers[self._options.idempotency_header] = request.key
        answer = connection.send(request.body, headers)
        if verdict_of(answer) == "delivered":
            return answer
        return replace(answer, text=self._without_secrets(answer.text))

    def _without_secrets(self, text: str) -> str:
        secrets = self._headers.secrets()
        if self._options.url_env is not None:
            secrets.append(self._address.target.partition("?")[2])
            secrets += [value for _, value in self._address.query]
        for secret in sorted(secrets, key=len, reverse=True):
            if len(secret) >= SECRET_CHARACTERS_MIN:
                text = text.replace(secret, HIDDEN)
        return text


def _address(context: PluginContext, options: HttpOptions) -> EndpointAddress:
    url, option = url_of(context, options)
    try:
        address = address_of(url)
    except ValueError as error:
        if option == "urlEnv":
            what = f"names variable {options.url_env!r}, which {error}"
        else:
            what = str(error)
        raise option_error(context, option, what) from None  # the cause may show the URL
    if address.scheme == "http":
        for problem in options.wrong_without_tls():
            raise option_error(context, problem.path, problem.message)
    return address


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
