"""What goes into the bundle of a job, read from its cluster.

What is there is taken, and what is not is said: a worker that does not answer, or a manifest that
is damaged, is why somebody makes a bundle. Only without ZooKeeper there is none.

Secrets stay out: of manifests by the rules by which they are refused there (`model.secrets`), of
all texts what stands for a user or a password in a URL. So does what was in segments, unless it is
asked for: segments themselves, messages of exceptions, cursors, and lines that say more than which
event has happened.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from onyx import __version__
from onyx.base.structs import UNREADABLE
from onyx.bundle.bundle_file import (
    VERSION,
    BundledDocument,
    BundledOrigin,
    BundleEnd,
    BundleHead,
    BundleLine,
    line,
)
from onyx.client.manifests import digest_of
from onyx.client.measures import MeasureReader
from onyx.client.reader import JobReader
from onyx.errors import OnyxError
from onyx.flow.batch import segment_at
from onyx.history.archive import archived
from onyx.ids import GroupId, JobId
from onyx.log import documents
from onyx.model.locations import HIDDEN, without_secrets
from onyx.model.secrets import PASSED_ON, is_secret_name, secret_in
from onyx.program.failed_batch import FailedBatch, segments_of
from onyx.program.failure import shown_segment, without_values
from onyx.replica import canonical, machine
from onyx.replica.state import Replica
from onyx.reports.measures import WorkerDiagnostics
from onyx.reports.outcomes import OutcomeReport

LOG_BYTES_MAX = 33_554_432
"""All entries; of a longer log the newest are taken."""
ENTRIES_MAX = 100_000
DOCUMENTS_MAX = 2_000
"""One folder: frontiers of partitions, reports of workers."""
WORKERS_MAX = 200
"""Workers whose log lines and metrics are taken."""
TIMEOUT_S = 5.0
"""By then a worker that has not answered is said to be silent."""
_EVENTS = "onyx.jobs"
_PLAIN = frozenset({"time", "level", "logger", "tenancy", "group", "job", "task", "what"})
"""Fields of a log line that hold nothing of a segment."""


class JobGathering:
    """Reads what there is of one job.

    Args:
        client: of the cluster.
        measures: asks its workers.
        tenancy: whose cluster it is.
        values: whether what was in segments is taken.
    """

    def __init__(
        self,
        client: JobReader,
        measures: MeasureReader,
        tenancy: str,
        job: JobId,
        values: bool,
        now_ms: Callable[[], int],
    ) -> None:
        self._client, self._measures, self._log = client, measures, client.log
        self._tenancy, self._job, self._values, self._now_ms = tenancy, job, values, now_ms
        self.notes: list[str] = []
        """What is missing; complete behind the last line."""

    def lines(self) -> Iterator[BundleLine]:
        """The lines of the file.

        Raises:
            UserError: no job has this id, or no more than that is known of it.
            Unavailable: ZooKeeper does not answer.
        """
        replica, job = self._client.replica(), self._job
        digest_of(replica, job)
        manifests = dict(self._manifests(replica))
        name = _name(manifests.get(str(replica.digest_of(job)), {}))
        head = BundleHead(
            VERSION, __version__, self._tenancy, job, name, self._now_ms(), self._values
        )
        yield line("head", head)
        for digest, manifest in manifests.items():
            yield line("chunk", manifest, digest)
        yield from self._documents()
        yield from self._of_workers(replica)
        yield from self._history()
        yield line("end", BundleEnd(tuple(self.notes)))

    # --- what is beside the log -------------------------------------------------------------------

    def _manifests(self, replica: Replica) -> Iterator[tuple[str, Any]]:
        """That of the job, and of the one that it upgrades."""
        for job in filter(None, (self._job, replica.upgrades(self._job))):
            digest = replica.digest_of(job)
            if digest is None:
                continue
            try:
                yield digest, public(msgspec.json.decode(self._log.get_chunk(digest)))
            except (OnyxError, *UNREADABLE) as error:
                self.notes.append(f"the manifest of job {job} cannot be read: {error}")

    def _documents(self) -> Iterator[BundleLine]:
        job = self._job
        paths = [documents.exception(job), documents.code(job), documents.location(job)]
        if self._values:
            paths.append(documents.failed_batch(job))
        for folder in (
            documents.frontiers(job), documents.stalls(job), documents.outcomes(job),
            documents.DEATHS,
        ):  # fmt: skip
            names = self._log.list_documents(folder)
            if len(names) > DOCUMENTS_MAX:
                self.notes.append(f"{folder} has {len(names):,} documents: {DOCUMENTS_MAX:,} here")
            paths += [f"{folder}/{name}" for name in names[:DOCUMENTS_MAX]]
        for path in paths:
            found = self._log.get_document(path)
            if found is None:
                continue
            try:
                plain = msgspec.json.decode(found.data)
                if not self._values:
                    plain = self._without_values(path, plain)
            except UNREADABLE as error:
                self.notes.append(f"document {path} is damaged, and left out: {error}")
            else:
                shown = plain if path == documents.failed_batch(self._job) else _texts(plain)
                text = msgspec.Raw(msgspec.json.encode(shown))
                yield line("document", BundledDocument(found.version, text), path)

    def _without_values(self, path: str, plain: Any) -> Any:
        kind = path.partition("/")[0]
        if kind == "exception" and isinstance(plain, dict):
            return without_values(plain, self._shape())
        if kind == "frontier" and isinstance(plain, dict):
            return {key: value for key, value in plain.items() if isinstance(value, int)}
        if kind == "outcome":
            report = msgspec.convert(plain, OutcomeReport)
            tasks = {name: _counts(totals) for name, totals in report.tasks.items()}
            return msgspec.to_builtins(msgspec.structs.replace(report, tasks=tasks))
        return plain

    def _shape(self) -> str:
        """The keys and types of the segment that failed."""
        found = self._log.get_document(documents.failed_batch(self._job))
        if found is None:
            return ""
        try:
            segments = segments_of(msgspec.json.decode(found.data, type=FailedBatch))
        except (OnyxError, *UNREADABLE):
            return ""
        return shown_segment(segment_at(segments, 0), values=False) if len(segments) else ""

    # --- what workers say -------------------------------------------------------------------------

    def _of_workers(self, replica: Replica) -> Iterator[BundleLine]:
        measured = self._measures.read(timeout_s=TIMEOUT_S, replica=replica)
        yield line("measures", measured)
        found, silent = self._measures.diagnostics(replica, self._job, TIMEOUT_S)
        for group, why in sorted({**measured.silent, **silent}.items()):
            self.notes.append(f"worker {group} does not answer: {why}")
        if not replica.groups:
            self.notes.append("there is no worker: nothing is measured, and no log lines are here")
        for group in sorted(found)[:WORKERS_MAX]:
            yield self._worker(group, found[group])

    def _worker(self, group: GroupId, its: WorkerDiagnostics) -> BundleLine:
        lines = tuple(
            said if self._values else plain_line(said) for said in map(without_secrets, its.lines)
        )
        return line("worker", WorkerDiagnostics(lines, its.metrics), group)

    # --- the log ----------------------------------------------------------------------------------

    def _history(self) -> Iterator[BundleLine]:
        """The replica from which the log starts, and all entries since; of many the newest."""
        replica, left = self._client.first_replica(), 0
        kept: deque[tuple[Replica, bytes]] = deque()
        size = 0
        for entry in self._client.entries(replica.version):
            if entry.position != replica.version + 1:  # the log was trimmed meanwhile
                kept.clear()
                size, replica = 0, self._client.first_replica()
                if entry.position <= replica.version:
                    continue
            data = msgspec.json.encode(archived(entry))
            kept.append((replica, data))
            replica, size = machine.apply(replica, entry), size + len(data)
            while size > LOG_BYTES_MAX or len(kept) > ENTRIES_MAX:
                size -= len(kept.popleft()[1])
                left += 1
        if left:
            self.notes.append(f"the log is longer: its oldest {left:,} entries are left out")
        first = kept[0][0] if kept else replica
        origin = BundledOrigin(first.version, msgspec.Raw(canonical.encode(first)))
        yield line("origin", origin)
        for _, data in kept:
            yield BundleLine("entry", msgspec.Raw(data))


# --- what is left out -----------------------------------------------------------------------------


def public(manifest: Any, in_options: bool = False, passed_on: bool = False) -> Any:
    """A manifest without what is a secret by its name or its looks.

    Args:
        in_options: it is of the options of a task, whose own keys may be called as they like.
        passed_on: it is of a map that a plugin gives to somebody else.
    """
    if isinstance(manifest, Mapping):
        return {
            key: HIDDEN
            if passed_on and is_secret_name(key) and isinstance(value, str)
            else public(
                value,
                in_options or key == "options",
                passed_on or (key in PASSED_ON and (in_options or key != "options")),
            )
            for key, value in manifest.items()
        }
    if isinstance(manifest, list):
        return [public(each, in_options, passed_on) for each in manifest]
    if isinstance(manifest, str):
        return HIDDEN if secret_in(manifest) else without_secrets(manifest)
    return manifest


def plain_line(text: str) -> str:
    """A log line as JSON with what holds nothing of a segment: when, who, which event."""
    try:
        said = msgspec.json.decode(text, type=dict[str, Any])
    except UNREADABLE:
        return ""
    found = {key: value for key, value in said.items() if key in _PLAIN}
    why = str(said.get("why", ""))
    if said.get("logger") == _EVENTS:
        event = str(said.get("event", ""))
        found["event"] = (
            event.partition(why[:40])[0] + HIDDEN if why and why[:40] in event else event
        )
    return msgspec.json.encode(found).decode()


def _texts(plain: Any) -> Any:
    """What it is without users and passwords of URLs."""
    if isinstance(plain, dict):
        return {key: _texts(value) for key, value in plain.items()}
    if isinstance(plain, list):
        return [_texts(each) for each in plain]
    return without_secrets(plain) if isinstance(plain, str) else plain


def _counts(totals: Any) -> Any:
    hidden = {
        name: HIDDEN for name in ("first_dead_letter", "first_answered") if getattr(totals, name)
    }
    return msgspec.structs.replace(totals, **hidden)


def _name(manifest: Any) -> str:
    metadata = manifest.get("metadata") if isinstance(manifest, Mapping) else None
    return str(metadata.get("name", "")) if isinstance(metadata, Mapping) else ""
