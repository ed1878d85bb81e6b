"""Debian's packages, installed where that is possible: as root, on a machine with apt."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping

from tests.cluster.commands import ClusterError, run

TIMEOUT_S = 600.0


def missing(packages: Mapping[str, str]) -> list[str]:
    """Of a table from programs to packages: those whose program is not there."""
    return sorted({package for each, package in packages.items() if shutil.which(each) is None})


def install(packages: Mapping[str, str]) -> None:
    """Install what is missing, without starting any of it; whoever needs it looks whether it is
    there now."""
    wanted = missing(packages)
    if not wanted or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    print(f"installing {', '.join(wanted)}", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    command = ("apt-get", "install", "--yes", "--no-install-recommends", *wanted)
    with contextlib.suppress(ClusterError):
        run("apt-get", "update", timeout_s=TIMEOUT_S)
        run(*command, timeout_s=TIMEOUT_S, env=environment)
