"""The outputs of one task of Spark.

What is written is staged or spooled, so that a task that Spark runs twice, or whose query fails,
leaves nothing that anybody sees. Only the rows that Spark takes from a task that succeeded name
what it has written.
"""

from __future__ import annotations

import os
from pathlib import Path

from onyx.flow.batch import Segments, as_dicts
from onyx.flow.segment import SegmentFailure
from onyx.plugins.parts.formats import ParquetFormat
from onyx.plugins.protocol import Output, StagingOutput, Token
from onyx.program.plugin_forms import PluginWriter
from onyx.spark.driver.outputs import SpoolWriter
from onyx.spark.middle.frame_types import TYPES, FrameTypes
from onyx.spark.middle.request import options_of
from onyx.spark.types import for_spark
from onyx.spark_query.middle.stages import FrameParts, folder_in, parts_of
from onyx.spark_query.programs import Query
from onyx.spark_query.rows import REPORTED, Row, report


class Sinks:
    """Outputs, each opened with the first segments that it gets."""

    def __init__(self, query: Query, writer: str) -> None:
        """`writer`: what tells this task of Spark apart from all others of the query."""
        self._query = query
        self._writer = f"{query.request.attempt}-{writer}-"
        self._how = {each.task: each.how for each in query.plan.outputs}
        self._outputs: dict[str, tuple[Output, PluginWriter]] = {}
        self._spools: dict[str, SpoolWriter] = {}
        self._frames: dict[str, FrameParts] = {}
        self._types: dict[tuple[str, str], FrameTypes] = {}
        """By stage and task upstream."""
        self.busy = ""
        """The task whose output is worked on."""
        self._tokens: list[tuple[str, Token]] = []

    def write(self, task: str, segments: Segments) -> None:
        """Write a batch. Raises like `Output.write`."""
        if not len(segments) or self._how[task] == "dropped":
            return
        if self._how[task] == "spooled":
            self._spool(task).write(as_dicts(segments))
            return
        if task not in self._outputs:
            self._outputs[task] = self._opened(task)
        self._outputs[task][1].write(segments)

    def misfits(self, task: str, upstream: str, segments: Segments) -> list[SegmentFailure]:
        """Segments that a Spark stage in the middle cannot have (`spark.middle.frame_types`)."""
        frame = task, upstream
        if frame not in self._types:
            location = folder_in(self._query, task) / TYPES / upstream
            options = options_of(self._query.plugins.context(task))
            self._types[frame] = FrameTypes(location, options.schemas.get(upstream))
        return self._types[frame].misfits(segments)

    def bundle(self, task: str, upstream: str, segments: Segments) -> None:
        """Write a batch that comes to a Spark stage in the middle from a task upstream. Raises like
        `FrameParts.write`."""
        if not len(segments):
            return
        if task not in self._frames:
            form = ParquetFormat(self._query.plugins.context(task), fit=for_spark)
            self._frames[task] = FrameParts(parts_of(self._query, task), self._writer, form)
        self._frames[task].write(upstream, segments)

    def finish(self) -> list[Row]:
        """Make everything durable; rows that name it."""
        for task, (plugin, _) in self._outputs.items():
            self.busy = task
            plugin.flush()
            plugin.close()
        rows = [report("token", task, token) for task, token in self._tokens]
        for task, spool in self._spools.items():
            spool.close()
            path = os.fsencode(spool.path)
            rows.append(Row(REPORTED, task, 0, 0, "", "spool", None, path))
        for task, frames in self._frames.items():
            self.busy = task
            rows += (report("part", task, each) for each in frames.finish())
        return rows

    def _opened(self, task: str) -> tuple[Output, PluginWriter]:
        plugin = self._query.plugins.output(task, self._writer)
        if isinstance(plugin, StagingOutput):
            plugin.stage(lambda token, segments: self._tokens.append((task, token)))
        return plugin, PluginWriter(plugin)

    def _spool(self, task: str) -> SpoolWriter:
        if task not in self._spools:
            folder = Path(self._query.request.scratch)
            self._spools[task] = SpoolWriter(folder / f"{task}.{self._writer}spool")
        return self._spools[task]
