"""The URL of an endpoint, taken apart. It may hold a secret, so messages show only a part of it."""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import parse_qsl, urljoin, urlsplit

import msgspec

_UNWANTED = re.compile(r"[^!-~]")
"""A request line takes printable ASCII without blanks."""
_PORTS = {"http": 80, "https": 443}


class Address(msgspec.Struct, frozen=True):
    """Where requests go."""

    scheme: Literal["http", "https"]
    host: str
    port: int
    target: str
    """Path and query."""

    @property
    def shown(self) -> str:
        """The URL for messages: a query is left out, because it may hold a secret."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        path, mark, _ = self.target.partition("?")
        return f"{self.scheme}://{host}{port}{path}{mark and '?...'}"

    @property
    def query(self) -> list[tuple[str, str]]:
        """Names and values."""
        return parse_qsl(self.target.partition("?")[2], keep_blank_values=True)

    def followed(self, location: str) -> Address | None:
        """Where a redirect leads; None if that is another server, or none at all."""
        base = f"{self.scheme}://{_bracketed(self.host)}:{self.port}{self.target}"
        try:
            found = address_of(urljoin(base, location))
        except ValueError:
            return None
        here, there = ((each.scheme, each.host, each.port) for each in (self, found))
        return found if here == there else None


def address_of(url: str) -> Address:
    """The address that a URL names. Raises ValueError, which says what is wrong."""
    if _UNWANTED.search(url):
        raise ValueError("has blanks or characters that are not ASCII, which a URL encodes with %")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("is no URL, as https://example.com/orders")
    if parts.username is not None or parts.password is not None:
        raise ValueError("has credentials in it: name them in headersEnv or headersFile")
    try:
        port = parts.port
    except ValueError:
        raise ValueError("has a port that is no number from 1 to 65535") from None
    if port == 0:
        raise ValueError("has a port that is no number from 1 to 65535")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    scheme: Literal["http", "https"] = "https" if parts.scheme == "https" else "http"
    return Address(scheme, parts.hostname, port or _PORTS[scheme], target)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
