"""The log of a cluster on this machine, for the time of a block.

Apart from `local_run`, because `onyx run` begins with it, before it imports the rest of itself and
checks the job: what forks the workers imports meanwhile. It is begun before the log is served: no
process is forked that has threads.

The log goes with it, unless a folder is named: then it stays there for `onyx console`, and for the
next run, which goes on in it.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Annotated

from onyx.cli.command_line import Option
from onyx.cli.options import LogPlace
from onyx.errors import SettingsError, UserError
from onyx.log.local.server import LocalLogServer
from onyx.log.local.store import ENDING
from onyx.log.opening import led_to
from onyx.processes.child import worker_launcher
from onyx.processes.forking import Launcher
from onyx.processes.surroundings import settings
from onyx.settings import Settings

TENANCY = "run"
"""What runs here has a log of its own, and this name in it."""


@contextmanager
def local_log(
    found: Settings, keep: Path | None = None, shared: Sequence[str] | None = None
) -> Iterator[tuple[Settings, Launcher]]:
    """A log in a folder of its own, both gone at the end: what leads to it, and what starts workers
    that use it.

    Args:
        found: what else holds.
        keep: where it stays; nowhere, if None.
        shared: as of `Launcher`.

    Raises:
        SettingsError: the folder is in use, or cannot be made.
    """
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="onyx-run-")) if keep is None else keep
        if keep is None:
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        led = led_to(found, folder)
        launcher = stack.enter_context(closing(worker_launcher(led, shared)))
        stack.enter_context(LocalLogServer(folder, keep is not None, alone=True))
        yield led, launcher


def check_kept(folder: Path, tenancy: str) -> None:
    """Raises:
    UserError: no log is kept there.
    """
    if not (folder / f"{tenancy}{ENDING}").is_file():
        raise UserError(
            f"{folder} has no log of {tenancy}: `onyx run --keep {folder}` leaves one there when "
            "it runs a job"
        )


class KeptPlace(LogPlace, frozen=True):
    """Where a log to look into is: of a cluster, or one that is kept in a folder."""

    kept: Annotated[
        Path | None,
        Option("--kept", "Folder where `onyx run --keep` has left a log.", metavar="FOLDER"),
    ] = None

    @contextmanager
    def opened(self) -> Iterator[Settings]:
        """The settings that lead there; a log that is kept is served in the block.

        Raises:
            UserError: nothing is kept there.
            SettingsError: the folder is in use, or somebody wants both.
        """
        kept = self.kept
        if kept is None:
            yield self.to_read()
            return
        if self.zookeeper is not None or self.log_folder is not None:
            raise SettingsError(
                "give --kept, --log or --zookeeper: a kept log is served by this command"
            )
        found = settings(tenancy=self.tenancy or TENANCY)
        check_kept(kept, found.tenancy_id)
        with LocalLogServer(kept, alone=True):
            yield led_to(found, kept)
