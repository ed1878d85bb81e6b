"""Attack what strangers reach: `python -m tests.fuzz --seconds 600`, or `--target http --case 7`.

Each case follows from its number, so that whatever is found is found again. Each target runs in a
process of its own: one that dies, hangs or takes more memory than is documented is a find too.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from tests.fuzz.targets import TARGETS

HANGS_S = 120.0
"""A case that takes so long hangs, also on a machine that is busy."""


def attack(target: str, cases: Iterable[int], ends_s: float, note: Path | None = None) -> int:
    """How many cases were tried; raises what the target raises that it may not."""
    one, tried = TARGETS[target].make(), 0
    one(Random(0))
    before = _memory_bytes()
    for case in cases:
        if time.monotonic() >= ends_s:
            break
        if note is not None:
            note.write_text(str(case))
        try:
            one(Random(case))
        except BaseException:
            print(f"found by: python -m tests.fuzz --target {target} --case {case}", flush=True)
            raise
        tried += 1
    grown = _memory_bytes() - before
    assert grown <= TARGETS[target].memory_bytes, f"{target}: took {grown:,} bytes at once"
    return tried


def _memory_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _watched(target: str, seconds: float, first: int) -> bool:
    """Whether a process that attacks ends well."""
    with TemporaryDirectory(prefix="onyx-fuzz-") as folder:
        note = Path(folder, "case")
        note.write_text(str(first))
        words = ["--target", target, "--seconds", str(seconds), "--first", str(first)]
        command = [sys.executable, "-m", "tests.fuzz", *words, "--note", str(note)]
        child = subprocess.Popen(command)
        while child.poll() is None:
            time.sleep(0.5)
            if time.time() - os.stat(note).st_mtime > HANGS_S:
                child.kill()
                print(f"{target}: case {note.read_text()} hangs")
        if child.returncode:
            print(f"{target}: ended with {child.returncode} at case {note.read_text()}")
        return child.returncode == 0


def main() -> int:
    """Run as the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="of all targets together")
    parser.add_argument("--target", choices=TARGETS)
    parser.add_argument("--case", type=int, help="only this one")
    parser.add_argument("--first", type=int, default=int(time.time()) * 1_000_000)
    parser.add_argument("--note", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.target is None:
        share = given.seconds / len(TARGETS)
        good = [_watched(each, share, given.first) for each in TARGETS]
        return 0 if all(good) else 1
    cases = count(given.first) if given.case is None else [given.case]
    tried = attack(given.target, cases, time.monotonic() + given.seconds, given.note)
    print(f"{given.target}: {tried:,} cases, nothing found", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
