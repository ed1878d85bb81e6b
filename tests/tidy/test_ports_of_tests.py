"""Ports of servers of tests are nobody else's from when they are chosen."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.support.servers.ports import free_ports

TESTS = Path(__file__).parents[1]
EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
OTHER = "from tests.support.servers.ports import free_ports; print(*free_ports(2_000))"
RELEASED = re.compile(r"def _?free_ports?\(")


def test_two_processes_are_given_different_ports_that_no_connection_gets() -> None:
    ours = free_ports(2_000)
    done = subprocess.run(
        [sys.executable, "-c", OTHER], cwd=TESTS.parent, capture_output=True, text=True, check=True
    )
    theirs = list(map(int, done.stdout.split()))

    assert len({*ours, *theirs}) == 4_000
    if EPHEMERAL.exists():
        assert max(*ours, *theirs) < int(EPHEMERAL.read_text().split()[0])


def test_ports_are_chosen_in_one_place() -> None:
    """Elsewhere they would be released before they are used."""
    chosen = {
        str(path.relative_to(TESTS))
        for path in TESTS.rglob("*.py")
        if RELEASED.search(path.read_text())
    }

    assert chosen == {"support/servers/ports.py"}
