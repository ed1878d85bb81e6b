"""The control plane: etcd, API server, controller manager, scheduler. About 400 MB of memory."""

from __future__ import annotations

import urllib.request
from pathlib import Path

from tests.cluster.binaries import program
from tests.cluster.certificates import (
    CA,
    SERVICE_ACCOUNT_KEY,
    certificate_of,
    key_of,
    kubeconfig,
    make_certificates,
)
from tests.cluster.commands import run, succeeds, write
from tests.cluster.layout import API_PORT, CERTIFICATES, KUBECONFIG, SERVICES, STATE
from tests.cluster.place import Place

ETCD_PORT, ETCD_PEER_PORT = 12379, 12380
PROBE_TIMEOUT_S = 2.0
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")


def start_control_plane(place: Place) -> None:
    """Start what does not run yet. The managers end when there is no API server, so it is first."""
    make_certificates(place.ip)
    write(KUBECONFIG, kubeconfig("admin", place.ip))
    KUBECONFIG.chmod(0o600)
    _start_etcd(place)
    _start_api_server(place)
    _start_controller_manager(place)
    _start_scheduler(place)


def kubectl(*arguments: str) -> str:
    """Run kubectl as administrator; its output."""
    return run(program("kubectl"), f"--kubeconfig={KUBECONFIG}", *arguments)


def client_config(name: str, place: Place) -> Path:
    """The file with which a part of the cluster finds the API server."""
    return write(CERTIFICATES / f"{name}.kubeconfig", kubeconfig(name, place.ip))


def answers(url: str) -> bool:
    """Whether there is an answer of success under an address."""
    try:
        with urllib.request.urlopen(url, timeout=PROBE_TIMEOUT_S) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _start_etcd(place: Place) -> None:
    url = f"http://{place.ip}:{ETCD_PORT}"
    place.daemon(
        "etcd",
        [
            program("etcd"),
            f"--data-dir={STATE / 'etcd'}",
            f"--listen-client-urls={url}",
            f"--advertise-client-urls={url}",
            f"--listen-peer-urls=http://{place.ip}:{ETCD_PEER_PORT}",
            "--unsafe-no-fsync",
        ],
        ready=lambda: answers(f"{url}/health"),
    ).start()


def _start_api_server(place: Place) -> None:
    place.daemon(
        "kube-apiserver",
        [
            program("kube-apiserver"),
            f"--etcd-servers=http://{place.ip}:{ETCD_PORT}",
            f"--advertise-address={place.ip}",
            f"--bind-address={place.ip}",
            f"--secure-port={API_PORT}",
            f"--service-cluster-ip-range={SERVICES}",
            f"--client-ca-file={CA}",
            f"--tls-cert-file={certificate_of('api-server')}",
            f"--tls-private-key-file={key_of('api-server')}",
            f"--kubelet-client-certificate={certificate_of('api-to-kubelet')}",
            f"--kubelet-client-key={key_of('api-to-kubelet')}",
            "--kubelet-preferred-address-types=InternalIP",
            f"--service-account-key-file={SERVICE_ACCOUNT_KEY}",
            f"--service-account-signing-key-file={SERVICE_ACCOUNT_KEY}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
            "--profiling=false",
        ],
        ready=lambda: succeeds(
            program("kubectl"), f"--kubeconfig={KUBECONFIG}", "get", "--raw", "/readyz"
        ),
    ).start()


def _start_controller_manager(place: Place) -> None:
    place.daemon(
        "kube-controller-manager",
        [
            program("kube-controller-manager"),
            f"--kubeconfig={client_config('controller-manager', place)}",
            f"--service-account-private-key-file={SERVICE_ACCOUNT_KEY}",
            f"--root-ca-file={CA}",
            f"--cluster-signing-cert-file={CA}",
            f"--cluster-signing-key-file={key_of('ca')}",
            "--use-service-account-credentials=true",
            "--leader-elect=false",
            f"--bind-address={place.ip}",
        ],
        ready=_has_default_account,
    ).start()


def _has_default_account() -> bool:
    """Pods of the namespace `default` can be made: the sign that the controllers work."""
    return succeeds(
        program("kubectl"), f"--kubeconfig={KUBECONFIG}", "get", "serviceaccount", "default"
    )


def _start_scheduler(place: Place) -> None:
    place.daemon(
        "kube-scheduler",
        [
            program("kube-scheduler"),
            f"--kubeconfig={client_config('scheduler', place)}",
            "--leader-elect=false",
            f"--bind-address={place.ip}",
        ],
        ready=lambda: True,
    ).start()
