"""Step 1 for an OnyxJob: everything that a plan is made from.

Little of it is read over the network: objects come by the watch, jobs by the subscription to their
cluster's log. Job files, failures and the answers of an upgrade are read, and remembered. A spec is
parsed again when it has changed, a job file is read again when it has been known for a while.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from onyx.errors import Unavailable
from onyx.ids import JobId
from onyx.model.declaration import JobRef
from onyx_operator.conditions import by_type
from onyx_operator.context import OperatorProcess
from onyx_operator.jobs.check import ways_in, why_unfit
from onyx_operator.jobs.logs_of_jobs import LogsOfJobs, cluster_of
from onyx_operator.jobs.observed import (
    JobObservation,
    begins_with_savepoint,
    ids_of_interest,
    observed,
)
from onyx_operator.jobs.record import read_record
from onyx_operator.jobs.spec import Spec, read_spec, reference
from onyx_operator.kube import CONFIG_MAPS, Object, seconds
from onyx_operator.logs.state import CONNECTING, Log, Trouble
from onyx_operator.logs.view import LogView
from onyx_operator.owners import owner_of
from onyx_operator.work_queue import ObjectKey


class Observer:
    """Looks at an OnyxJob and at all that it depends on. Belongs to one event loop."""

    def __init__(
        self, operator: OperatorProcess, logs: LogsOfJobs, now_s: Callable[[], float]
    ) -> None:
        self._operator, self._logs, self._now_s = operator, logs, now_s
        self._owners: dict[JobId, ObjectKey] = {}
        self._specs = Specs(operator, now_s)

    async def observe(self, key: ObjectKey, body: Object) -> JobObservation | None:
        """What there is of an OnyxJob; None while the log is being opened for the first time, after
        which its view touches the job.

        Raises:
            KubeError: the API server refuses.
            Unavailable: it, or the log, cannot be reached.
        """
        spec = await self._specs.read(key, body)
        view = self._logs.view(body)
        if isinstance(view, LogView):
            found = await self._with_log(key, spec, body, view)
        else:
            found = self._observed(spec, body, view)
        connecting = isinstance(found.log, Trouble) and found.log.reason == CONNECTING
        return None if connecting else found

    def owner_of(self, job: JobId) -> ObjectKey | None:
        """The OnyxJob for which this job of a log was observed last."""
        return self._owners.get(job)

    def forget(self, key: ObjectKey) -> None:
        """The object is gone."""
        self._specs.forget(key)
        self._owners = {job: owner for job, owner in self._owners.items() if owner != key}

    def forget_files(self) -> None:
        """Read all job files again."""
        self._specs.forget_files()

    async def _with_log(
        self, key: ObjectKey, spec: Spec, body: Object, view: LogView
    ) -> JobObservation:
        ids = ids_of_interest(spec, read_record(body), view.stage_of)
        self._owners |= dict.fromkeys(ids, key)
        with contextlib.suppress(Unavailable):
            for job in ids:
                await view.learn(job)
        log = view.seen(ids, owner_of(body, self._operator.kube.mark))
        heir = self._logs.heir(body, self._logs.connection(cluster_of(body)))
        if heir is not None and isinstance(log, Log):
            log = replace(log, heir=str(heir))
        found = self._observed(spec, body, log)
        old = found.versions.upgrades
        if old is None and begins_with_savepoint(found):
            assert spec.job is not None
            assert found.versions.wanted.job_id is not None
            verdict = await view.begins(found.versions.wanted.job_id, spec.job)
            return replace(found, upgrade=verdict)
        if old is None:
            return found
        assert spec.job is not None
        assert old.job_id is not None
        return replace(found, upgrade=await view.upgrade(spec.job, old.job_id))

    def _observed(self, spec: Spec, body: Object, log: Log | Trouble) -> JobObservation:
        now_s, status = self._now_s(), body.get("status") or {}
        unfit, entrances = self._on_cluster(spec, body)
        return observed(
            spec,
            now_s,
            read_record(body),
            log,
            unfit=unfit,
            entrances=entrances,
            invalid_s=_invalid_s(status, now_s),
            status_is_current=status.get("observedGeneration")
            == body["metadata"].get("generation"),
            before=status,
        )

    def _on_cluster(self, spec: Spec, body: Object) -> tuple[str, Sequence[Mapping[str, str]]]:
        """Why the pods of its cluster could not run a job, and where clients find it there."""
        cluster = self._operator.clusters.store.get(cluster_of(body))
        if cluster is None or spec.job is None:
            return "", ()
        return why_unfit(spec.job, cluster), ways_in(spec.job, cluster)


class Specs:
    """The specs of all OnyxJobs. Belongs to one event loop."""

    def __init__(self, operator: OperatorProcess, now_s: Callable[[], float]) -> None:
        self._operator, self._now_s = operator, now_s
        self._specs: dict[ObjectKey, tuple[Any, Spec]] = {}
        self._files: dict[tuple[str, JobRef], tuple[float, str | None]] = {}

    def forget(self, key: ObjectKey) -> None:
        """The object is gone."""
        self._specs.pop(key, None)

    def forget_files(self) -> None:
        """Read all job files again."""
        self._files.clear()

    async def read(self, key: ObjectKey, body: Object) -> Spec:
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


def _invalid_s(status: Mapping[str, Any], now_s: float) -> float:
    """For how long a spec has been invalid, in seconds."""
    validated = by_type(status).get("Validated", {})
    since_s = seconds(str(validated.get("lastTransitionTime", "")))
    return 0.0 if since_s is None or validated.get("status") != "False" else now_s - since_s
