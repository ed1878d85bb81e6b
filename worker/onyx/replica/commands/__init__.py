"""The log commands: one module each, all with the same contract (`contract.py`)."""

from __future__ import annotations

from onyx.replica.commands import (
    abort_join_cluster,
    accept_join_cluster,
    add_virtual_peer,
    backpressure_off,
    backpressure_on,
    complete_job,
    exhaust_input,
    gc,
    group_leave_cluster,
    kill_job,
    leave_cluster,
    notify_join_cluster,
    prepare_join_cluster,
    register_partitions,
    seal_output,
    signal_ready,
    submit_job,
)
from onyx.replica.commands.contract import CommandModule

_MODULES: tuple[CommandModule, ...] = (
    prepare_join_cluster,
    notify_join_cluster,
    accept_join_cluster,
    abort_join_cluster,
    group_leave_cluster,
    add_virtual_peer,
    leave_cluster,
    submit_job,
    kill_job,
    register_partitions,
    exhaust_input,
    seal_output,
    complete_job,
    signal_ready,
    backpressure_on,
    backpressure_off,
    gc,
)

COMMANDS: dict[str, CommandModule] = {module.NAME: module for module in _MODULES}
NAMES = tuple(COMMANDS)
