"""Jobs as Python: a chain of calls gives the same job as a YAML file, and back.

    from ages import age
    from onyx.builder import Job, files

    job = Job("ages").read(files("people.csv", types={"born": "int"})).map(age, year=2013)
    job.write(files("out")).run()

Each call gives a new job. `to_yaml` and `from_yaml` turn one form into the other.
"""

from onyx.builder.generated.plugins import (
    blackhole,
    channel,
    files,
    function,
    generator,
    http,
    iterator,
    job,
    kafka,
    nats,
    redis,
    requests,
    sequence,
    source,
    spark,
    sql,
    stdout,
)
from onyx.builder.jobs import Job
from onyx.builder.running import JobFailed
from onyx.builder.types import Medium, Sink, Source, fixed, session, sliding, whole
from onyx.builder.values import plugin

__all__ = [
    "Job",
    "JobFailed",
    "Medium",
    "Sink",
    "Source",
    "blackhole",
    "channel",
    "files",
    "fixed",
    "function",
    "generator",
    "http",
    "iterator",
    "job",
    "kafka",
    "nats",
    "plugin",
    "redis",
    "requests",
    "sequence",
    "session",
    "sliding",
    "source",
    "spark",
    "sql",
    "stdout",
    "whole",
]
