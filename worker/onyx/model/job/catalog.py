"""The catalog of a job: what each of its tasks is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from onyx.model import names, plugins
from onyx.model.column_types import COLUMNS_MAX
from onyx.model.job.joins import TableJoin
from onyx.model.job.types import (
    SQL_CHARACTERS_MAX,
    TRACKED_ONLY,
    Milliseconds,
    Peers,
    TaskName,
)
from onyx.model.keys.compound import ListOf, MapOf, OneOrMore
from onyx.model.keys.durations import Amount, Duration
from onyx.model.keys.key import EMPTY, Key
from onyx.model.keys.kinds import Count, Function, Text, TypeName
from onyx.model.keys.states import StateName, StateTypeName
from onyx.model.limits import (
    BATCH_SEGMENTS_MAX,
    PENDING_MAX,
    SEGMENTS_PER_SECOND_MAX,
    STATE_TTL_MS_MAX,
    TIMEOUT_MS_MAX,
)
from onyx.model.state_types import STATES_MAX

REFRESH_MS_MIN = 1_000
GROUPED = ("function", "output", "reduce")
"""Types of tasks whose segments may be grouped."""


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """One task: where segments come from, what is done with them, or where they go."""

    name: Annotated[
        TaskName,
        Key(origin="onyx/name", restriction="Unique in the catalog; not all, none or coordinator."),
    ]
    """Name of the task, as in the workflow."""
    type: Annotated[
        Literal["input", "function", "output", "reduce", "table"],
        Key(
            origin="onyx/type",
            restriction="A reduce task with children needs a window with a trigger that emits. A "
            "table is in no edge of the workflow.",
        ),
    ]
    """Role of the task: `input` reads segments, `function` transforms them, `output` writes them,
    and `reduce` gathers them in windows. A reduce task passes on only what its triggers emit. A
    `table` is read to its end before any segment is, and kept in each worker process, for tasks
    that look it up by `join` or `tables`."""
    batch_size: Annotated[
        int | None,
        Count(1, BATCH_SEGMENTS_MAX, "segments"),
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
            unless=("sql", "sparkStage", "sparkSql", "join"),
            origin="onyx/fn",
        ),
    ] = None
    """Function from a segment (or a batch) to a segment or a list of segments. An input applies it
    to each segment that it reads, an output to each segment before it writes it. With `join` it
    gets what the join makes."""
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
        TableJoin | None,
        Key(allowed_for=("function",), restriction="Not together with sparkStage."),
    ] = None
    """Table whose rows the segments of the task get, by their key."""
    tables: Annotated[
        tuple[TaskName, ...],
        Key(allowed_for=("function",), restriction="Tasks of type table. Needs fn."),
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
        Key(allowed_for=("table",), restriction="Not with engine: spark."),
    ] = None
    """Time after which the source of a table is read again, as a whole. Tasks look up the old rows
    until then, and also when it cannot be read. By default a table is read once."""
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
        Key(restriction="Needs batchFormat: arrow, but on a table."),
    ] = None
    """Names and types of the columns of a batch. A segment that does not fit fails: one with
    another key, or with a value that the type does not hold. A key that it lacks is null. Without a
    schema each batch has the types of its values."""
    cooperative: bool | None = None
    """true: the task never blocks, and shares a thread with others. false: it has a thread of its
    own. By default the plugin decides."""
    min_peers: Annotated[
        Peers | None,
        Key(origin="onyx/min-peers", restriction="Not above maxPeers; not with nPeers."),
    ] = None
    """Peers that must be available before the job starts."""
    max_peers: Annotated[
        Peers | None,
        Key(origin="onyx/max-peers", restriction="Not below minPeers; not with nPeers."),
    ] = None
    """Most peers that may work on the task."""
    n_peers: Annotated[
        Peers | None,
        Key(origin="onyx/n-peers", restriction="Not together with minPeers or maxPeers."),
    ] = None
    """Sets minPeers and maxPeers to the same value."""
    group_by_key: Annotated[
        str | tuple[str, ...] | None,
        OneOrMore(Text()),
        Key(
            allowed_for=GROUPED,
            origin="onyx/group-by-key",
            restriction="Needs fluxPolicy; not together with groupByFn.",
        ),
    ] = None
    """Key of a segment, or several keys, by whose value segments are grouped; one peer gets all
    segments of a group."""
    group_by_fn: Annotated[
        str | None,
        Function(),
        Key(
            allowed_for=GROUPED,
            origin="onyx/group-by-fn",
            restriction="Needs fluxPolicy; not together with groupByKey.",
        ),
    ] = None
    """Function of a segment whose result is its group; one peer gets all segments of a group."""
    on_missing_key: Annotated[
        Literal["fail", "group"], Key(allowed_for=GROUPED, restriction="Needs groupByKey.")
    ] = "fail"
    """What happens to a segment without one of the groupByKey keys. `fail`: the segment fails.
    `group`: such segments form a group, as if the key were null."""
    flux_policy: Annotated[
        Literal["kill", "continue", "recover"] | None,
        Key(
            allowed_for=GROUPED,
            origin="onyx/flux-policy",
            restriction="Only with groupByKey or groupByFn. kill and recover need minPeers or "
            "nPeers.",
        ),
    ] = None
    """What happens when a peer of a grouped task leaves. `kill`: the job is killed. `continue`: the
    other peers take over its key groups, and new peers may join at any time. `recover`: as
    `continue`, but peers join only up to minPeers or nPeers, or to replace one that left."""
    state: Annotated[
        Mapping[str, str] | None,
        MapOf(StateName(), StateTypeName(), STATES_MAX),
        Key(
            allowed_for=("function",),
            restriction="Needs fn, and groupByKey or groupByFn; not with windows, sparkStage, "
            "batchFn or engine: spark. With batchFormat: arrow only values of a type.",
        ),
    ] = None
    """Names and types of what fn keeps for each group: `value`, `list` or `map`, of a type in
    brackets. fn gets it as its last argument, as `fn(segment, state)`; with `batchFormat: arrow` as
    columns, with a value for each group of the batch. What fn returns is sent when the change is
    durable."""
    state_ttl: Annotated[
        int | None,
        Duration(1_000, STATE_TTL_MS_MAX),
        Key(allowed_for=("function",), restriction="Needs state."),
    ] = None
    """Time without a change after which a group loses its states, on the clock of the worker; up to
    a sixteenth later. Timers stay. By default states are kept as long as the job."""
    on_timer: Annotated[
        str | None,
        Function(),
        Key(allowed_for=("function",), restriction="Needs state; not with batchFormat: arrow."),
    ] = None
    """Function that is called as `fn(timer, state)` when a timer is due that fn has set for a
    group. What it returns is sent like what fn returns. At the end of the job all timers are due.
    """
    dead_letter: Annotated[
        TaskName | None,
        Key(
            allowed_for=("input", "function", "reduce"),
            restriction="A task of the catalog; neither an input nor a task upstream of this one.",
        ),
    ] = None
    """Task that gets a dead letter for each segment that fails here, so that the job continues
    without the segment. The edge to it is added to the workflow. Ordinary segments go there only if
    a flow condition names it."""
    required_tags: Annotated[
        tuple[str, ...], ListOf(Text(characters_max=63)), Key(origin="onyx/required-tags")
    ] = ()
    """Tags that a worker must have, all of them, for its peers to run this task."""
    percentage: Annotated[
        int | None,
        Count(1, 99, "percent"),
        Key(
            origin="onyx/percentage",
            era="0.10+",
            restriction="Only with taskScheduler: percentage. At most 100 over all tasks.",
        ),
    ] = None
    """Share of the job's peers, under the percentage task scheduler."""
    guarantee: Annotated[
        Literal["at-most-once", "at-least-once"] | None,
        Key(
            allowed_for=("input",),
            restriction="Only in a job with guarantee: at-least-once, and not beside a Spark stage "
            "or a window with engine: spark.",
        ),
    ] = None
    """How often the effect of each segment of this input counts when something fails. With
    `at-most-once` nobody accounts for its segments: they cost no acks, are never read again, and
    what a failure takes is lost. By default as the job."""
    anchored: Annotated[
        bool,
        Key(
            allowed_for=("function",),
            restriction="false only in a job with guarantee: at-least-once, and not beside a Spark "
            "stage or a window with engine: spark.",
        ),
    ] = True
    """false: what the task sends on is not accounted for. The input counts a segment as processed
    when this task is done with it, and what becomes of the rest is at most once. A single segment
    is sent so by a flow condition with `anchored: false`."""
    retry_mode: Annotated[
        Literal["individual", "all-after", "none"],
        Key(
            allowed_for=("input",),
            restriction="all-after and none not under guarantee: exactly-once. " + TRACKED_ONLY,
        ),
    ] = "individual"
    """What the input does about a segment that is to be read again, because it is lost or a
    function or flow condition asks for it. `individual`: it reads that segment again. `all-after`:
    it reads that segment and all after it in its partition again, in order. `none`: the segment
    counts as processed, and is counted in a metric."""
    max_pending: Annotated[
        int | None,
        Count(1, PENDING_MAX, "segments"),
        Key(allowed_for=("input",), origin="onyx/max-pending", restriction=TRACKED_ONLY),
    ] = None
    """In-flight segments of one peer of the input at which it stops reading. By default 10,000, or
    as many as eight batches have if that is more."""
    pending_timeout: Annotated[
        Milliseconds,
        Key(allowed_for=("input",), origin="onyx/pending-timeout", restriction=TRACKED_ONLY),
    ] = 60_000
    """Time after which a segment is read again that is not completely processed and that no worker
    works on: it is lost. What takes longer, in a function or until it is durable, is waited for.
    What a worker had that has died is read again at once."""
    input_retry_timeout: Annotated[
        Milliseconds,
        Key(allowed_for=("input",), origin="onyx/input-retry-timeout", restriction=TRACKED_ONLY),
    ] = 1_000
    """Interval between two checks for segments to replay."""
    checkpoint_segments: Annotated[
        int | None,
        Count(1, PENDING_MAX, "segments"),
        Key(allowed_for=("input",), restriction=f"{TRACKED_ONLY} Not with engine: spark."),
    ] = None
    """Completed segments after which a peer of the input saves how far it is: fewer are read again
    after a crash, for more writes to ZooKeeper. It saves every two seconds in any case."""
    segments_per_second_max: Annotated[
        int | None,
        Count(1, SEGMENTS_PER_SECOND_MAX, "segments"),
        Key(allowed_for=("input",), restriction="Not with engine: spark."),
    ] = None
    """Segments that all peers of the input together read in a second, at most; after a pause,
    those of one second at once. What is read again does not count."""
    uniqueness_key: Annotated[
        str | None,
        Key(
            origin="onyx/uniqueness-key",
            restriction="Only on a windowed task, which needs it, unless deduplicate is false or "
            "the job's guarantee is exactly-once.",
        ),
    ] = None
    """Key that identifies a segment, by which windows drop repeated segments."""
    deduplicate: Annotated[
        bool,
        Key(
            origin="onyx/deduplicate?",
            restriction="Only on a windowed task; not false together with uniquenessKey.",
        ),
    ] = True
    """false: windows of the task apply repeated segments again."""
    assign_watermark_fn: Annotated[
        str | None,
        Function(),
        Key(
            allowed_for=("input",),
            origin="onyx/assign-watermark-fn",
            era="0.10+",
            restriction="Not together with watermarkKey.",
        ),
    ] = None
    """Function of a segment that gives its event time in milliseconds; with `batchFormat: arrow` of
    a record batch, giving an array of times."""
    watermark_key: Annotated[
        str | None, Key(allowed_for=("input",), restriction="Not together with assignWatermarkFn.")
    ] = None
    """Key of a segment that holds its event time in milliseconds."""
    allowed_disorder: Annotated[
        tuple[int, str],
        Amount(names.TIME_UNITS, number_min=0),
        Key(allowed_for=("input",), restriction="Needs watermarkKey or assignWatermarkFn."),
    ] = (0, "milliseconds")
    """How far out of order the event times of a partition may be: the watermark stays this far
    behind the latest one seen."""
    idle_timeout: Annotated[
        Milliseconds | None,
        Key(allowed_for=("input",), restriction="Needs watermarkKey or assignWatermarkFn."),
    ] = None
    """Time without segments after which a partition no longer holds back the watermark. By default
    a partition holds it back until it is exhausted."""
    when_idle: Annotated[
        Literal["wait", "clock"],
        Key(
            allowed_for=("input",),
            restriction="clock needs idleTimeout. Not with engine: spark.",
        ),
    ] = "wait"
    """What event time does while all partitions are idle, of all inputs. `wait`: it stays where it
    is. `clock`: it goes on as the clock does, so that the last windows of a quiet stream fire."""
    doc: Annotated[str, Key(origin="onyx/doc")] = ""
    """Free text."""

    def __post_init__(self) -> None:
        if self.sql is not None:  # it is over columns, whoever asks
            object.__setattr__(self, "batch_format", "arrow")

    @property
    def stage(self) -> str | None:
        """What a Spark stage of the task is called in messages; None: it has none."""
        return self.spark_stage if self.spark_sql is None else "sparkSql"

    @property
    def maker(self) -> str | None:
        """What makes the segments that the task sends on, as messages call it."""
        return self.fn or ("sql" if self.sql is not None else None)
