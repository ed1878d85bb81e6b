"""Keys and certificates of the cluster, made with openssl; one authority signs them all, and each
part of the cluster is known to the API server by the names in its certificate."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from tests.cluster.commands import run
from tests.cluster.layout import API_PORT, API_SERVICE_IP, CERTIFICATES, DOMAIN, NODE_NAME

VALID_DAYS = 365
CA = CERTIFICATES / "ca.crt"
SERVICE_ACCOUNT_KEY = CERTIFICATES / "service-account.key"
CLIENTS = {
    "admin": ("admin", "system:masters"),
    "controller-manager": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
    "kubelet": (f"system:node:{NODE_NAME}", "system:nodes"),
    "kube-proxy": ("system:kube-proxy", ""),
    "api-to-kubelet": ("api-server", "system:masters"),
}
"""Name of the file: common name and organisation, which are the user and its group."""


def make_certificates(api_ip: str) -> None:
    """Everything that is missing. `api_ip` is where the API server listens."""
    CERTIFICATES.mkdir(parents=True, exist_ok=True)
    if not CA.exists():
        run(
            *[
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
                "-nodes",
            ],
            *("-days", str(VALID_DAYS), "-subj", "/CN=onyx-cluster-ca"),
            *("-keyout", key_of("ca"), "-out", CA),
        )
    names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"]
    names.append(f"kubernetes.default.svc.{DOMAIN}")
    addresses = {api_ip, API_SERVICE_IP, "127.0.0.1"}
    hosts = [*(f"DNS:{each}" for each in names), *(f"IP:{each}" for each in sorted(addresses))]
    _issue("api-server", "kube-apiserver", "", hosts)
    for name, (user, group) in CLIENTS.items():
        _issue(name, user, group, [])
    if not SERVICE_ACCOUNT_KEY.exists():
        run("openssl", "genrsa", "-out", SERVICE_ACCOUNT_KEY, "2048")


def certificate_of(name: str) -> Path:
    return CERTIFICATES / f"{name}.crt"


def key_of(name: str) -> Path:
    return CERTIFICATES / f"{name}.key"


def kubeconfig(name: str, api_ip: str) -> str:
    """A kubeconfig for one of the clients, with everything in it (JSON is YAML)."""
    cluster = {
        "server": f"https://{api_ip}:{API_PORT}",
        "certificate-authority-data": _base64(CA),
    }
    user = {
        "client-certificate-data": _base64(certificate_of(name)),
        "client-key-data": _base64(key_of(name)),
    }
    content: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "onyx", "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": "onyx", "context": {"cluster": "onyx", "user": name}}],
        "current-context": "onyx",
    }
    return json.dumps(content, indent=1)


def _issue(name: str, user: str, group: str, hosts: list[str]) -> None:
    certificate, key = certificate_of(name), key_of(name)
    if certificate.exists():
        return
    request, extensions = certificate.with_suffix(".csr"), certificate.with_suffix(".ext")
    subject = (f"/O={group}" if group else "") + f"/CN={user}"
    run(
        *["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"],
        *("-subj", subject, "-keyout", key, "-out", request),
    )
    lines = ["extendedKeyUsage=serverAuth,clientAuth", "keyUsage=digitalSignature"]
    if hosts:
        lines.append("subjectAltName=" + ",".join(hosts))
    extensions.write_text("\n".join(lines))
    run(
        *("openssl", "x509", "-req", "-in", request, "-CA", CA, "-CAkey", key_of("ca")),
        *("-CAcreateserial", "-days", str(VALID_DAYS), "-extfile", extensions),
        *("-out", certificate),
    )


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
