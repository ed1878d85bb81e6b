"""Runs a stage in a Spark child and waits for it, no longer than allowed.

A run that is not wanted any more is cancelled: Spark ends its jobs, and the child stays warm. If it
does not obey in time, because the stage hangs in Python or the JVM is stuck, it is killed.
"""

from __future__ import annotations

import time

from onyx.errors import Fenced, OnyxError, Unavailable, UserFunctionError
from onyx.spark.child.keeper import KEEPER, POLL_INTERVAL_S, Keeper, Loan
from onyx.spark.child.process import Child, ChildDied
from onyx.spark.child.protocol import Cancel, Ended, Go, Progressed, StageFailure, Writing
from onyx.spark.child.request import StageRequest, Watch
from onyx.spark.session.blame import Blame

OBEY_S = 5.0
"""How long a child has to end a run that was cancelled."""


def run_in_child(
    request: StageRequest, timeout_s: float, watch: Watch, keeper: Keeper = KEEPER
) -> None:
    """Runs a stage to its end: `runner.run_in_child` in production."""
    failure, fresh = _run(keeper, request, timeout_s, watch)
    if failure is not None and failure.stale and not fresh:
        failure, _ = _run(keeper, request, timeout_s, watch)
    if failure is not None:
        raise Blame(failure.message, failure.by_user, failure.away).error()


def _run(
    keeper: Keeper, request: StageRequest, timeout_s: float, watch: Watch
) -> tuple[StageFailure | None, bool]:
    """How it failed, if it did, and whether the child was a new one."""
    with keeper.lent(request, watch.wanted) as loan:
        fresh = loan.child.fresh
        try:
            failure = _converse(loan, request, timeout_s, watch).failure
        except ChildDied as error:
            raise Unavailable(f"the process of stage {request.stage} {error}") from error
        loan.keep = failure is None
        return failure, fresh


def _converse(loan: Loan, request: StageRequest, timeout_s: float, watch: Watch) -> Ended:
    """Begin the run and wait for its end, looking up now and then."""
    child = loan.child
    number = child.run(request)
    until_s = time.monotonic() + timeout_s
    while True:
        reply = child.reply(POLL_INTERVAL_S)
        if isinstance(reply, Ended) and reply.number == number:
            return reply
        if isinstance(reply, Writing):
            _permit(loan, number, watch)
        if isinstance(reply, Progressed):
            watch.seen(reply.progress)
        if (error := _must_end(until_s, timeout_s, watch)) is not None:
            loan.keep = _cancelled(child, number)
            raise error


def _permit(loan: Loan, number: int, watch: Watch) -> None:
    try:
        watch.begin_write()
    except OnyxError:
        loan.keep = _cancelled(loan.child, number)
        raise
    loan.child.send(Go(number))


def _must_end(until_s: float, timeout_s: float, watch: Watch) -> OnyxError | None:
    if not watch.wanted():
        return Fenced("this worker was declared dead, or its task stopped, while its stage ran")
    if time.monotonic() >= until_s:
        return UserFunctionError(
            f"the stage did not end within {timeout_s:g} s; raise `stageTimeout` if it needs longer"
        )
    return None


def _cancelled(child: Child, number: int) -> bool:
    """Cancel a run; whether the child has obeyed."""
    child.send(Cancel(number))
    until_s = time.monotonic() + OBEY_S
    try:
        while (left_s := until_s - time.monotonic()) > 0:
            reply = child.reply(left_s)
            if isinstance(reply, Ended) and reply.number == number:
                return True
    except Unavailable:
        pass
    return False
