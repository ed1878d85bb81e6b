"""`onyx schema`: the JSON Schema of a job file, for editors."""

from __future__ import annotations

import json

from onyx.submission.job_schema import job_schema


def schema() -> None:
    """Print the JSON Schema of a job file, by which an editor completes and explains keys, those
    of the options of plugins too.

    Write it to a file, and name that in the first line of the job: `# yaml-language-server:
    $schema=job.schema.json`. `onyx init` does both.
    """
    print(json.dumps(job_schema(), indent=1))
