"""What options of a reader name: an output, or the state of a window.

Half of all that has to be imported is for a cluster, and Spark starts a process to look for a
schema, one to plan and some to read. So only those that ask a cluster pay for it: its modules are
imported here, when there is a question.
"""

from __future__ import annotations

import pyarrow as pa

from onyx.errors import UserError
from onyx.spark_source.options import SourceOptions, WriteOptions
from onyx.spark_source.outputs import FoundOutput, output_at
from onyx.spark_source.writers import WriteTarget


def found(options: SourceOptions) -> FoundOutput:
    """The output that options name. Raises what `output_at` and `cluster.find` do."""
    if options.path is not None:
        return FoundOutput(output_at(options.path, options), None)
    from onyx.spark_source import cluster

    return cluster.find(options)


def state_schema(options: SourceOptions) -> pa.Schema:
    """The schema of the rows of a window. See `cluster`."""
    from onyx.spark_source import cluster

    return cluster.state_schema(options)


def state(options: SourceOptions, schema: pa.Schema) -> pa.RecordBatch:
    """The extents of a window, as of now. See `cluster`."""
    from onyx.spark_source import cluster

    return cluster.state(options, schema)


def target_of(options: WriteOptions) -> WriteTarget:
    """Where rows are written.

    Raises:
        UserError: an address is none.
        Unavailable: there is no worker, or ZooKeeper does not answer.
    """
    assert options.job is not None, "checked with the options"
    if options.workers is not None:
        workers = [each.strip() for each in options.workers.split(",") if each.strip()]
        if not workers or not all(":" in each for each in workers):
            raise UserError(f"option 'workers' is host:port[,host:port], not {options.workers!r}")
        return WriteTarget(tuple(workers), options.job, options.task, options.tenancy or "")
    from onyx.spark_source import cluster

    workers, tenancy = cluster.workers(options), cluster.settings(options).tenancy_id
    return WriteTarget(tuple(workers), options.job, options.task, tenancy)
