"""What Helm has made outside of the installation's namespace, and ends with it: configurations of
webhooks, roles, bindings.

Whoever deletes the namespace deletes no release, and a configuration that stays refuses changes of
OnyxJobs everywhere, in the name of a webhook that nobody runs any more. So the Namespace owns these
objects, and the garbage collector removes them. The operator says so: at an installation with
`--create-namespace` Helm renders before there is a Namespace whose uid it could write (`lookup`),
and where it only renders there never is one. It looks again now and then, for an upgrade makes
objects anew. A refusal is said and holds up nothing: the objects are as good as before.
"""

from __future__ import annotations

import asyncio
import logging

from onyx.errors import OnyxError, SettingsError
from onyx_operator.kube import NAMESPACES, Conflict, Kube, Object, Resource
from onyx_operator.settings import InstallationSettings

logger = logging.getLogger(__name__)

CONFIGURATIONS = tuple(
    Resource("admissionregistration.k8s.io/v1", kind, f"{kind.lower()}s")
    for kind in ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")
)
"""What asks the webhook, each kind under the same name."""
_ROLES = tuple(
    Resource("rbac.authorization.k8s.io/v1", kind, f"{kind.lower()}s")
    for kind in ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
)
_KINDS = {each.kind: each for each in (*CONFIGURATIONS, *_ROLES)}


class Belongings:
    """The objects that settings name.

    Raises:
        SettingsError: a name is none of an object that may be owned.
    """

    def __init__(self, kube: Kube, settings: InstallationSettings) -> None:
        self._kube, self._settings = kube, settings
        self._objects = [_object(each) for each in settings.outside]
        self._said = ""

    async def follow(self) -> None:
        """Own them, and look again, for ever."""
        while True:
            refused = ""
            try:
                await self.own()
            except OnyxError as error:
                refused = str(error)
            if refused and refused != self._said:
                logger.warning(
                    "when namespace %s is deleted, objects of this installation outside of it "
                    "stay: %s",
                    self._settings.namespace,
                    refused,
                )
            self._said = refused
            await asyncio.sleep(self._settings.interval_s)

    async def own(self) -> None:
        """Let the Namespace own whatever it does not own yet.

        Raises:
            KubeError, Unavailable: the API server refuses, or cannot be reached.
        """
        name = self._settings.namespace
        owner = await self._kube.get(NAMESPACES, None, name) if self._objects else None
        if owner is None:
            return
        uid = owner["metadata"]["uid"]
        reference = {"apiVersion": "v1", "kind": NAMESPACES.kind, "name": name, "uid": uid}
        for place in self._objects:
            try:
                await self._owned(*place, reference)
            except Conflict:
                continue  # somebody else changes it: next time

    async def _owned(
        self, kind: Resource, namespace: str | None, name: str, reference: Object
    ) -> None:
        found = await self._kube.get(kind, namespace, name)
        if found is None:
            return
        metadata = found["metadata"]
        owners = metadata.get("ownerReferences") or []
        if any(each["uid"] == reference["uid"] for each in owners):
            return
        version = metadata["resourceVersion"]
        change = {"resourceVersion": version, "ownerReferences": [*owners, reference]}
        await self._kube.patch(kind, namespace, name, {"metadata": change})


def _object(text: str) -> tuple[Resource, str | None, str]:
    kind, *namespace, name = text.split("/") if "/" in text else ("", text)
    if kind not in _KINDS or len(namespace) > 1 or not name:
        raise SettingsError(
            f"ONYX_OPERATOR_INSTALLATION_OUTSIDE has {text!r}: expected Kind/name or "
            f"Kind/namespace/name, of {', '.join(_KINDS)}"
        )
    return _KINDS[kind], namespace[0] if namespace else None, name
