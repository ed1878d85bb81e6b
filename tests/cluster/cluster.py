"""The cluster up and down, as a table of steps. `up` does what is missing and may be repeated;
`down` leaves nothing: whatever the namespaces hold ends with them, the rest is set back here."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tests.cluster import binaries
from tests.cluster.commands import ClusterError, daemons, stop_daemon, wait_until, was_started
from tests.cluster.components import NODE_PACKAGES
from tests.cluster.control_plane import PROGRAMS, start_control_plane
from tests.cluster.images import load_images
from tests.cluster.layout import KUBECONFIG, NODE_FILE, STATE
from tests.cluster.machine import record_kernel_settings, restore_kernel_settings
from tests.cluster.node import (
    CONTAINERD_SOCKET,
    start_node,
    stop_node_cgroups,
    why_no_node,
)
from tests.cluster.packages import install
from tests.cluster.place import CNI_STATE, HOLDER, THIS_MACHINE, Place, link_is_gone, make_namespace

Step = tuple[str, Callable[[], None]]


def up(with_node: bool = True) -> None:
    """Bring the cluster up; also finishes one that is up in part.

    Raises:
        ClusterError: the control plane cannot be brought up. A node that cannot is no error: the
            reason is printed and kept for `why_there_is_no_node`.
    """
    reason = _prepare_node() if with_node else "it was not wanted"
    binaries.build(PROGRAMS if reason else ())
    STATE.mkdir(parents=True, exist_ok=True)
    place = THIS_MACHINE if reason else _node_place()
    _take([("control plane", lambda: start_control_plane(place))])
    if not reason:
        reason = _try_node(place)
    if reason:
        NODE_FILE.write_text(reason)
        print(f"there is no node, only a control plane: {reason}", flush=True)
    else:
        NODE_FILE.unlink(missing_ok=True)


def down() -> None:
    """End everything and remove every trace but the programs in the cache."""
    had_namespace, names = was_started(HOLDER), daemons()
    for name in sorted(names, key=lambda each: each == HOLDER):
        if name == HOLDER or HOLDER not in names:
            stop_daemon(name)
    if had_namespace:
        _take(
            [
                ("control groups", lambda: wait_until(_cgroups_removed, "the pods have ended")),
                ("network", lambda: wait_until(link_is_gone, "the link to the node is gone")),
            ]
        )
    _take([("kernel settings", restore_kernel_settings), ("folders", _remove_folders)])


def load(images: Sequence[str]) -> None:
    """Copy images of this machine's podman or docker into the node."""
    reason = why_there_is_no_node()
    if reason:
        raise ClusterError(f"there is no node to load images into: {reason}")
    load_images(images, CONTAINERD_SOCKET)


def why_there_is_no_node() -> str:
    """Why the cluster has no node; empty when it has one."""
    if not KUBECONFIG.exists():
        return "the cluster is down"
    return NODE_FILE.read_text() if NODE_FILE.exists() else ""


def _take(steps: Iterable[Step]) -> None:
    for name, step in steps:
        started_s = time.monotonic()
        step()
        print(f"{name}: {time.monotonic() - started_s:.1f} s", flush=True)


def _prepare_node() -> str:
    """Install what is missing where that is possible; why there can be no node, else empty."""
    install(NODE_PACKAGES)
    return why_no_node()


def _node_place() -> Place:
    record_kernel_settings()
    return make_namespace()


def _try_node(place: Place) -> str:
    try:
        _take([("node", lambda: start_node(place)), ("volumes", lambda: _start_storage(place))])
    except ClusterError as error:
        return str(error)
    return ""


def _start_storage(place: Place) -> None:
    """The provisioner runs with this Python, as its client library is installed there."""
    root = Path(__file__).parents[2]
    place.daemon(
        "storage",
        [sys.executable, "-m", "tests.cluster.storage", KUBECONFIG, STATE / "volumes"],
        ready=lambda: (STATE / "volumes").exists(),
        PYTHONPATH=str(root),
    ).start()


def _cgroups_removed() -> bool:
    try:
        stop_node_cgroups()
    except ClusterError:
        return False
    return True


def _remove_folders() -> None:
    shutil.rmtree(STATE, ignore_errors=True)
    if STATE.exists():
        raise ClusterError(f"{STATE} cannot be removed; is something mounted or running there?")
    with contextlib.suppress(OSError):
        CNI_STATE.rmdir()
