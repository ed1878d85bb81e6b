"""Nothing is left in the temporary folder, however a program with a log of its own ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.patience import WAIT_S

pytestmark = pytest.mark.server

ENDS = {
    "with_test_env": "with with_test_env(1): pass",
    "start_env": "env = api.start_env(); api.shutdown_env(env); print(os.listdir(folder))",
    "start_env alone": "api.start_env(api.Settings())",
    "Ctrl-C": "with with_test_env(1): os.kill(os.getpid(), signal.SIGINT); time.sleep(60)",
    "SIGTERM": "with with_test_env(1): os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)",
}
PROGRAM = """\
import os, signal, sys, time
from onyx import api
from onyx.testing import with_test_env

folder = sys.argv[1]
"""


@pytest.mark.parametrize("end", ENDS)
def test_a_program_leaves_no_temporary_folder(tmp_path: Path, end: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + ENDS[end], str(tmp_path)],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    interrupted = end in ("Ctrl-C", "SIGTERM")
    assert done.returncode in ((-signal.SIGINT, 130) if interrupted else (0,)), done.stderr
    assert done.stdout in ("", "[]\n")
    assert list(tmp_path.iterdir()) == []
