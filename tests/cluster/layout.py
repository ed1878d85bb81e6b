"""Where everything of the test cluster lies, and the addresses it uses.

One folder holds it all: programs by version (kept, so that a second start takes seconds) and
`state`, which `make cluster-down` removes. One cluster a machine: it has fixed addresses, in a
network namespace of its own, so that they can only clash with the one subnet of the link to it.
"""

from __future__ import annotations

import os
from pathlib import Path

CACHE = Path(os.environ.get("ONYX_CLUSTER_CACHE", Path.home() / ".cache" / "onyx-cluster"))
STATE = CACHE / "state"
KUBECONFIG = STATE / "kubeconfig"
"""Of an administrator; what `make cluster` prints."""
CERTIFICATES = STATE / "certificates"
LOGS = STATE / "logs"
NODE_FILE = STATE / "why-no-node"
"""There is a node unless this file says why not."""

HOST_IP = "10.99.0.254"
NODE_IP = "10.99.0.1"
"""The machine's and the cluster's end of the link between them; the API server listens there."""
LINK_BITS = 24
API_PORT = 6443
SERVICES = "10.96.0.0/16"
API_SERVICE_IP = "10.96.0.1"
PODS = "10.244.0.0/16"
NODE_NAME = "onyx-node"
DOMAIN = "cluster.local"
