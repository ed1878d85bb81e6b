"""The end of a process, without the tenth of a second in which Python frees what it has imported.

To free each object takes a command longer than to import it from a warm disk, and in a fork it
copies all memory that is shared. So what is said at the end is said, and the system does the rest.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

from onyx.processes.exit_codes import ExitCode


def run_to_the_end(program: Callable[[], None]) -> NoReturn:
    """Run a program, and end this process with the code that Python would end it with, after its
    threads, its hooks for the end, and what it has written."""
    code = 0
    try:
        program()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
    except BaseException:
        code = ExitCode.FAILURE
        sys.excepthook(*sys.exc_info())
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            try:
                stream.flush()
            except OSError:  # whoever reads it has gone
                code = code or ExitCode.FAILURE
    os._exit(code & 0xFF)
