"""Ports for servers that tests start, which have to know theirs before they listen.

A port that was found free and released is anybody's until the server has it: every listener of a
worker or a JVM beside it that asks for any port may get this one, and then the servers of an
ensemble find a stranger where one of them should be. So ports here lie below those that the kernel
gives away, and a lock says which process has which for as long as it lives.
"""

from __future__ import annotations

import fcntl
import functools
import os
import random
import socket
import tempfile
from pathlib import Path

FIRST, LAST = 13_000, 29_999
"""Below what Linux gives away (32,768 and above), and none of the ports that Onyx, Spark or
Kubernetes have by default."""
_ours: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, all different, and that nobody else is given as long as this
    process lives."""
    first, total = random.randint(FIRST, LAST), LAST - FIRST + 1
    found: list[int] = []
    for step in range(total):
        port = FIRST + (first - FIRST + step) % total
        if _claimed(port):
            found.append(port)
            if len(found) == count:
                return found
    raise AssertionError(f"fewer than {count} ports are free")


def free_port() -> int:
    """One such port."""
    return free_ports(1)[0]


def _claimed(port: int) -> bool:
    if port in _ours:
        return False
    try:
        fcntl.lockf(_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
    except OSError:
        return False
    _ours.add(port)
    return True


@functools.cache
def _locks() -> int:
    """A file of which each byte is a port. It is never closed: that would end all locks."""
    path = Path(tempfile.gettempdir()) / f"onyx-test-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
