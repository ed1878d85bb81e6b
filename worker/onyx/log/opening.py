"""Opens the log that the settings lead to: the one in a folder of this machine if they name a
folder, else the one in ZooKeeper.

Only what is used is imported: without ZooKeeper its client is not loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from onyx.base.on_demand import OnDemand
from onyx.ids import GroupId
from onyx.log.interface import ClientLog, GroupLog
from onyx.settings import Settings

LogFactory = Callable[[GroupId, int | None], GroupLog]
"""Opens the log for an incarnation of a group; the number is the `identity` that was known."""
_LOCAL_CLIENT = OnDemand[Callable[[Settings], ClientLog]]("onyx.log.local.log:LocalClientLog")
_LOCAL_GROUP = OnDemand[Callable[..., GroupLog]]("onyx.log.local.log:LocalGroupLog")
_ZOOKEEPER_CLIENT = OnDemand[Callable[[Settings], ClientLog]](
    "onyx.log.zookeeper.log:ZooKeeperClientLog"
)
_ZOOKEEPER_GROUP = OnDemand[Callable[..., GroupLog]](
    "onyx.log.zookeeper.group_log:ZooKeeperGroupLog"
)
_CERTIFICATES = OnDemand[Callable[..., Any]]("onyx.log.zookeeper.dialler:zookeeper_certificates")


def open_log(settings: Settings) -> ClientLog:
    """The log of a client.

    Raises:
        SettingsError: what leads there is wrong.
        Unavailable: nothing answered.
        OnyxError: the log belongs to somebody else, or was made anew.
    """
    return (_LOCAL_CLIENT if settings.log.folder else _ZOOKEEPER_CLIENT).load()(settings)


def group_logs(settings: Settings) -> LogFactory:
    """What opens the log of each incarnation of a group in this process. Certificates are read
    once: those that were good stay in use when files turn bad, also for the next incarnation.

    Raises:
        SettingsError: a file of certificates is wrong.
    """
    if settings.log.folder:
        return lambda group, identity: _LOCAL_GROUP.load()(settings, group, identity)
    certificates = _CERTIFICATES.load()(settings.zookeeper)
    return lambda group, identity: _ZOOKEEPER_GROUP.load()(settings, group, identity, certificates)


def led_to(settings: Settings, folder: Path) -> Settings:
    """The settings that lead to the log in a folder; state is beside it, unless they say where."""
    where = folder.absolute()
    state = replace(settings.state, url=settings.state.url or str(where / "state"))
    return replace(settings, log=replace(settings.log, folder=str(where)), state=state)
