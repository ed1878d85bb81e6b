"""The endpoint of a job: its address, headers and certificates, and how a request is sent to it."""

from __future__ import annotations

from msgspec.structs import replace

from onyx.plugins.http.address import Address, address_of
from onyx.plugins.http.answers import Answer, verdict_of
from onyx.plugins.http.certificates import Certificates
from onyx.plugins.http.connection import Connection
from onyx.plugins.http.headers import Headers, url_of
from onyx.plugins.http.options import HttpOptions
from onyx.plugins.http.sender import Request
from onyx.plugins.options import option_error
from onyx.plugins.protocol import PluginContext

SECRET_CHARACTERS_MIN = 4
"""Shorter text is in every other word."""
HIDDEN = "***"


class Endpoint:
    """Where the requests of one task go. Used by several threads."""

    def __init__(self, context: PluginContext, options: HttpOptions) -> None:
        """Raises UserError: something that the options name is not there, or is wrong."""
        self._options = options
        self._address = _address(context, options)
        self._headers = Headers(context, options)
        is_https = self._address.scheme == "https"
        self._certificates = Certificates(context, options) if is_https else None
        self.doing = f"{options.method} {self._address.shown}"
        """What a request does, for messages."""

    @property
    def shown(self) -> str:
        """The URL, for messages."""
        return self._address.shown

    def connect(self) -> Connection:
        """A connection, which is opened with the first request."""
        options = self._options
        return Connection(
            self._address,
            options.method,
            self._certificates,
            options.connect_seconds,
            options.timeout_seconds,
        )

    def exchange(self, connection: Connection, request: Request) -> Answer:
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


def _address(context: PluginContext, options: HttpOptions) -> Address:
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
