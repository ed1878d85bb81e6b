"""Asks for the state of a window over gRPC, with the certificates of the settings."""

from __future__ import annotations

from typing import Any

from onyx.client.connection import connect
from onyx.client.reader import JobReader
from onyx.client.state_reader import TIMEOUT_S, StateReader
from onyx.client.window_view import EXTENTS_DEFAULT, Question, WindowView
from onyx.ids import JobId
from onyx.settings import Settings
from onyx.tls.files import GROUPS, CertificateFiles
from onyx.transport.grpc_asking import ask
from onyx.transport.state_queries import StateAnswer, StateQuery
from onyx.windows.firing import ALL


def state_reader(client: JobReader, settings: Settings) -> StateReader:
    """A reader that asks over gRPC. Raises SettingsError when the certificates that settings name
    are not good."""
    files = CertificateFiles.named_by(settings.tls, GROUPS, serves=False)

    def dial(address: str, query: StateQuery, timeout_s: float) -> StateAnswer:
        return ask(address, query, settings.transport, files, timeout_s)

    return StateReader(client, settings.tenancy_id, dial)


def window_state(
    settings: Settings,
    job: JobId,
    window: str,
    key: Any = ALL,
    extents_max: int = EXTENTS_DEFAULT,
    timeout_s: float = TIMEOUT_S,
) -> WindowView:
    """What a window, or a function with state, of a running job has gathered until now, asked of
    the peers that have it.

    Args:
        settings: those of a worker: what leads to ZooKeeper, and the certificates of `tls`.
        job: its id.
        window: its id; `task.state` for a state of a function.
        key: of one group, as the task's `groupByKey` or `groupByFn` gives it; all groups without.
        extents_max: the first so many extents, by group and lower bound.
        timeout_s: how long a job that is being re-allocated is waited for.

    Raises:
        UserError: there is no such job or window, the job does not run, the key cannot be one.
        Unavailable: not all peers concerned could answer in time.
    """
    with connect(settings) as client:
        reader = state_reader(client, settings)
        return reader.read(Question(job, window, key, extents_max), timeout_s)
