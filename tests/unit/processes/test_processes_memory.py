"""A worker keeps memory that it has freed. A new page of the system is a fault of the process."""

import os
import resource
import subprocess
import sys

import pytest

from onyx.processes.child import worker_environment
from onyx.processes.worker_process import SYSTEM_FROM_BYTES
from onyx.settings import Settings

PROGRAM = """
import resource, sys
from onyx.processes.worker_process import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
def frames():
    first = b"1" * int(sys.argv[2])
    second = b"2" * int(sys.argv[2])
frames()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    frames()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
FRAME_BYTES = 490_000
PAGES = 50 * 2 * FRAME_BYTES // resource.getpagesize()
"""Of 50 times two frames."""


def faults(how: str, size: int = FRAME_BYTES, **environment: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how, str(size)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout)


pytestmark = pytest.mark.server

glibc = pytest.mark.skipif("glibc" not in os.confstr("CS_GNU_LIBC_VERSION"), reason="its allocator")


@glibc
def test_pages_of_a_batch_are_used_again_for_the_next():
    assert faults("kept") < PAGES // 10


@glibc
def test_what_the_user_has_set_holds():
    assert faults("kept", MALLOC_MMAP_THRESHOLD_="4096", MALLOC_TRIM_THRESHOLD_="4096") > PAGES // 2


@glibc
def test_large_blocks_are_returned_at_once():
    assert faults("kept", 2 * SYSTEM_FROM_BYTES) > PAGES


@glibc
def test_columns_take_what_everybody_has_freed():
    program = "import pyarrow; print(pyarrow.default_memory_pool().backend_name)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=dict(worker_environment(Settings())),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "system"
