"""The plugins of the inputs and outputs of a job, in one process of Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from onyx.base.seams import Clock
from onyx.ids import GroupId, JobId, PeerId
from onyx.model.job import Job
from onyx.plugins.context import context_of
from onyx.plugins.protocol import Input, Output, PluginContext
from onyx.plugins.registry import build_input, build_output
from onyx.spark.driver.request import QueryRequest


class Plugins:
    """Makes the plugins of one query."""

    def __init__(
        self,
        request: QueryRequest,
        job: Job,
        peer: PeerId,
        clock: Clock,
        resolve: Callable[[str], Callable[..., Any]],
    ) -> None:
        self._request = request
        self._job = job
        self._peer = peer
        self._clock = clock
        self._resolve = resolve
        self._inputs: dict[str, Input] = {}

    def input(self, task: str) -> Input:
        """A new instance of the plugin of an input task."""
        plugin = self._job.entry(task).plugin
        assert plugin is not None, "validated: inputs name a plugin"
        return build_input(plugin, self.context(task))

    def kept_input(self, task: str) -> Input:
        """The input, one instance for all micro-batches in this process: it may limit its
        rate."""
        if task not in self._inputs:
            self._inputs[task] = self.input(task)
        return self._inputs[task]

    def output(self, task: str, writer: str) -> Output:
        """A new instance of the plugin of an output task.

        Args:
            writer: what tells this process apart from the others of the query.
        """
        plugin = self._job.entry(task).plugin
        assert plugin is not None, "validated: outputs name a plugin"
        return build_output(plugin, self.context(task, writer))

    def context(self, task: str, writer: str = "") -> PluginContext:
        """What the plugin of a task is given.

        Args:
            writer: as of `output`.
        """
        request = self._request
        context = context_of(
            self._job,
            self._job.entry(task),
            JobId(request.job_id),
            self._peer,
            GroupId(request.incarnation),
            self._clock,
            self._resolve,
        )
        return replace(
            context,
            rights=request.rights,
            data_dir=request.data_dir,
            spark_master=request.master,
            writer=writer,
        )
