"""Packets of a pod that are lost, which breaks no connection: on the cluster of this machine only,
whose node's packet filter can be reached."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.layout import KUBECONFIG
from tests.cluster.place import Place, running_namespace
from tests.e2e.kube import run


def node() -> Place:
    """Where the packets of all pods pass; skips the test on a cluster of somebody else."""
    place = running_namespace()
    ours = Path(os.environ.get("KUBECONFIG", "")).expanduser() == KUBECONFIG
    if place is None or not ours:
        pytest.skip("only the node of `make cluster` can be made to drop packets")
    return place


@contextlib.contextmanager
def lost(node: Place, ip: str, port: int) -> Iterator[None]:
    """While the block runs, nothing that this address sends to that port arrives."""
    rule = ["PREROUTING", "--source", ip, "--protocol", "tcp", "--dport", str(port), "--jump"]
    table = [*node.prefix, "iptables", "--wait", "--table", "raw"]
    run([*table, "--insert", *rule, "DROP"])
    try:
        yield
    finally:
        run([*table, "--delete", *rule, "DROP"])
