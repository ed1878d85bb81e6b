"""The information model: every key that a job may have, in one table.

Parsing, defaults, the CRD and the reference pages are all derived from here, and a test compares
the table with the dataclasses of `job.py`. Two eras of Onyx are united: keys that 0.14 dropped but
an engine with acknowledgement needs (`maxPending`, `pendingTimeout`, `uniquenessKey`), and keys
that 0.10 to 0.14 added (`storageStrategy`, `emit`, `delay`). Not taken over: `language` (there is
one), the barrier keys (they come with snapshots), `bulk?` and `restart-pred-fn`
(gone from Onyx itself), and open keys (`options` takes their place, so that a typo is found).
"""

from __future__ import annotations

from dataclasses import replace

from onyx.model import names, plugins
from onyx.model.information_declaration import DECLARATION
from onyx.model.information_upgrade import RESUME_POINT
from onyx.model.information_windows import TRIGGER, WINDOW
from onyx.model.job import EMPTY, CatalogEntry, FlowCondition, Job, Lifecycle
from onyx.model.keys.compound import Amount, Edge, ListOf, OneOrMore, Predicate
from onyx.model.keys.kinds import Choice, Count, Flag, Function, Metadata, Name, Options, Text
from onyx.model.keys.section import Entries, Entry, Key, Section, doc_key, options_key

TASKS_MAX = 256
EDGES_MAX = 1_024
DEPTH_MAX = 64
"""Longest path through a workflow, in edges."""
ENTRIES_MAX = 1_024
PEERS_MAX = 10_000
BATCH_SEGMENTS_MAX = 100_000
TIMEOUT_MS_MAX = 86_400_000
RETRIES_MAX = 10_000

_TARGETS = OneOrMore(Name("task"), words=("all", "none"), items_min=0)
_GROUPED = ("function", "output", "reduce")
_PEERS = Count(1, PEERS_MAX, "peers")
_TRACKED = "Not under guarantee: at-most-once, which replays nothing."
_MILLISECONDS = Count(1, TIMEOUT_MS_MAX, "milliseconds")


CATALOG_ENTRY = Section(
    "catalog entry",
    "One task: where segments come from, what is done with them, or where they go.",
    (
        Key(
            "name", Name("task"),
            "Name of the task; the workflow uses the same name.",
            required=True, origin="onyx/name",
            restriction="Unique in the catalog; not all, none or coordinator.",
        ),
        Key(
            "type", Choice(("input", "function", "output", "reduce")),
            "Role of the task: source, transformation, sink, or windowed reduction, whose own "
            "segments go nowhere: only what its triggers emit is sent on.",
            required=True, origin="onyx/type",
            restriction="A reduce task with children needs a window with a trigger that emits.",
        ),
        Key(
            "batch_size", Count(1, BATCH_SEGMENTS_MAX, "segments"),
            "Segments taken at most in one batch.",
            required=True, origin="onyx/batch-size",
        ),
        Key(
            "plugin", Function(plugins.NAMES),
            "What does the reading or writing: a plugin of Onyx by its short name, or one of "
            "your own.",
            required_for=("input", "output"), allowed_for=("input", "output"),
            origin="onyx/plugin",
            restriction="A short name must be one of a plugin that can read, on an input, or "
            "write, on an output.",
        ),
        Key(
            "fn", Function(),
            "Function from a segment (or a batch) to a segment or a list of them. On an input it "
            "is applied to what was read, on an output to what will be written.",
            required_for=("function",), origin="onyx/fn",
        ),
        Key(
            "params", ListOf(Text()),
            "Keys of options whose values are passed to fn, in this order, before the segment.",
            default=(), origin="onyx/params", restriction="Every key must be in options.",
        ),
        options_key("the plugin or the function needs"),
        Key(
            "medium", Text(),
            "Kind of external medium; informative only.",
            origin="onyx/medium", restriction="Optional here: the plugin says it.",
        ),
        Key(
            "batch_timeout", Count(0, TIMEOUT_MS_MAX, "milliseconds"),
            "How long a task waits for a batch to fill, from the first segment that is there. 0: "
            "it goes on with what there is, which is fastest for few segments. Nothing waits at "
            "the end of an input, or when outputs are to make durable what they hold.",
            default=0, origin="onyx/batch-timeout",
            restriction="All together below pendingTimeout of every input.",
        ),
        Key(
            "batch_fn", Flag(),
            "fn takes a whole batch and returns exactly as many results, each a segment or a "
            "list of them.",
            default=False, origin="onyx/batch-fn?",
        ),
        Key(
            "cooperative", Flag(),
            "true: the task never blocks and shares a thread with others; false: it gets a "
            "thread of its own. Without it, the plugin decides.",
            era="ours",
        ),
        Key(
            "min_peers", _PEERS,
            "Peers that must be there before the job starts.",
            origin="onyx/min-peers", restriction="Not above maxPeers; not with nPeers.",
        ),
        Key(
            "max_peers", _PEERS,
            "Most peers that are ever put on the task.",
            origin="onyx/max-peers", restriction="Not below minPeers; not with nPeers.",
        ),
        Key(
            "n_peers", _PEERS,
            "Short for minPeers and maxPeers of the same value.",
            origin="onyx/n-peers", restriction="Not together with minPeers or maxPeers.",
        ),
        Key(
            "group_by_key", OneOrMore(Text()),
            "Key, or keys, of a segment whose value decides which peer gets it.",
            allowed_for=_GROUPED, origin="onyx/group-by-key",
            restriction="Needs fluxPolicy; not together with groupByFn.",
        ),
        Key(
            "group_by_fn", Function(),
            "Function of a segment whose result decides which peer gets it.",
            allowed_for=_GROUPED, origin="onyx/group-by-fn",
            restriction="Needs fluxPolicy; not together with groupByKey.",
        ),
        Key(
            "on_missing_key", Choice(("fail", "group")),
            "What becomes of a segment that lacks a key of groupByKey: it fails, or all that lack "
            "it are a group, as if the key were null.",
            default="fail", allowed_for=_GROUPED, era="ours", restriction="Needs groupByKey.",
        ),
        Key(
            "flux_policy", Choice(("kill", "continue", "recover")),
            "What happens when a peer of a grouped task goes. `kill`: the job is killed. "
            "`continue`: its key groups move to the peers left, and peers may come at any time. "
            "`recover`: its key groups move as well; peers come only up to minPeers or nPeers, "
            "or in the place of those that went.",
            allowed_for=_GROUPED, origin="onyx/flux-policy",
            restriction="Only with groupByKey or groupByFn. kill and recover need minPeers or "
            "nPeers.",
        ),
        Key(
            "dead_letter", Name("task"),
            "Task that gets a dead letter about each segment that fails here, so that the job goes "
            "on without it. Naming it makes the edge of the workflow, and the task gets nothing "
            "else from here unless a flow condition names it.",
            allowed_for=("input", "function", "reduce"), era="ours",
            restriction="A task of the catalog that is no input and none before this one.",
        ),
        Key(
            "required_tags", ListOf(Text(characters_max=63)),
            "Tags that a worker must all have for its peers to run this task.",
            default=(), origin="onyx/required-tags",
        ),
        Key(
            "percentage", Count(1, 99, "percent"),
            "Share of the job's peers, under the percentage task scheduler.",
            origin="onyx/percentage", era="0.10+",
            restriction="Only with taskScheduler: percentage. Together not above 100; exactly 100 "
            "when every task has one.",
        ),
        Key(
            "max_pending", Count(1, 10_000_000, "segments"),
            "Unfinished segments at which a peer of the input stops reading.",
            default=10_000, allowed_for=("input",), origin="onyx/max-pending",
            restriction=_TRACKED,
        ),
        Key(
            "pending_timeout", _MILLISECONDS,
            "Time after which a segment that was not completely processed is replayed.",
            default=60_000, allowed_for=("input",), origin="onyx/pending-timeout",
            restriction=_TRACKED,
        ),
        Key(
            "input_retry_timeout", _MILLISECONDS,
            "Period of the check for segments to replay.",
            default=1_000, allowed_for=("input",), origin="onyx/input-retry-timeout",
            restriction=_TRACKED,
        ),
        Key(
            "uniqueness_key", Text(),
            "Key that identifies a segment, for sources that repeat themselves.",
            origin="onyx/uniqueness-key",
            restriction="Only on a windowed task, which needs it, unless deduplicate is false or "
            "the job's guarantee is exactly-once.",
        ),
        Key(
            "deduplicate", Flag(),
            "false: a windowed task does not look for repeated segments.",
            default=True, origin="onyx/deduplicate?",
            restriction="Only on a windowed task; not false together with uniquenessKey.",
        ),
        Key(
            "assign_watermark_fn", Function(),
            "Function of a segment that gives its event time in milliseconds.",
            allowed_for=("input",), origin="onyx/assign-watermark-fn", era="0.10+",
            restriction="Not together with watermarkKey.",
        ),
        Key(
            "watermark_key", Text(),
            "Key of a segment that holds its event time in milliseconds.",
            allowed_for=("input",), era="ours",
            restriction="Not together with assignWatermarkFn.",
        ),
        Key(
            "allowed_disorder", Amount(names.TIME_UNITS, number_min=0),
            "How far event times of a partition may go back: the watermark stays this much behind "
            "the greatest one seen.",
            default=(0, "milliseconds"), allowed_for=("input",), era="ours",
            restriction="Needs watermarkKey or assignWatermarkFn.",
        ),
        Key(
            "idle_timeout", _MILLISECONDS,
            "Time without segments after which a partition no longer holds the watermark back. "
            "Without it, a partition always does until it is exhausted.",
            allowed_for=("input",), era="ours",
            restriction="Needs watermarkKey or assignWatermarkFn.",
        ),
        doc_key("onyx/doc"),
    ),
    CatalogEntry,
)  # fmt: skip

FLOW_CONDITION = Section(
    "flow condition",
    "When segments of a task go to which of its children. A task without conditions sends every "
    "segment to all of them.",
    (
        Key(
            "from", OneOrMore(Name("task", words=("all",))),
            "Task, or tasks, whose segments are decided on, or all.",
            required=True, attribute="from_task", origin="flow/from",
            restriction="all stands alone.",
        ),
        Key(
            "to", _TARGETS,
            "Children to send to when the predicate holds.",
            required=True, origin="flow/to",
            restriction="Children of from. all comes first, none first or directly after all, "
            "and both need shortCircuit. Conditions that retry may stand anywhere among those with "
            "shortCircuit.",
        ),
        Key(
            "predicate", Predicate(),
            "Function (event, old segment, new segment, all new segments, param...) to true or "
            "false, or a composition of such. Params are keys of options.",
            required=True, origin="flow/predicate", restriction="Params must be in options.",
        ),
        options_key("the predicate needs"),
        Key(
            "predicate_errors_to", _TARGETS,
            "Children that get an error of the predicate itself: what postTransform makes of it, "
            "or without that {error: {type, message}, segment}.",
            origin="flow/predicate-errors-to", era="0.10+",
        ),
        Key(
            "exclude_keys", ListOf(Text()),
            "Keys that the children this condition sends to do not get; others do.",
            default=(), origin="flow/exclude-keys",
        ),
        Key(
            "short_circuit", Flag(),
            "If the predicate holds, later conditions are not looked at.",
            default=False, origin="flow/short-circuit?",
            restriction="Such conditions come before all others of the same task.",
        ),
        Key(
            "thrown_exception", Flag(),
            "The condition is for segments that fail, in fn, in a window of the task or because a "
            "child cannot be sent what was made of them; the predicate gets the exception.",
            default=False, origin="flow/thrown-exception?", restriction="Needs shortCircuit.",
        ),
        Key(
            "post_transform", Function(),
            "Function (event, segment, exception) that makes a segment of an exception.",
            origin="flow/post-transform", restriction="Needs thrownException.",
        ),
        Key(
            "action", Choice(("retry",)),
            "retry: nothing is sent; the root segment is read again from its input, after a pause "
            "that doubles each time.",
            origin="flow/action",
            restriction="Needs shortCircuit, and to: none; not for guarantee at-most-once.",
        ),
        Key(
            "max_retries", Count(1, RETRIES_MAX, "retries"),
            "Retries of a segment of the input, counted over all conditions, after which this one "
            "asks for no more. Then it fails: a later condition for exceptions may take it, or "
            "deadLetter; otherwise the job ends.",
            default=10, era="ours", restriction="Needs action: retry.",
        ),
        doc_key("flow/doc"),
    ),
    FlowCondition,
)  # fmt: skip

LIFECYCLE = Section(
    "lifecycle",
    "Functions that are called around the work of a task.",
    (
        Key(
            "task", Name("task", words=("all",)), "Task that it belongs to, or all.",
            required=True, origin="lifecycle/task",
        ),
        Key(
            "calls", Function(),
            "Function that returns a mapping from hook names to functions.",
            required=True, origin="lifecycle/calls",
        ),
        options_key("the calls need"),
        doc_key("lifecycle/doc"),
    ),
    Lifecycle,
)  # fmt: skip

SPEC = Section(
    "job",
    "A job as plain data.",
    (
        Key(
            "workflow", ListOf(Edge(), items_min=1, items_max=EDGES_MAX),
            "Edges [from, to] of a directed graph without cycles.",
            required=True, origin="workflow",
            restriction="Starts with inputs and ends with outputs or reduce tasks; no edge twice; "
            f"at most {DEPTH_MAX} edges in a row.",
        ),
        Key(
            "catalog", Entries(CATALOG_ENTRY, TASKS_MAX, map_key="name"),
            "What each task is.",
            required=True, origin="catalog",
            restriction="Has an entry for every task of the workflow, and no other.",
        ),
        Key(
            "task_scheduler", Choice(("balanced", "percentage", "colocated")),
            "How the job's peers are spread over its tasks.",
            default="balanced", origin="task-scheduler",
        ),
        Key(
            "guarantee", Choice(("at-most-once", "at-least-once", "exactly-once")),
            "What holds for every segment when something fails.",
            default="at-least-once", era="ours",
        ),
        Key(
            "flow_conditions", Entries(FLOW_CONDITION, ENTRIES_MAX),
            "Which segments go to which children.", default=(), origin="flow-conditions",
        ),
        Key(
            "lifecycles", Entries(LIFECYCLE, ENTRIES_MAX),
            "Functions called around the work of tasks.", default=(), origin="lifecycles",
        ),
        Key(
            "windows", Entries(WINDOW, TASKS_MAX, map_key="id"),
            "Aggregation over extents of segments.", default=(), origin="windows",
        ),
        Key(
            "triggers", Entries(TRIGGER, TASKS_MAX),
            "When windows hand on what they hold.", default=(), origin="triggers",
        ),
        Key(
            "resume_point", Entry(RESUME_POINT),
            "Another job that ends as this one begins, and from whose state this one starts.",
            origin="resume-point", era="0.10+",
            restriction="Not for guarantee at-most-once.",
        ),
        Key(
            "percentage", Count(0, 100, "percent"),
            "Share of the cluster, under the percentage job scheduler.", origin="percentage",
            restriction="A cluster with another job scheduler refuses the job.",
        ),
        Key(
            "metadata", Metadata(),
            "Anything that should travel with the job. `jobId` is its id, which makes handing it "
            "in safe to repeat; without it each submission gets a new one.",
            default=EMPTY, origin="metadata",
        ),
        Key(
            "acker_percentage", Count(1, 100, "percent"),
            "Share of the job's peers that keep the books of acknowledgement; at least one.",
            default=1, era="0.9", origin="acker/percentage", restriction=_TRACKED,
        ),
        Key(
            "acker_exempt_input_tasks", Flag(), "Peers of input tasks keep none.",
            default=False, era="0.9", origin="acker/exempt-input-tasks?", restriction=_TRACKED,
        ),
        Key(
            "acker_exempt_output_tasks", Flag(), "Peers of output tasks keep none.",
            default=False, era="0.9", origin="acker/exempt-output-tasks?", restriction=_TRACKED,
        ),
        Key(
            "acker_exempt_tasks", ListOf(Name("task")), "Peers of these tasks keep none.",
            default=(), era="0.9", origin="acker/exempt-tasks",
            restriction="Tasks of the workflow. " + _TRACKED,
        ),
    ),
    Job,
)  # fmt: skip

API_VERSION = "onyx.dev/v1alpha1"
KIND = "OnyxJob"

OBJECT_SPEC = Section(
    SPEC.name,
    SPEC.doc,
    (*(replace(key, required=False) for key in SPEC.keys), *DECLARATION.keys),
)
"""What stands under `spec`: a job, or a reference to one, and how it is to be run."""

MANIFEST = Section(
    "manifest",
    "The file: a Kubernetes object.",
    (
        Key("api_version", Choice((API_VERSION,)), "Version of this format.", required=True),
        Key("kind", Choice((KIND,)), "Kind of object.", required=True),
        Key("metadata", Options(), "name, and what Kubernetes adds.", required=True),
        Key("spec", Entry(OBJECT_SPEC), "The job, and how to run it.", required=True),
        Key("status", Options(), "Written by the operator; ignored here."),
    ),
)

SECTIONS = {
    "spec": SPEC,
    "catalog": CATALOG_ENTRY,
    "flowConditions": FLOW_CONDITION,
    "lifecycles": LIFECYCLE,
    "windows": WINDOW,
    "triggers": TRIGGER,
}
"""The sections of a job by the key under which their entries stand."""
