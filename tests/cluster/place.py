"""Where the processes of the cluster run: in namespaces of their own, or just on this machine.

The namespaces (network, mounts, processes) are held by one process. When it ends, the kernel ends
every process in them and forgets every mount, interface, route and packet filter, so that taking
the cluster down needs no book-keeping. Rejected: `ip netns exec`, which mounts /sys anew and so
hides the cgroups from the kubelet. A veth pair leads from the machine into the namespace, with
routes to pods and Services, so that tests reach everything directly.

Without root there are no namespaces: the control plane then runs on the loopback interface.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.commands import Daemon, daemon_pid, run, succeeds
from tests.cluster.layout import HOST_IP, LINK_BITS, NODE_IP, PODS, SERVICES, STATE

HOLDER = "namespace"
HOST_LINK, NODE_LINK = "onyx-host", "onyx-node"
CNI_STATE = Path("/var/lib/cni")
"""A path that the container runtime takes no setting for; covered inside the namespace."""


@dataclass(frozen=True)
class Place:
    """Where to run something, and the address to listen on there."""

    prefix: tuple[str, ...]
    ip: str

    def daemon(
        self,
        name: str,
        command: list[str | os.PathLike[str]],
        ready: Callable[[], bool],
        **environment: str,
    ) -> Daemon:
        """A daemon to be started here."""
        return Daemon(name, [*self.prefix, *command], ready, environment)


THIS_MACHINE = Place((), "127.0.0.1")


def make_namespace() -> Place:
    """The namespaces, made unless they exist."""
    _holder().start()
    place = running_namespace()
    assert place is not None, "its holder has just been started"
    if link_is_gone():
        _connect(_inner_pid())
        _configure(place)
    return place


def running_namespace() -> Place | None:
    """The namespaces of the cluster that runs on this machine; None without one."""
    inner = _inner_pid()
    if not inner:
        return None
    return Place(("nsenter", "--target", inner, "--mount", "--net", "--pid", "--"), NODE_IP)


def link_is_gone() -> bool:
    """Whether the kernel has removed the link, which it does some time after the namespace."""
    return not succeeds("ip", "link", "show", HOST_LINK)


def _holder() -> Daemon:
    first = ["catatonit", "-P"]
    command = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return Daemon(HOLDER, [*command, *first], lambda: _inner_pid() != "")


def _inner_pid() -> str:
    """The first process in the namespaces, as this machine numbers it."""
    pid = daemon_pid(HOLDER)
    if pid is None:
        return ""
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().strip()


def _connect(inner: str) -> None:
    run("ip", "link", "add", HOST_LINK, "type", "veth", "peer", NODE_LINK, "netns", inner)
    run("ip", "address", "add", f"{HOST_IP}/{LINK_BITS}", "dev", HOST_LINK)
    run("ip", "link", "set", HOST_LINK, "up")
    inside = ("nsenter", "--target", inner, "--net", "ip")
    run(*inside, "link", "set", "lo", "up")
    run(*inside, "address", "add", f"{NODE_IP}/{LINK_BITS}", "dev", NODE_LINK)
    run(*inside, "link", "set", NODE_LINK, "up")
    run(*inside, "route", "add", "default", "via", HOST_IP)
    for network in (PODS, SERVICES):
        run("ip", "route", "add", network, "via", NODE_IP)


def _configure(place: Place) -> None:
    """Forwarding, and folders of its own where programs write to fixed paths."""
    CNI_STATE.mkdir(exist_ok=True)
    covered = STATE / "cni-state"
    covered.mkdir(exist_ok=True)
    steps = (
        ("mount", "--make-rshared", "/"),
        ("mount", "-t", "tmpfs", "tmpfs", "/run"),
        ("mount", "-t", "tmpfs", "tmpfs", "/var/log"),
        ("mount", "--bind", str(covered), str(CNI_STATE)),
        ("sysctl", "-q", "-w", "net.ipv4.ip_forward=1"),
    )
    for step in steps:
        run(*place.prefix, *step)
