"""The node: containerd, kubelet, kube-proxy, and DNS for the pods. Everything Debian's packages and
our own builds have; settings are those that a machine without systemd, AppArmor and swap limits
takes. Pods are connected point to point (CNI's ptp), so that each packet is routed and Services
also work between pods of this node. NetworkPolicies are accepted and not enforced.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.cluster.binaries import program
from tests.cluster.certificates import CA
from tests.cluster.commands import run, succeeds, wait_until, write
from tests.cluster.components import NODE_PACKAGES
from tests.cluster.control_plane import answers, client_config, kubectl
from tests.cluster.images import PAUSE_IMAGE, import_pause_image
from tests.cluster.layout import DOMAIN, NODE_IP, NODE_NAME, PODS, STATE
from tests.cluster.packages import missing
from tests.cluster.place import Place

CONTAINERD_SOCKET = STATE / "containerd.sock"
DNS_HEALTH_PORT = 8053
KUBELET_HEALTH_PORT = 10248
PODS_MAX = 110
_CONTAINERD_TOML = """\
version = 2
root = "{state}/containerd"
state = "/run/containerd"
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      BinaryName = "{runc}"
      SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni_programs}"
    conf_dir = "{cni_configuration}"
"""
_COREFILE = """\
. {{
  bind {ip}
  health {ip}:{health_port}
  kubernetes {domain} in-addr.arpa ip6.arpa {{
    kubeconfig {kubeconfig}
    ttl 1
  }}
}}
"""


def why_no_node() -> str:
    """What keeps this machine from running a node; empty when nothing does."""
    if packages := missing(NODE_PACKAGES):
        return "these packages are not installed: " + ", ".join(packages)
    if not succeeds("unshare", "--mount", "--net", "--pid", "--fork", "true"):
        return "this user may not make namespaces (root may)"
    if "overlay" not in Path("/proc/filesystems").read_text():
        return "the kernel has no overlay file system"
    return ""


def start_node(place: Place) -> None:
    """Start what does not run yet and wait until pods can be scheduled."""
    _start_dns(place)
    _start_containerd(place)
    import_pause_image(CONTAINERD_SOCKET)
    _start_kubelet(place)
    _start_proxy(place)
    wait_until(_is_ready, f"node {NODE_NAME} is ready")


def _is_ready() -> bool:
    conditions = "{.status.conditions[?(@.type=='Ready')].status}"
    return "True" in kubectl("get", "node", NODE_NAME, "-o", f"jsonpath={conditions}")


def _start_dns(place: Place) -> None:
    corefile = write(
        STATE / "Corefile",
        _COREFILE.format(
            ip=NODE_IP,
            health_port=DNS_HEALTH_PORT,
            domain=DOMAIN,
            kubeconfig=client_config("admin", place),
        ),
    )
    health = f"http://{NODE_IP}:{DNS_HEALTH_PORT}/health"
    place.daemon(
        "coredns", [program("coredns"), "-conf", corefile], lambda: answers(health)
    ).start()


def _start_containerd(place: Place) -> None:
    cni = STATE / "cni"
    cni.mkdir(exist_ok=True)
    local = {"type": "host-local", "ranges": [[{"subnet": PODS}]], "routes": [{"dst": "0.0.0.0/0"}]}
    ptp = {"type": "ptp", "ipMasq": False, "ipam": {**local, "dataDir": str(STATE / "cni-ips")}}
    plugins = [ptp, {"type": "portmap", "capabilities": {"portMappings": True}}]
    network = {"cniVersion": "0.4.0", "name": "onyx", "plugins": plugins}
    write(cni / "10-onyx.conflist", json.dumps(network))
    configuration = write(
        STATE / "containerd.toml",
        _CONTAINERD_TOML.format(
            state=STATE,
            socket=CONTAINERD_SOCKET,
            pause=PAUSE_IMAGE,
            runc=shutil.which("runc"),
            cni_programs="/usr/lib/cni",
            cni_configuration=cni,
        ),
    )
    place.daemon(
        "containerd",
        ["containerd", "--config", configuration],
        ready=lambda: succeeds("ctr", "--address", CONTAINERD_SOCKET, "version"),
    ).start()


def _start_kubelet(place: Place) -> None:
    write(STATE / "resolv.conf", "")
    settings = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": False}, "x509": {"clientCAFile": str(CA)}},
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "clusterDNS": [NODE_IP],
        "clusterDomain": DOMAIN,
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "evictionHard": {},
        "failCgroupV1": False,
        "failSwapOn": False,
        "healthzBindAddress": NODE_IP,
        "healthzPort": KUBELET_HEALTH_PORT,
        "localStorageCapacityIsolation": True,
        "maxPods": PODS_MAX,
        "oomScoreAdj": 0,
        "resolvConf": str(STATE / "resolv.conf"),
        "imageGCHighThresholdPercent": 100,
        "syncFrequency": "10s",
    }
    configuration = write(STATE / "kubelet.json", json.dumps(settings, indent=1))
    place.daemon(
        "kubelet",
        [
            program("kubelet"),
            f"--config={configuration}",
            f"--kubeconfig={client_config('kubelet', place)}",
            f"--root-dir={STATE / 'kubelet'}",
            f"--cert-dir={STATE / 'kubelet-certificates'}",
            f"--hostname-override={NODE_NAME}",
            f"--node-ip={NODE_IP}",
        ],
        ready=lambda: answers(f"http://{NODE_IP}:{KUBELET_HEALTH_PORT}/healthz"),
    ).start()


def _start_proxy(place: Place) -> None:
    settings = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "bindAddress": NODE_IP,
        "clientConnection": {"kubeconfig": str(client_config("kube-proxy", place))},
        "clusterCIDR": PODS,
        "conntrack": {"maxPerCore": 0, "min": 0},
        "hostnameOverride": NODE_NAME,
        "iptables": {"minSyncPeriod": "100ms"},
        "metricsBindAddress": f"{NODE_IP}:10249",
        "mode": "iptables",
    }
    configuration = write(STATE / "kube-proxy.json", json.dumps(settings, indent=1))
    health = f"http://{NODE_IP}:10256/livez"
    place.daemon(
        "kube-proxy", [program("kube-proxy"), f"--config={configuration}"], lambda: answers(health)
    ).start()


def stop_node_cgroups() -> None:
    """Remove the control groups of pods, which no namespace holds."""
    groups = [*Path("/sys/fs/cgroup").glob("kubepods"), *Path("/sys/fs/cgroup").glob("*/kubepods")]
    for group in groups:
        for folder in sorted(group.rglob("*/"), key=lambda path: -len(path.parts)):
            run("rmdir", folder)
        run("rmdir", group)
