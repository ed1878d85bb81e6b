"""The table of log commands. A command, or a pair that belongs together, is one module; each has a
row here.

Whoever knows one command loads them all, because an entry may have any: so others import commands
from here.
"""

from __future__ import annotations

from collections.abc import Mapping

from onyx.replica.command import Command
from onyx.replica.commands.add_virtual_peer import AddVirtualPeer
from onyx.replica.commands.check_job import CheckJob, VouchJob
from onyx.replica.commands.drain_job import DrainJob
from onyx.replica.commands.exhaust_input import ExhaustInput
from onyx.replica.commands.gc import Gc
from onyx.replica.commands.group_leave_cluster import GroupLeaveCluster
from onyx.replica.commands.join_cluster import (
    AbortJoinCluster,
    AcceptJoinCluster,
    NotifyJoinCluster,
    PrepareJoinCluster,
)
from onyx.replica.commands.kill_job import KillJob
from onyx.replica.commands.leave_cluster import LeaveCluster
from onyx.replica.commands.load_job import LoadJob
from onyx.replica.commands.pause_job import PauseJob, SignalRest
from onyx.replica.commands.register_partitions import RegisterPartitions
from onyx.replica.commands.report_loss import ReportLoss
from onyx.replica.commands.restart_task import RestartTask
from onyx.replica.commands.seal_output import SealOutput
from onyx.replica.commands.set_options import SetOptions
from onyx.replica.commands.signal_failing import SignalFailing
from onyx.replica.commands.signal_ready import SignalReady
from onyx.replica.commands.submit_job import SubmitJob
from onyx.replica.commands.suspend_job import ResumeJob, SuspendJob

__all__ = [
    "COMMANDS",
    "AbortJoinCluster",
    "AcceptJoinCluster",
    "AddVirtualPeer",
    "CheckJob",
    "DrainJob",
    "ExhaustInput",
    "Gc",
    "GroupLeaveCluster",
    "KillJob",
    "LeaveCluster",
    "LoadJob",
    "NotifyJoinCluster",
    "PauseJob",
    "PrepareJoinCluster",
    "RegisterPartitions",
    "ReportLoss",
    "RestartTask",
    "ResumeJob",
    "SealOutput",
    "SetOptions",
    "SignalFailing",
    "SignalReady",
    "SignalRest",
    "SubmitJob",
    "SuspendJob",
    "VouchJob",
]

COMMANDS: Mapping[str, type[Command]] = {
    command.NAME: command
    for command in (
        AbortJoinCluster,
        AcceptJoinCluster,
        AddVirtualPeer,
        CheckJob,
        DrainJob,
        ExhaustInput,
        Gc,
        GroupLeaveCluster,
        KillJob,
        LeaveCluster,
        LoadJob,
        NotifyJoinCluster,
        PauseJob,
        PrepareJoinCluster,
        RegisterPartitions,
        ReportLoss,
        RestartTask,
        ResumeJob,
        SealOutput,
        SetOptions,
        SignalFailing,
        SignalReady,
        SignalRest,
        SubmitJob,
        SuspendJob,
        VouchJob,
    )
}
"""All commands by their names in the log."""
