"""Run small jobs through the operator, one after the other, and wait until each has completed: what
`helm test` does.

Usage: python test_job.py JOBS_FILE TIMEOUT_S
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from onyx.errors import Unavailable
from onyx_operator.api_client import cluster_configuration
from onyx_operator.kube import JOBS, Kube
from onyx_operator.settings import KubeSettings

POLL_S = 1.0


async def main(jobs_file: str, timeout_s: float) -> int:
    deadline_s = time.monotonic() + timeout_s
    jobs = yaml.safe_load_all(Path(jobs_file).read_text())
    with contextlib.closing(Kube(KubeSettings(), cluster_configuration())) as kube:
        return max([await run(kube, job, deadline_s) for job in jobs])


async def run(kube: Kube, job: dict[str, Any], deadline_s: float) -> int:
    """0 when the job has completed, 1 when it has failed or takes too long."""
    namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
    await create(kube, job, deadline_s)
    try:
        return await wait(kube, namespace, name, deadline_s)
    finally:
        await kube.delete(JOBS, namespace, name)


async def create(kube: Kube, job: dict[str, Any], deadline_s: float) -> None:
    """Create the OnyxJob; an operator that has just been started may not serve its webhook yet."""
    while True:
        try:
            await kube.create(JOBS, job)
            return
        except Unavailable as error:
            if time.monotonic() >= deadline_s:
                raise
            print(f"not accepted yet: {error}", flush=True)
            await asyncio.sleep(POLL_S)


async def wait(kube: Kube, namespace: str, name: str, deadline_s: float) -> int:
    """0 when the job has completed, 1 when it has failed or takes too long."""
    shown = ""
    while time.monotonic() < deadline_s:
        found = await kube.get(JOBS, namespace, name)
        status = (found or {}).get("status", {})
        phase = status.get("phase", "not seen by the operator")
        line = f"{name}: {phase}: {status.get('message', '')}"
        if line != shown:
            shown = line
            print(line, flush=True)
        holds = {each["type"] for each in status.get("conditions", ()) if each["status"] == "True"}
        if holds & {"Completed", "Failed"}:
            return 0 if "Completed" in holds else 1
        await asyncio.sleep(POLL_S)
    print(f"not completed in time; see: kubectl describe oc,oj -n {namespace}")
    return 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1], float(sys.argv[2]))))
