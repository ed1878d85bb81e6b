"""The part of the `kubernetes` package that the operator uses: where the API server is, credentials
and connections.

Its packages import all generated classes when they are imported, which nobody here uses and which
cost 40 MiB and half a second. So these packages are modules without content, and the few modules
that are wanted are imported as they are. That holds for the whole process, whose first import this
is (`__main__`), because kopf would import the rest. Rejected: reading kubeconfigs by ourselves, for
the sake of plugins for credentials.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys

from urllib3.util.ssl_ import create_urllib3_context

from onyx.errors import Unavailable
from onyx.tls.contexts import lenient

__all__ = ["Configuration", "api_client", "cluster_configuration"]
_PACKAGES = ("kubernetes", "kubernetes.client", "kubernetes.client.models")


def _leave_out_generated_classes() -> None:
    if "kubernetes" in sys.modules:  # as in tests, which may want all of it
        return
    for name in _PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is None:
            raise ImportError(f"the package {name} is missing")
        sys.modules[name] = importlib.util.module_from_spec(spec)
    client = sys.modules["kubernetes.client"]
    for module, part in ("configuration", "Configuration"), ("api_client", "ApiClient"):
        setattr(client, part, getattr(importlib.import_module(f"{client.__name__}.{module}"), part))


_leave_out_generated_classes()

from kubernetes import config  # noqa: E402
from kubernetes.client import ApiClient, Configuration  # noqa: E402


def api_client(configuration: Configuration) -> ApiClient:
    """A client of the API server that is there."""
    found = ApiClient(configuration)
    context = lenient(create_urllib3_context())
    found.rest_client.pool_manager.connection_pool_kw["ssl_context"] = context
    return found


def cluster_configuration() -> Configuration:
    """Where the API server is: the pod's service account, else `KUBECONFIG`.

    Raises:
        Unavailable: there is neither.
    """
    configuration = Configuration()
    try:
        config.load_incluster_config(client_configuration=configuration)
    except config.ConfigException:
        try:
            config.load_kube_config(client_configuration=configuration)
        except config.ConfigException as error:
            raise Unavailable(f"there is no Kubernetes to talk to: {error}") from error
    return configuration
