"""`onyx set`: give keys of a task other values while its job runs."""

from __future__ import annotations

from typing import Annotated

from onyx.cli.change_job import change_job
from onyx.cli.command_line import Argument
from onyx.cli.options import JobArgument, JsonOption, LogPlace
from onyx.client.client import Client
from onyx.errors import UserError
from onyx.ids import JobId
from onyx.model.parsing.options import value_of

TaskArgument = Annotated[str, Argument("Name of the task.")]
ValuesArgument = Annotated[
    list[str],
    Argument("Keys with their values.", metavar="KEY=VALUE..."),
]


def set(
    job: JobArgument,
    task: TaskArgument,
    values: ValuesArgument,
    place: LogPlace = LogPlace(),
    as_json: JsonOption = False,
) -> None:
    """Give keys of a task other values while its job runs.

    Its peers take them with their next batch: batchSize, batchTimeout, maxPending, pendingTimeout,
    checkpointSegments and segmentsPerSecondMax. KEY=default takes a key away.
    """
    given = dict(map(parse_value, values))

    def change(client: Client, job: JobId) -> None:
        client.set_options(job, task, given)

    change_job(change, job, place, as_json)


def parse_value(text: str) -> tuple[str, int | str]:
    """`maxPending=500` as a key and a value, which is a number or text.

    Raises:
        UserError: it is no key with a value.
    """
    key, equals, value = text.partition("=")
    if not (key and equals and value):
        raise UserError(f"{text!r} is not KEY=VALUE, as in maxPending=500 or batchTimeout=50ms")
    return key, value_of(value)
