"""`onyx replay`: the batch at which a job has failed, once more on this machine."""

from __future__ import annotations

import pdb
import sys
from bdb import BdbQuit
from pathlib import Path
from typing import Annotated

from onyx.base.on_demand import ModuleOnDemand
from onyx.bundle.bundle_file import read
from onyx.cli.command_line import Argument, Option
from onyx.cli.options import ModulesOption
from onyx.client import failure_text
from onyx.errors import PoisonSegment, SettingsError
from onyx.processes.surroundings import import_from, settings
from onyx.replica.authors import escaped
from onyx.user_code.resolve import Resolver

replaying = ModuleOnDemand("onyx.bundle.replay")
alone = ModuleOnDemand("onyx.bundle.alone")
functions = ModuleOnDemand("onyx.cli.functions")
MODULES_SHOWN_MAX, NAMES_CHARACTERS_MAX = 1_000, 500


def replay(
    file: Annotated[Path, Argument("File that `onyx bundle JOB --values` has written.")],
    modules: ModulesOption = None,
    debug: Annotated[
        bool, Option("--debug", "Enter the debugger where the exception is raised.")
    ] = False,
) -> None:
    """Run the batch at which a job has failed through its task once more, in this process.

    Prints the exception as it was and as it is now. Ends with 0 when the batch passes now, and with
    1 when it fails. Functions are looked up in the listed modules alone, which are looked for in
    the current folder too: a bundle is data from somebody else.
    """
    bundle = read(file)
    failed = replaying.failed_task(bundle)
    found = settings(modules=modules)
    if not found.modules:
        named = ",".join(functions.named_modules(failed.job))[:MODULES_SHOWN_MAX]
        raise SettingsError(
            "say with --modules (or ONYX_MODULES) which modules the job may name here; it names "
            f"{ascii(named)[1:-1] or 'none'}"
        )
    import_from(Path())
    task, batch = failed.entry.name, failed.batch
    named = escaped(f"job {failed.id}, task {task}", NAMES_CHARACTERS_MAX)
    print(f"{named}: {batch.count} of the {batch.of} segments of its batch")
    if failed.has_state:
        print("its state begins empty here: what depends on older segments differs")
    print(f"then: {failure_text.whole(failed.report)}", flush=True)
    if failed.report.get("type") == PoisonSegment.__name__:
        print("this segment has ended worker processes; it may end this one", flush=True)
    resolver = Resolver(found.modules)
    failure = replaying.replay(failed, resolver.resolve, found.fn_params.get(task, ()))
    if failure is None:
        print("now: none, it passes")
        return
    if isinstance(failure.error, BdbQuit):
        sys.exit(1)
    now = replaying.said_now(failed, failure)
    same = replaying.is_same(failed.report, now)
    print(f"now: {'the same' if same else 'another'}: {failure_text.whole(now)}", flush=True)
    if debug:
        pdb.post_mortem(alone.raised(failure.error).__traceback__)
    sys.exit(1)
