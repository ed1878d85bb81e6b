"""Spark's physical plans of a job, by a Spark of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from onyx.cli.functions import named_modules
from onyx.cli.job_file import read_job
from onyx.cli.options import EngineChoice
from onyx.processes.surroundings import import_from, settings
from onyx.rights import rights_of
from onyx.spark.child.environment import environment
from onyx.spark.explain import explained
from onyx.spark.processes import spark_scratch
from onyx.spark.session.masters import spark_of_job
from onyx.spark.session.opening import open_session
from onyx.spark_query.explain import explained_query
from onyx.user_code.resolve import Resolver

MASTER = "local[2]"
NOTHING = (
    "this job has neither a stage nor a window by Spark; with --engine spark come the plans of the "
    "whole of it"
)


def explained_here(
    file: Path, engine: EngineChoice | None, modules: Sequence[str] | None
) -> Iterator[str]:
    """The plans of what Spark runs of the job in a file: its stages, and its windows by Spark or
    the whole of it; a text for each.

    Args:
        engine: what is to run it, whatever the file says.
        modules: whose functions the job may name; those that it names, if None.

    Raises:
        ManifestError: it is not valid, or Spark cannot run the whole of it.
        UserError: a stage is not there, or cannot be called with what comes to it.
    """
    job = read_job(file, engine=engine)
    import_from(file.parent, Path())
    resolver = Resolver(tuple(named_modules(job) if modules is None else modules))
    conf = spark_of_job(job.spark, MASTER, rights_of(settings())).conf
    with spark_scratch() as scratch:
        os.environ.update(environment(MASTER, str(scratch)))
        session = open_session(MASTER, f"onyx plan: {job.name}", scratch, conf, quick=True)
        try:
            found = list(explained(job, resolver.resolve, session, scratch))
            if job.engine == "spark":
                found += explained_query(job, session, conf, scratch)
        finally:
            session.stop()
    yield from found or [NOTHING]
