"""Addresses of ZooKeeper, in whatever way they are written: their servers, as values that compare.

Names are compared as texts. What a name resolves to is not asked: its owner may change
it afterwards.
"""

from __future__ import annotations

import re

import msgspec

_PORT = "2181"
_HOST_AND_PORT = re.compile(r"(.*?)(?::([0-9]+))?")


class Server(msgspec.Struct, frozen=True):
    """One server of ZooKeeper, and the path below which a log is there."""

    host: str
    """In small letters; the name of a Service without what stands behind its namespace."""
    port: str
    path: str


def servers_of(address: str) -> dict[Server, str]:
    """The servers of an address such as `a:2181,b:2181/path`, each as it is written there."""
    hosts, slash, path = address.strip().partition("/")
    found: dict[Server, str] = {}
    for written in _parts(hosts):
        name, _, port = written.rpartition(":") if written.count(":") == 1 else (written, "", _PORT)
        short = _full(name).removesuffix(".cluster.local").removesuffix(".svc")
        found[Server(short, port, f"{slash}{path}".rstrip("/"))] = written
    return found


def hosts_of(address: str) -> list[tuple[str, int]]:
    """Host and port of each server of an address, the host as it is written."""
    found = []
    for written in _parts(address.strip().partition("/")[0]):
        host, port = _HOST_AND_PORT.fullmatch(written).groups()  # type: ignore[union-attr]
        found.append((_full(host), int(port or _PORT)))
    return found


def as_read_in(namespace: str, address: str) -> dict[Server, str]:
    """The servers of an address, as pods of a namespace read it: a name may be that of a Service of
    their own namespace."""
    found = servers_of(address)
    for server, written in list(found.items()):
        if _full(written.partition(":")[0]) == server.host:
            found[msgspec.structs.replace(server, host=f"{server.host}.{namespace}")] = written
    return found


def _parts(hosts: str) -> list[str]:
    return [part.strip() for part in hosts.split(",") if part.strip()]


def _full(name: str) -> str:
    return name.lower().rstrip(".")
