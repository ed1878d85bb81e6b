"""What the log says to one incarnation, as events for its group. On the thread of the log."""

from __future__ import annotations

from onyx.log.interface import Origin, Session
from onyx.peer.events import EntryRead, OriginRead, SessionChanged
from onyx.peer.life import Life
from onyx.replica import canonical
from onyx.replica.entry import Entry
from onyx.replica.state import Replica
from onyx.telemetry.catalog import LOG_TAIL, SESSION_LOSSES


class LogFeed:
    """The callbacks of the log, and the replica at which it begins."""

    def __init__(self, life: Life) -> None:
        self._life = life

    def replica_at(self, origin: Origin) -> Replica:
        """The replica from which this incarnation reads on."""
        if origin.replica:
            return canonical.decode(origin.replica)
        settings = self._life.context.settings
        parameters = self._life.log.establish({"job-scheduler": settings.job_scheduler})
        return Replica(job_scheduler=parameters["job-scheduler"])

    def read(self, item: Entry | Origin) -> None:
        """The next entry, or an origin that stands for entries that are gone."""
        self._life.context.metrics.set(LOG_TAIL, item.position)
        if isinstance(item, Origin):
            self._life.events.post(OriginRead(item.position, canonical.decode(item.replica)))
        else:
            self._life.events.post(EntryRead(item))

    def session_changed(self, session: Session) -> None:
        """The session was suspended, came back, or is lost."""
        if session is Session.LOST:
            # Here and not in `group.step`: tasks must not act until the event has been handled.
            self._life.lease.end()
            self._life.context.metrics.add(SESSION_LOSSES)
        self._life.events.post(SessionChanged(session))
