"""What server-side apply refuses before anything is validated: fields that a pod does not have.

The real server reads what is applied by the schema of its kind, and answers 500 without a reason
when it cannot. The fake knows the fields of a pod's spec, and no deeper ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.operator.fake_api.errors import ApiError
from tests.operator.fake_api.kinds import Kind

_FIELDS = """activeDeadlineSeconds affinity automountServiceAccountToken containers dnsConfig
dnsPolicy enableServiceLinks ephemeralContainers hostAliases hostIPC hostNetwork hostPID hostUsers
hostname hostnameOverride imagePullSecrets initContainers nodeName nodeSelector os overhead
preemptionPolicy priority priorityClassName readinessGates resourceClaims resources restartPolicy
runtimeClassName schedulerName schedulingGates schedulingGroup securityContext serviceAccount
serviceAccountName setHostnameAsFQDN shareProcessNamespace subdomain terminationGracePeriodSeconds
tolerations topologySpreadConstraints volumes workloadRef"""
_POD_SPEC = frozenset(_FIELDS.split())


def check_typed(kind: Kind, namespace: str, body: Mapping[str, Any]) -> None:
    """Raises ApiError (500) for an unknown field of a pod template."""
    if kind.group != "apps":
        return
    template = (body.get("spec") or {}).get("template") or {}
    for field in template.get("spec") or {}:
        if field not in _POD_SPEC:
            where = f"{namespace}/{body['metadata']['name']}; {kind.api_version}, Kind={kind.kind}"
            what = f".spec.template.spec.{field}: field not declared in schema"
            raise ApiError(500, "", f"failed to create typed patch object ({where}): {what}")
