"""What a task that works on batches does in each of its phases, with the parts that each uses."""

from __future__ import annotations

from collections.abc import Callable

from onyx.program.phases import Phase
from onyx.task.batch_task import BatchTask
from onyx.task.joining import signal_ready
from onyx.task.phases import apply, finish, read, recover, route, send, start, wire, write
from onyx.task.table import TABLES, Answer, Kind

RUN: dict[Phase, Callable[[BatchTask], Answer]] = {
    Phase.LOAD_JOB: start.load_job,
    Phase.START_TASK: lambda t: start.start_task(t.runtime, t.status),
    Phase.BUILD: start.build,
    Phase.BEFORE_TASK: lambda t: start.before_task(t.runtime.program, t.status),
    Phase.WIRE: wire.take_wiring,
    Phase.RECOVER: lambda t: recover.recover(t.runtime, t.allocation),
    Phase.SIGNAL_READY: lambda t: signal_ready(t.assignment, t.allocation.wiring.version),
    Phase.AWAIT_READY: lambda t: recover.await_ready(t.runtime, t.allocation, t.status),
    Phase.RESUME: lambda t: recover.resume(t.runtime, t.allocation),
    Phase.BEFORE_BATCH: lambda t: read.before_batch(t.runtime.program),
    Phase.READ_BATCH: read.read_batch,
    Phase.AFTER_READ_BATCH: lambda t: read.after_read_batch(t.runtime.program, t.work),
    Phase.LOOK_UP: lambda t: apply.look_up(t.runtime, t.allocation, t.work),
    Phase.APPLY_FN: lambda t: apply.apply_fn(t.runtime, t.allocation, t.work),
    Phase.AFTER_APPLY_FN: lambda t: apply.after_apply_fn(t.runtime, t.work),
    Phase.ROUTE: lambda t: route.route(t.runtime.program, t.runtime.sink, t.allocation, t.work),
    Phase.ASSIGN_WINDOWS: lambda t: route.assign_windows(t.runtime, t.allocation, t.work),
    Phase.SEND: lambda t: send.send_batch(t.runtime, t.allocation, t.work),
    Phase.WRITE_BATCH: lambda t: write.write_batch(t.runtime, t.allocation, t.work),
    Phase.AFTER_BATCH: finish.after_batch,
    Phase.SEAL: lambda t: finish.seal(t.runtime, t.status, t.sealing),
}
assert RUN.keys() == {
    row.phase for kind in Kind if kind is not Kind.DRIVER for row in TABLES[kind]
}, "every phase of the tables has a function"
