"""Windows of a task that Spark aggregates: what they get of the process and of the job."""

from __future__ import annotations

from functools import partial

from onyx.errors import UserError
from onyx.keystate.groups import Shards
from onyx.rights import rights_of
from onyx.spark.session.masters import spark_of_job, wrong_spark_master
from onyx.spark.windows.spool import spool_of
from onyx.spark.windows.window import SparkRuns, SparkWindow
from onyx.state.location import open_store, state_location
from onyx.task.channels.wiring import Wiring
from onyx.task.parts import Runtime
from onyx.task.seal_progress import LatestProgress, report_seal
from onyx.windows.compiled import CompiledWindow
from onyx.windows.running import Make, RunningWindow


def make_by_spark(runtime: Runtime, wiring: Wiring) -> Make:
    """Makes windows with engine spark.

    Raises:
        UserError: state is kept where Spark cannot read it, or Spark cannot run where it should.
    """
    services, job = runtime.services, runtime.program.job
    location, where = state_location(services.settings), f"task {runtime.task} has windows by Spark"
    settings = services.settings
    on = spark_of_job(job.spark, settings.spark_master, rights_of(settings))
    for problem in wrong_spark_master(on):
        raise UserError(f"{where}: {problem.path} {problem.message}: {problem.hint}")
    state = services.settings.state
    store = open_store(location, state.group_access)
    folder = spool_of(store, runtime.job_id, runtime.task)
    spark = SparkRuns(
        services.stage_runner,
        services.aside,
        on.url,
        on.conf,
        f"onyx: {job.name}",
        partial(_wanted, runtime, wiring.version),
        partial(report_seal, LatestProgress(), runtime.metrics),
        services.clock,
        services.settings.task.seal_attempts_max,
    )

    def make(compiled: CompiledWindow, grouped: bool, shards: Shards) -> RunningWindow:
        page_max = compiled.page_size(state.firings_page_max)
        return SparkWindow(compiled, grouped, shards, folder, spark, page_max)

    return make


def _wanted(runtime: Runtime, version: int) -> bool:
    """Whether the task still has the state of this allocation version."""
    run = runtime.services.replica().run(runtime.job_id)
    return runtime.assignment.wanted() and run.allocation_version == version
