"""What the query of a job is asked to run, as far as it is the same for every attempt."""

from __future__ import annotations

import os

from onyx.model.canonical import to_mapping
from onyx.model.job import Job
from onyx.model.workflow import is_unbounded
from onyx.rights import rights_of
from onyx.spark.driver.request import QueryRequest
from onyx.spark.session.masters import spark_of_job
from onyx.task.parts import Assignment


def query_request(assignment: Assignment, job: Job) -> QueryRequest:
    """The request, without what is of one attempt."""
    services, settings = assignment.services, assignment.services.settings
    on = spark_of_job(job.spark, settings.spark_master, rights_of(settings))
    return QueryRequest(
        manifest=to_mapping(job),
        job_id=assignment.job_id,
        modules=settings.modules,
        incarnation=services.replica().groups_reverse_index[assignment.peer],
        attempt="",
        scratch="",
        fn_params={
            entry.name: list(found)
            for entry in job.catalog
            if (found := services.fn_params(entry.name))
        },
        rights=rights_of(settings),
        data_dir=os.path.abspath(settings.data_dir),
        master=on.url,
        spark_conf=on.conf,
        endless=is_unbounded(job),
        stage_attempts_max=settings.task.seal_attempts_max,
        table_bytes_max=settings.task.table_bytes_max,
        report_values=settings.task.report_values,
        state_group_access=settings.state.group_access,
    )
