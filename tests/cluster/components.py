"""The table of what a cluster is made of: Go programs by module, and Debian's packages.

Everything comes through ordinary package registries: no release archive is downloaded, so that a
machine with nothing but a Go proxy and a Debian mirror can do it. Kubernetes requires its own
staging modules at v0.0.0, which only its repository has; hence the replacements.
"""

from __future__ import annotations

from dataclasses import dataclass

KUBERNETES = "1.36.2"
STAGING = (
    "api apiextensions-apiserver apimachinery apiserver cli-runtime client-go cloud-provider "
    "cluster-bootstrap code-generator component-base component-helpers controller-manager cri-api "
    "cri-client cri-streaming csi-translation-lib dynamic-resource-allocation endpointslice "
    "externaljwt kms kube-aggregator kube-controller-manager kube-proxy kube-scheduler kubectl "
    "kubelet metrics mount-utils pod-security-admission sample-apiserver sample-cli-plugin "
    "sample-controller streaming"
)


@dataclass(frozen=True)
class GoModule:
    """One module at one version, and the programs to build from it."""

    name: str
    """Of the folder in the cache: `<name>-<version>`."""
    path: str
    version: str
    programs: dict[str, str]
    """Name of a program: the package that it is built from."""
    replaced: tuple[str, ...] = ()
    """`module => module version` for what the module requires at a version that does not exist."""
    variables: tuple[str, ...] = ()
    """`package.variable=value`, set by the linker."""


def _kubernetes() -> GoModule:
    programs = "kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl"
    major, minor, patch = KUBERNETES.split(".")
    return GoModule(
        name="kubernetes",
        path="k8s.io/kubernetes",
        version=KUBERNETES,
        programs={each: f"k8s.io/kubernetes/cmd/{each}" for each in programs.split()},
        replaced=tuple(
            f"k8s.io/{each} => k8s.io/{each} v0.{minor}.{patch}" for each in STAGING.split()
        ),
        variables=tuple(
            f"k8s.io/{package}/version.{variable}"
            for package in ("component-base", "client-go/pkg")
            for variable in (f"gitVersion=v{KUBERNETES}", f"gitMajor={major}", f"gitMinor={minor}")
        ),
    )


GO_MODULES = (
    _kubernetes(),
    GoModule("etcd", "go.etcd.io/etcd/server/v3", "3.6.14", {"etcd": "go.etcd.io/etcd/server/v3"}),
    GoModule(
        "coredns", "github.com/coredns/coredns", "1.14.7", {"coredns": "github.com/coredns/coredns"}
    ),
    GoModule("helm", "helm.sh/helm/v3", "3.21.4", {"helm": "helm.sh/helm/v3/cmd/helm"}),
)

ON_DEMAND = (
    GoModule(
        "versitygw",
        "github.com/versity/versitygw",
        "1.8.0",
        {"versitygw": "github.com/versity/versitygw/cmd/versitygw"},
    ),
    GoModule(
        "protoc-gen-go",
        "google.golang.org/protobuf",
        "1.36.11",
        {"protoc-gen-go": "google.golang.org/protobuf/cmd/protoc-gen-go"},
    ),
    GoModule(
        "protoc-gen-go-grpc",
        "google.golang.org/grpc/cmd/protoc-gen-go-grpc",
        "1.6.0",
        {"protoc-gen-go-grpc": "google.golang.org/grpc/cmd/protoc-gen-go-grpc"},
    ),
    GoModule(
        "nats-server",
        "github.com/nats-io/nats-server/v2",
        "2.15.2",
        {"nats-server": "github.com/nats-io/nats-server/v2"},
    ),
)
"""No part of the cluster: an object store and a queue for tests, and what generates a client in
Go."""

NODE_PACKAGES = {
    "containerd": "containerd",
    "runc": "runc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "catatonit": "catatonit",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "ip": "iproute2",
}
"""Program: the package of Debian that a node needs for it. catatonit is the first process of the
node's namespace, and of every pod (the pause image)."""

IMAGE_PACKAGES = {
    "podman": "podman",
    "buildah": "buildah",
    "/usr/lib/podman/netavark": "netavark",
    "debootstrap": "debootstrap",
}
"""The same for building images where there is no Docker."""
