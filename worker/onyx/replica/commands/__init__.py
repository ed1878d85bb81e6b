"""The registry of log commands. A command is added here and nowhere else."""

from __future__ import annotations

from onyx.replica.command import CommandModule
from onyx.replica.commands import (
    abort_join_cluster,
    accept_join_cluster,
    add_virtual_peer,
    check_job,
    complete_job,
    drain_job,
    exhaust_input,
    gc,
    group_leave_cluster,
    kill_job,
    leave_cluster,
    notify_join_cluster,
    prepare_join_cluster,
    register_partitions,
    report_loss,
    restart_task,
    resume_job,
    seal_output,
    signal_ready,
    submit_job,
    suspend_job,
    vouch_job,
)
from onyx.structs import prepared

_MODULES: tuple[CommandModule, ...] = (
    abort_join_cluster,
    accept_join_cluster,
    add_virtual_peer,
    check_job,
    complete_job,
    drain_job,
    exhaust_input,
    gc,
    group_leave_cluster,
    kill_job,
    leave_cluster,
    notify_join_cluster,
    prepare_join_cluster,
    register_partitions,
    report_loss,
    restart_task,
    resume_job,
    seal_output,
    signal_ready,
    submit_job,
    suspend_job,
    vouch_job,
)

for _module in _MODULES:
    prepared(_module.Args)
COMMANDS: dict[str, CommandModule] = {module.NAME: module for module in _MODULES}
NAMES = tuple(COMMANDS)
"""Names of all commands, sorted."""
