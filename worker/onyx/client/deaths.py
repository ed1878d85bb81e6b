"""The reports of supervisors how worker processes have died: one document a machine or pod."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from onyx.base.path_names import is_path_name
from onyx.base.structs import UNREADABLE
from onyx.ids import JobId
from onyx.log import documents
from onyx.log.interface import LogReader
from onyx.reports.deaths import SHOWN_S, Death, concerning, sentence

KEPT_MAX = 16
"""Deaths in one report, the newest."""
READ_MAX = 64
"""Reports that are read at a time."""
OUTDATED_S = 86_400.0
"""Reports that are older are removed by whoever writes one."""
_WRITES_MAX = 5
_DECODER = msgspec.json.Decoder(tuple[Death, ...])


def read_deaths(log: LogReader) -> list[Death]:
    """What supervisors have reported.

    Raises:
        Unavailable: the log cannot be reached.
    """
    found: list[Death] = []
    for host in log.list_documents(documents.DEATHS)[:READ_MAX]:
        found += _read(log, host)[0]
    return found


def words_of(deaths: Sequence[Death], job: JobId, now_ms: int) -> str:
    """The deaths of the last minutes that may have to do with a job; empty if there are none."""
    return sentence(concerning(deaths, job, now_ms), job)


def report_death(log: LogReader, death: Death) -> None:
    """Add one to the report of its machine.

    Raises:
        Unavailable: the log cannot be reached.
    """
    host = death.host if is_path_name(death.host) else "unnamed"
    _remove_outdated(log, death.at_ms)
    for _ in range(_WRITES_MAX):
        before, version = _read(log, host)
        deaths = (*before, death)[-KEPT_MAX:]
        data = msgspec.json.encode(deaths)
        if log.put_document(documents.deaths(host), data, version) is not None:
            return


def _remove_outdated(log: LogReader, now_ms: int) -> None:
    for host in log.list_documents(documents.DEATHS)[:READ_MAX]:
        last_ms = max((each.at_ms for each in _read(log, host)[0]), default=0)
        if now_ms - last_ms > OUTDATED_S * 1000:
            log.delete_documents(documents.deaths(host))


def _read(log: LogReader, host: str) -> tuple[tuple[Death, ...], int | None]:
    document = log.get_document(documents.deaths(host))
    if document is None:
        return (), None
    try:
        return _DECODER.decode(document.data), document.version
    except UNREADABLE:  # of another version of Onyx
        return (), document.version


assert SHOWN_S < OUTDATED_S
