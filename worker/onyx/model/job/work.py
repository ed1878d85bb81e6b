"""The first half of a catalog entry: what a task is, and what it does with segments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import field

from onyx.model import plugins
from onyx.model.column_types import COLUMNS_MAX
from onyx.model.job.joins import LookupJoin
from onyx.model.job.types import SQL_CHARACTERS_MAX, TaskName
from onyx.model.keys.compound import MapOf, OneOrMore
from onyx.model.keys.durations import Duration
from onyx.model.keys.key import EMPTY, Key
from onyx.model.keys.kinds import Function, Integer, Text, TypeName
from onyx.model.limits import BATCH_SEGMENTS_MAX, TIMEOUT_MS_MAX

REFRESH_MS_MIN = 1_000
SQL_TIMEOUT_MS_MIN = 1_000


class WorkKeys(msgspec.Struct, frozen=True):
    """What is done with the segments of a task."""

    name: Annotated[
        TaskName,
        Key(origin="onyx/name", restriction="Unique in the catalog; not all, none or coordinator."),
    ]
    """Name of the task, as in the workflow."""
    type: Annotated[
        Literal["input", "function", "output", "reduce", "table", "join"],
        Key(
            filled="what fn, plugin, key, left, the windows and the edges say",
            origin="onyx/type",
            restriction="A reduce task with children needs a window with a trigger that emits. A "
            "table is in no edge of the workflow.",
        ),
    ]
    """Role of the task: `input` reads segments, `function` transforms them, `output` writes them,
    and `reduce` gathers them in windows. A reduce task passes on only what its triggers emit. A
    `table` is read to its end before any segment is, and kept in each worker process, for tasks
    that look it up by `join` or `tables`. A `join` gives a segment for each two of its two parents
    that meet."""
    batch_size: Annotated[
        int | None,
        Integer(1, BATCH_SEGMENTS_MAX, "segments"),
        Key(origin="onyx/batch-size", restriction="Required in the original Onyx."),
    ] = None
    """Most segments that the task processes in one batch. By default the worker finds it: it grows
    while batches are full, until the cost of a batch is small against its work, and shrinks when
    segments are large or the task is slow."""
    plugin: Annotated[
        str | None,
        Function(plugins.NAMES),
        Key(
            required_for=("input", "output", "table"),
            allowed_for=("input", "output", "table"),
            origin="onyx/plugin",
            restriction="On an input, the plugin must be able to read; on an output, to write; on "
            "a table, to read to an end.",
        ),
    ] = None
    """Plugin that reads or writes: the short name of a plugin that comes with Onyx, or a function
    of your own that makes one."""
    fn: Annotated[
        str | None,
        Function(),
        Key(
            required_for=("function",),
            unless=("sql", "sparkStage", "sparkSql", "join", "processor"),
            origin="onyx/fn",
        ),
    ] = None
    """Function from a segment (or a batch) to a segment or a list of segments. An input applies it
    to each segment that it reads, an output to each segment before it writes it. With `join` it
    gets what the join makes."""
    processor: Annotated[
        str | None,
        Function(),
        Key(
            allowed_for=("function",),
            restriction="Instead of fn; not with batchFn, join, state or windows.",
        ),
    ] = None
    """Class of your own that is called in place of a function, and has state and an outbox
    (`onyx.processors.Processor`). It is made with params and tables as its arguments, once on each
    peer, and on Spark for each bucket."""
    sql: Annotated[
        str | None,
        Text(characters_max=SQL_CHARACTERS_MAX),
        Key(
            allowed_for=("function",),
            restriction="Instead of fn; not with params, batchFn or batchFormat: dicts.",
        ),
    ] = None
    """Select from `segments`, the rows of a batch, instead of a function: `select *, km / hours as
    speed from segments where km > 10`. It is about one row at a time, so it has no aggregates, no
    order and no joins. It is run by DuckDB, and implies `batchFormat: arrow`."""
    sql_timeout: Annotated[
        int | None,
        Duration(SQL_TIMEOUT_MS_MIN, TIMEOUT_MS_MAX),
        Key(allowed_for=("function",), restriction="Needs sql."),
    ] = None
    """Longest time that sql may take for a batch. A batch that takes longer is halved, until the
    rows are found that do, which fail. By default 60 seconds."""
    spark_stage: Annotated[
        str | None,
        Function(),
        Key(
            allowed_for=("function",),
            restriction="Instead of fn; not with params, batchFn, batchFormat, schema, windows, "
            "guarantee: at-most-once or upgrade.",
        ),
    ] = None
    """Function from Spark DataFrames to one. It gets all segments that come to the task, or
    bundles of them, and the rows of its result go on as segments. Where it runs and where its
    files lie is said in options."""
    spark_sql: Annotated[
        str | None,
        Text(characters_max=SQL_CHARACTERS_MAX),
        Key(
            allowed_for=("function",),
            restriction="Instead of fn or sparkStage, whose options it has.",
        ),
    ] = None
    """Query of Spark instead of the function of a Spark stage. It selects from the view
    `segments`; with several tasks upstream from a view for each, called as the task (`-` becomes
    `_`). `:name` in it is a value of `stageParams`."""
    params: Annotated[
        tuple[str, ...], Key(origin="onyx/params", restriction="Every key must be in options.")
    ] = ()
    """Keys of options whose values are the leading arguments of fn, in this order."""
    join: Annotated[
        LookupJoin | None,
        Key(allowed_for=("function",), restriction="Not together with sparkStage."),
    ] = None
    """What the segments of the task get by their key: rows of a table, or what another task
    keeps."""
    tables: Annotated[
        tuple[TaskName, ...],
        Key(allowed_for=("function",), restriction="Tasks of type table. Needs fn or processor."),
    ] = ()
    """Tables that fn looks up: its leading arguments, behind those of params, in this order. Each
    is a mapping from key to row, and has its rows as columns."""
    key: Annotated[
        str | tuple[str, ...] | None,
        OneOrMore(Text()),
        Key(required_for=("table",), allowed_for=("table",)),
    ] = None
    """Key of a table's rows, or several keys. Of rows with equal values there the last one counts,
    unless versionKey is given. A row without a value there ends the job."""
    version_key: Annotated[str | None, Key(allowed_for=("table",))] = None
    """Key of a table's rows that says from when on a row is valid, until the next one of its key:
    a time or a number, of the kind that segments have in `at` of their join."""
    refresh: Annotated[
        int | None,
        Duration(REFRESH_MS_MIN, TIMEOUT_MS_MAX),
        Key(allowed_for=("table",)),
    ] = None
    """Time after which the source of a table is read again, as a whole. Tasks look up the old rows
    until then, and also when it cannot be read. By default a table is read once."""
    partitioned: Annotated[bool, Key(allowed_for=("table",))] = False
    """Whether each peer of a task keeps only the rows that its own groups look up, and a process of
    Spark those of the buckets that it has. Each task that joins the table has to be grouped by the
    keys that it looks up. By default each process keeps all rows."""
    options: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    """Options of the plugin, and values for params; each plugin has its own keys."""
    medium: Annotated[
        str | None, Key(origin="onyx/medium", restriction="Required in the original Onyx.")
    ] = None
    """Kind of external system; for readers only, nothing depends on it."""
    batch_timeout: Annotated[
        int,
        Duration(0, TIMEOUT_MS_MAX),
        Key(origin="onyx/batch-timeout"),
    ] = 0
    """Longest time that a task waits for a batch to fill, from its first segment. With 0 it
    processes what has arrived, which gives the lowest latency. At the end of an input, and while
    outputs flush, a task does not wait."""
    batch_fn: Annotated[bool, Key(origin="onyx/batch-fn?")] = False
    """fn takes a whole batch and returns one result for each of its segments: a segment or a list
    of segments."""
    batch_format: Annotated[
        Literal["dicts", "arrow"], Key(restriction="arrow not together with batchFn.")
    ] = "dicts"
    """What fn gets: `dicts` is a segment (or a list of them), `arrow` a pyarrow.RecordBatch with a
    row for each segment of the batch. An input with `arrow` reads columns. A task without fn takes
    both."""
    schema: Annotated[
        Mapping[str, str] | None,
        MapOf(Text(), TypeName(), COLUMNS_MAX),
    ] = None
    """Keys of the segments that the task gets, with their types. A segment that does not fit fails:
    one with another key, or with a value that the type does not hold. A key that it lacks is null
    in columns. Without a schema columns have the types of the values of their batch."""
    required: Annotated[tuple[str, ...], Key(restriction="Keys of schema; not on a table.")] = ()
    """Keys of `schema` that each segment has to have: without one, or with null there, it fails."""
    cooperative: bool | None = None
    """true: the task never blocks, and shares a thread with others. false: it has a thread of its
    own. By default the plugin or the processor decides."""

    def __post_init__(self) -> None:
        if self.sql is not None:  # it is over columns, whoever asks
            msgspec.structs.force_setattr(self, "batch_format", "arrow")

    @property
    def stage(self) -> str | None:
        """What a Spark stage of the task is called in messages; None: it has none."""
        return self.spark_stage if self.spark_sql is None else "sparkSql"

    @property
    def maker(self) -> str | None:
        """What makes the segments that the task sends on, as messages call it."""
        return self.fn or self.processor or ("sql" if self.sql is not None else None)
