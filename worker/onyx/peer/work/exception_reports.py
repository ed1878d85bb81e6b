"""Stores what killed a job beside the log, where every client finds it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import msgspec

from onyx.errors import OnyxError
from onyx.ids import JobId
from onyx.log import job_documents
from onyx.peer.life import Life

logger = logging.getLogger("onyx.peer")


class ExceptionReports:
    """The reports of one incarnation. Any thread of a task may call."""

    def __init__(self, life: Life) -> None:
        self._life = life

    def store(self, job: JobId, report: Mapping[str, Any]) -> Future[None]:
        """Store what killed a job; the first report wins."""
        task, phase, detail = report["task"], report["phase"], report["detail"]
        if self._life.context.settings.telemetry.log_failures:
            logger.error("job %s is killed: task %s, %s: %s", job, task, phase, detail)

        def store() -> None:
            path = job_documents.exception(job)
            try:
                self._life.log.put_document(path, msgspec.json.encode(report), None)
            except OnyxError as error:
                logger.error("what killed job %s could not be stored: %s; %s", job, error, detail)

        return self._life.background.run(store)
