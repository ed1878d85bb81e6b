"""The options of `format("onyx")`, of who reads and of who writes rows into a job.

Spark gives all values as text and all keys in lower case.

**Errors.** PySpark puts the whole traceback of a Python process before the message, which is of the
frames of PySpark and of this source and tells a user nothing. It leaves the traceback out if an
environment variable asks for that, and ends the process with the error. So the variable is set in a
process that Spark made for Python, when an error for the user goes through it. Anything else that
goes wrong keeps its traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Literal, Protocol, TypeVar

import msgspec

from onyx.base.structs import prepared
from onyx.errors import OnyxError, UserError
from onyx.model.report import nearest
from onyx.requests.request import SEGMENTS_MAX, TIMEOUT_S_MAX, WRITE_CHARACTERS_MAX
from onyx.transport.state_queries import EXTENTS_MAX

TIMEOUT_S = 300.0
EXTENTS_DEFAULT = 10_000
_AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]
_LIMITS = ("maxRowsPerTrigger", "maxFilesPerTrigger", "maxBytesPerTrigger")


@prepared
class SourceOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is read: an output by its `path`, or by `job` and `task`; or a window by `job` and
    `window`."""

    path: str | None = None
    """Path of the output as the job has it: a folder or `s3://bucket/prefix`."""
    job: str | None = None
    """Id of the job. With the path of an output `files`: of one or several, with commas between
    them, whose parts are read."""
    task: str | None = None
    """Name of the output task."""
    frame: str | None = None
    """The frame of an output `spark` whose stage has several frames: the one whose parts are
    read."""
    window: str | None = None
    """Id of a window of a running job, whose state is read."""
    key: str | None = None
    """The group of a window: only this group. Read as JSON if it is JSON, else as text."""
    extents_max: Annotated[int, msgspec.Meta(ge=1, le=EXTENTS_MAX)] = EXTENTS_DEFAULT
    """The extents of a window: the first so many extents."""
    content: Literal["result", "parts"] = "result"
    """The content of an output `spark`: the result of its stage, or the parts that the stage
    reads."""
    form: Literal["columns", "text"] = msgspec.field(default="columns", name="as")
    """The form of an output: the columns of its rows, or each row as JSON in one column of text."""
    zookeeper: str | None = None
    """Address, `host:port[,host:port]`; without it `ONYX_ZOOKEEPER_ADDRESS`."""
    tenancy: str | None = None
    """Without it `ONYX_TENANCY_ID`."""
    starting_from: Literal["earliest", "latest"] = "earliest"
    """The position of a stream that begins: all that was published, or only what comes."""
    max_rows_per_trigger: _AtLeastOne | None = None
    max_files_per_trigger: _AtLeastOne | None = None
    max_bytes_per_trigger: _AtLeastOne | None = None
    """The rows of a stream: a batch has at most so many rows, parts or bytes (but at least one
    part)."""

    def wrong(self) -> Iterator[str]:
        """What is wrong beyond the types of the options."""
        if self.window is not None:
            if self.job is None:
                yield "option 'job' is missing: a window is one of a job"
            if self.path is not None or self.task is not None:
                yield "option 'window' reads the state of a window; leave out 'path' and 'task'"
            if self.form == "text":
                yield "option 'as' is of outputs; give the state of a window as text by a schema"
        elif self.path is None and (self.job is None or self.task is None):
            yield "say what to read: 'path', or 'job' and 'task', or 'job' and 'window'"
        given = (self.max_rows_per_trigger, self.max_files_per_trigger, self.max_bytes_per_trigger)
        if sum(each is not None for each in given) > 1:
            yield f"only one of {', '.join(_LIMITS)} can be given"


class Wanted(Protocol):
    """Options that know what of them does not go together."""

    def wrong(self) -> Iterator[str]:
        """What is wrong beyond their types."""
        ...


T = TypeVar("T", bound=Wanted)


def read_options(given: Mapping[str, str]) -> SourceOptions:
    """Options of a reader as Spark hands them over.

    Raises:
        UserError: one is unknown, missing or not of its type.
    """
    return converted(given, SourceOptions)


def converted(given: Mapping[str, str], kind: type[T]) -> T:
    """Text by keys, whose case does not count, as options. Raises like `read_options`."""
    names = [field.encode_name for field in msgspec.structs.fields(kind)]  # type: ignore[arg-type]
    known = {name.lower(): name for name in names}
    for key in given:
        if key.lower() not in known:
            hint = nearest(key, names) or f"known are: {', '.join(names)}"
            raise UserError(f'format("onyx"): option {key!r} is not known; {hint}')
    values = {known[key.lower()]: value for key, value in given.items()}
    try:
        options = msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise UserError(f'format("onyx"): an option is wrong: {error}') from error
    for problem in options.wrong():
        raise UserError(f'format("onyx"): {problem}')
    return options


def require_text(schema: Any, options: SourceOptions) -> None:
    """Raises UserError if rows as text cannot have this schema."""
    if options.form == "text" and [each.dataType.typeName() for each in schema] != ["string"]:
        raise UserError(
            'format("onyx"): option as: text gives one column of text: leave out the schema, or '
            'give one STRING, such as schema("value STRING")'
        )


@prepared
class WriteOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Into which input rows go, and how."""

    job: str | None = None
    """Id of the job, or its name if only one job of this name runs."""
    task: str = ""
    """The input, with `plugin: requests` or `http`; it may be left out if the job has only one."""
    workers: str | None = None
    """Addresses of workers, `host:port[,host:port]`. Any of them will do."""
    zookeeper: str | None = None
    """In place of `workers`: the workers are looked up where the query is planned."""
    tenancy: str | None = None
    """Whose job it is: workers of another tenancy take nothing. Without it `ONYX_TENANCY_ID`, or
    with `workers` whichever it is."""
    ack: Literal["journal", "ack"] = "journal"
    """When a batch counts as written: when its rows are in the journal of the input, or when all
    that follows from them is durable."""
    id: str | None = None
    """The id of a write that is no stream: the same write is taken once under one id."""
    batch_rows: Annotated[int, msgspec.Meta(ge=1, le=SEGMENTS_MAX)] = 50_000
    """Rows of one request, at most."""
    timeout: Annotated[float, msgspec.Meta(gt=0, le=TIMEOUT_S_MAX)] = TIMEOUT_S
    """Seconds to try for each request, and for the commit of a batch."""
    checkpoint_location: str | None = None
    """The checkpoint of the query. Spark hands it over; it is not used here."""

    def wrong(self) -> Iterator[str]:
        """What is wrong beyond the types of the options."""
        if not self.job:
            yield "option 'job' is missing: the job that takes the rows"
        if self.workers is not None and self.zookeeper is not None:
            yield "give either 'workers' or 'zookeeper'"
        if self.id is not None and not 0 < len(self.id) <= WRITE_CHARACTERS_MAX:
            yield f"an 'id' has 1 to {WRITE_CHARACTERS_MAX} characters"


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """Options as Spark hands them over.

    Raises:
        UserError: one is unknown, missing or not of its type.
    """
    return converted(given, WriteOptions)


HIDE = "SPARK_HIDE_TRACEBACK"
"""Read by `pyspark.util.handle_worker_exception`."""


@contextmanager
def in_one_line() -> Iterator[None]:
    """Also a decorator. Errors of Onyx that go through it are shown without a traceback."""
    try:
        yield
    except OnyxError:
        if _is_of_spark():
            os.environ[HIDE] = "1"
        raise


def _is_of_spark() -> bool:
    """Whether this process executes Python for a JVM, and is not the user's own."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
