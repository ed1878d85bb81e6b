"""Ports that processes may listen on: one, several, or ranges, of which each takes a free one.

The system says which port is free. A supervisor that deals them out was rejected: several workers
of one machine may have the same range, and know nothing of each other. A port is tried with a
socket first, because gRPC writes to the standard error what it cannot bind.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence

from onyx.base.variables import Ports
from onyx.errors import SettingsError
from onyx.settings import TransportSettings


def ports_of(text: Ports) -> Sequence[int]:
    """Every port of a text such as `7700,7710-7719`, in its order; 0 alone stands for any.

    Raises:
        SettingsError: a range is wrong.
    """
    found = [port for part in text.split(",") for port in _range(part.strip())]
    if 0 in found and len(found) > 1:
        raise SettingsError(
            f"ONYX_TRANSPORT_PORT={text}: 0 takes any free port, so no other can stand beside it"
        )
    return list(dict.fromkeys(found))


def check_enough(settings: TransportSettings, processes: int) -> None:
    """Refuse fewer ports than processes: each listens on one of its own.

    Raises:
        SettingsError: so it is, or a range is wrong.
    """
    ports = ports_of(settings.port)
    if ports != [0] and len(ports) < processes:
        raise SettingsError(
            f"ONYX_TRANSPORT_PORT={settings.port} has {len(ports)} of the {processes} ports that "
            f"{processes} worker processes need: give a range, such as "
            f"{ports[0]}-{ports[0] + processes - 1}, or 0, which takes free ones"
        )


def free_ports(settings: TransportSettings) -> Iterator[int]:
    """The ports on which nothing listens at this moment.

    Raises:
        SettingsError: a range is wrong.
    """
    ports = ports_of(settings.port)
    return (port for port in ports if len(ports) == 1 or _is_free(settings.bind_host, port))


def _range(part: str) -> Sequence[int]:
    first, dash, last = part.partition("-")
    ports = range(int(first), int(last if dash else first) + 1)
    if not ports:
        raise SettingsError(f"ONYX_TRANSPORT_PORT: {part} has no ports: give the lower one first")
    return ports


def _is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host.strip("[]"), port), family=family).close()
    except OSError:
        return False
    return True
