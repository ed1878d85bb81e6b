"""The specs of OnyxJobs with the job files that they refer to; parsed and read again seldom."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from onyx.model.declaration import JobRef
from onyx_operator.conditions import by_type
from onyx_operator.context import Operator
from onyx_operator.jobs.spec import Spec, read_spec, reference
from onyx_operator.kube import CONFIG_MAPS, Object, seconds
from onyx_operator.work_queue import Key


class Specs:
    """The specs of all OnyxJobs. Belongs to one event loop."""

    def __init__(self, operator: Operator, now_s: Callable[[], float]) -> None:
        self._operator, self._now_s = operator, now_s
        self._specs: dict[Key, tuple[Any, Spec]] = {}
        self._files: dict[tuple[str, JobRef], tuple[float, str | None]] = {}

    def forget(self, key: Key) -> None:
        """The object is gone."""
        self._specs.pop(key, None)

    def forget_files(self) -> None:
        """Read all job files again."""
        self._files.clear()

    async def read(self, key: Key, body: Object) -> Spec:
        """The object's spec; it is parsed again only when it has changed.

        Raises:
            KubeError, Unavailable: the job file that it refers to cannot be read.
        """
        referenced = await self._referenced(body)
        metadata = body["metadata"]
        read_from = (metadata["uid"], body.get("spec"), referenced)
        known = self._specs.get(key)
        if known is None or known[0] != read_from:
            known = self._specs[key] = (
                read_from,
                read_spec(body, referenced, self._operator.checks),
            )
        return replace(
            known[1],
            generation=metadata.get("generation", 0),
            deleted_at=metadata.get("deletionTimestamp") or "",
        )

    async def _referenced(self, body: Object) -> str | None:
        """The text of the job file that an object refers to; not read again each time."""
        ref = reference(body) if (body.get("spec") or {}).get("jobRef") else None
        if ref is None:
            return None
        namespace, now_s = body["metadata"]["namespace"], self._now_s()
        read_s, text = self._files.get((namespace, ref), (0.0, None))
        if text is None or now_s - read_s >= self._operator.settings.jobs.resync_interval_s:
            found = await self._operator.kube.get(CONFIG_MAPS, namespace, ref.config_map)
            text = ((found or {}).get("data") or {}).get(ref.key)
            self._files[namespace, ref] = (now_s, text)
        return text


def invalid_s(status: Mapping[str, Any], now_s: float) -> float:
    """For how long a spec has been invalid, in seconds."""
    validated = by_type(status).get("Validated", {})
    since_s = seconds(str(validated.get("lastTransitionTime", "")))
    return 0.0 if since_s is None or validated.get("status") != "False" else now_s - since_s
