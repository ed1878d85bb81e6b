"""Rules that concern several keys. One module for each section.

Rules look at drafts, in which a wrong value is INVALID, and stay silent about what they cannot
see, so that one mistake gives one message. `ENTRY` has the rules of single entries, by the name of
their section; `JOB` those that look across the whole job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from onyx.model.keys.section import Draft
from onyx.model.report import Report
from onyx.model.rules import (
    catalog,
    combining,
    engine,
    failures,
    flow,
    loops,
    state_reads,
    states,
    stream_joins,
    tables,
    tracking,
    unused_keys,
    upgrade,
    windows,
    workflow,
)

EntryRule = Callable[[Draft, str, Report], None]
JobRule = Callable[[Draft, str, Report], None]

ENTRY: Mapping[str, tuple[EntryRule, ...]] = {
    "catalog": (
        catalog.check_peers,
        catalog.check_grouping,
        catalog.check_use,
        catalog.check_stage,
        catalog.check_sql,
        catalog.check_format,
        catalog.check_path,
        catalog.check_watermarks,
        states.check_state,
        states.check_processor,
        loops.check_entry,
        tables.check_table,
        tables.check_join,
        state_reads.check_lookup,
        stream_joins.check_stream_join,
    ),
    "flowConditions": (flow.check_entry, unused_keys.check_condition),
    "windows": (windows.check_window, unused_keys.check_window),
    "triggers": (windows.check_trigger, unused_keys.check_trigger),
}
JOB: tuple[JobRule, ...] = (
    catalog.check_drift,
    catalog.check_names,
    catalog.check_percentages,
    catalog.check_stages,
    workflow.check_graph,
    workflow.check_ends,
    workflow.check_exempt_tasks,
    tables.check_tables,
    state_reads.check_reads,
    stream_joins.check_stream_joins,
    flow.check_tasks,
    flow.check_order,
    flow.check_retries,
    flow.check_compared_keys,
    failures.check_dead_letters,
    loops.check_loops,
    workflow.check_tasks,
    windows.check_ids,
    windows.check_tasks,
    windows.check_late_tasks,
    windows.check_trigger_windows,
    windows.check_delays,
    windows.check_last_firings,
    windows.check_emissions,
    states.check_tasks,
    states.check_processors,
    unused_keys.check_windowed_tasks,
    unused_keys.check_shares,
    unused_keys.check_local_only,
    unused_keys.check_tracking,
    unused_keys.check_ack_returns,
    tracking.check_untracked,
    tracking.check_guarantees,
    tracking.check_native,
    tracking.check_failures,
    tracking.check_retry_modes,
    tracking.check_ackers,
    tracking.check_exemptions,
    tracking.check_conditions,
    tracking.check_retries,
    upgrade.check_upgrade,
    engine.check_settings,
    engine.check_engine,
    engine.check_windows,
    combining.check_combining,
)
