"""Start `onyx run` on a manifest of `jobs/`, changed for the occasion."""

from __future__ import annotations

import contextlib
import copy
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from benchmarks.checkout import python_path

JOBS = Path(__file__).parent / "jobs"
STATE = "state"
"""Folder of the state logs."""
ENVIRONMENT = {"PYTHONPATH": python_path(JOBS, Path(__file__).parent / "contenders")}


def manifest(name: str) -> dict[str, Any]:
    """The manifest of `jobs/NAME`, to be changed."""
    return copy.deepcopy(yaml.safe_load((JOBS / name).read_text()))


def command(
    job: Mapping[str, Any],
    folder: Path,
    modules: Sequence[str],
    processes: int = 1,
    apart: bool = False,
) -> list[str]:
    """The command line that runs a manifest, which is written into `folder`, as its state is.
    `apart`: each process has one peer, so that each of as many tasks has one of its own."""
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(dict(job), sort_keys=False))
    return [
        *("env", f"ONYX_STATE_URL={folder / STATE}", "ONYX_JOB_PATHS=/"),  # data lie anywhere
        *(sys.executable, "-m", "onyx.cli", "run", str(path), "--processes", str(processes)),
        *(("--peers", str(processes)) if apart else ()),
        *(("--modules", ",".join(modules)) if modules else ()),
    ]


def start(
    arguments: Sequence[str], environment: Mapping[str, str] = MappingProxyType({})
) -> subprocess.Popen[str]:
    """Start a command with the functions of the benchmarks; its output is kept for `finish`."""
    return subprocess.Popen(
        arguments,
        env={**os.environ, **ENVIRONMENT, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def size_mib(folder: Path) -> float:
    """Of all files below it; 0 without the folder. Files and folders may go meanwhile."""
    found = 0
    for inner, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                found += Path(inner, name).stat().st_size
    return found / 2**20


def finish(process: subprocess.Popen[str], timeout_s: float) -> str:
    """Wait for its end and return its output.

    Raises:
        RuntimeError: it failed or took longer.
    """
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.terminate()
        output, _ = process.communicate(timeout=60)
        raise RuntimeError(f"not at its end after {timeout_s:.0f} s\n{output[-3000:]}") from None
    if process.returncode:
        raise RuntimeError(f"exit {process.returncode}\n{output[-3000:]}")
    return output
