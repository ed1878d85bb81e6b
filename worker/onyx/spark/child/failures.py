"""What fails when a run of a stage ends with an exception: the stage, or Spark below it."""

from __future__ import annotations

import contextlib
from typing import Any

from onyx.errors import Fenced, OnyxError, Unavailable, UserFunctionError
from onyx.spark.child.protocol import StageFailure
from onyx.spark.objects.carried import carried_in
from onyx.spark.session.blame import blame, message_of_spark, shortened
from onyx.spark.session.connect import doubt, is_lost
from onyx.spark.session.kept import Sessions, StaleSession
from onyx.spark.session.masters import is_connect


def failure_of(error: Exception, session: Any, sessions: Sessions, master: str) -> Exception:
    """The error of a stage, or of the JVM or server that ran it. A session whose server is gone is
    not closed, which would wait for that; the process ends in a moment anyway."""
    cause = error.__cause__ if isinstance(error, UserFunctionError | Unavailable) else error
    if (of_store := carried_in(cause or error)) is not None:
        return _closed(sessions, of_store)
    if not is_connect(master):
        if isinstance(error, Fenced | StaleSession) or not (died := sessions.how_ended()):
            return _closed(sessions, error)
        said = message_of_spark(cause or error).partition("\n")[0]
        return Unavailable(
            f"the JVM of Spark {died} while the stage ran; `spark.driver.memory` gives it "
            f"more memory ({type(cause or error).__name__}: {said})"
        )
    if cause is not None and is_lost(cause):
        return Unavailable(
            f"the Spark Connect server at {master} was lost while the stage ran: "
            f"{message_of_spark(cause).splitlines()[0]}"
        )
    remark = doubt(session)
    if remark and isinstance(error, OnyxError):
        error = type(error)(f"{error} ({remark})")
    return _closed(sessions, error)


def _closed(sessions: Sessions, error: Exception) -> Exception:
    """What failed first is the error, even if the session cannot be closed any more."""
    with contextlib.suppress(Exception):
        sessions.close()
    return error


def said_of(error: Exception) -> StageFailure:
    """What the child says of a run that has failed."""
    if isinstance(error, StaleSession):
        return StageFailure(shortened(str(error)), by_user=False, stale=True)
    found = blame(error)
    return StageFailure(shortened(found.message), found.by_user, away=found.away)
