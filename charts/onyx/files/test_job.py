"""Run small jobs through the operator, one after the other, and wait until each has completed: what
`helm test` does.

Usage: python test_job.py JOBS_FILE TIMEOUT_S
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client

from onyx_operator.kube import api_client, cluster_configuration

PLURAL = ("onyx.dev", "v1beta1")
POLL_S = 1.0


def main(jobs_file: str, timeout_s: float) -> int:
    api = client.CustomObjectsApi(api_client(cluster_configuration()))
    deadline_s = time.monotonic() + timeout_s
    jobs = yaml.safe_load_all(Path(jobs_file).read_text())
    return max(run(api, job, deadline_s) for job in jobs)


def run(api: client.CustomObjectsApi, job: dict[str, Any], deadline_s: float) -> int:
    """0 when the job has completed, 1 when it has failed or takes too long."""
    namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
    create(api, job, deadline_s)
    try:
        return wait(api, namespace, name, deadline_s)
    finally:
        api.delete_namespaced_custom_object(*PLURAL, namespace, "onyxjobs", name)


def create(api: client.CustomObjectsApi, job: dict[str, Any], deadline_s: float) -> None:
    """Create the OnyxJob; an operator that has just been started may not serve its webhook yet."""
    while True:
        try:
            api.create_namespaced_custom_object(
                *PLURAL, job["metadata"]["namespace"], "onyxjobs", job
            )
            return
        except client.ApiException as error:
            if (error.status or 0) < 500 or time.monotonic() >= deadline_s:
                raise
            print(f"not accepted yet: {error.reason}", flush=True)
            time.sleep(POLL_S)


def wait(api: client.CustomObjectsApi, namespace: str, name: str, deadline_s: float) -> int:
    """0 when the job has completed, 1 when it has failed or takes too long."""
    shown = ""
    while time.monotonic() < deadline_s:
        found = api.get_namespaced_custom_object(*PLURAL, namespace, "onyxjobs", name)
        status = found.get("status", {})
        phase = status.get("phase", "not seen by the operator")
        line = f"{name}: {phase}: {status.get('message', '')}"
        if line != shown:
            shown = line
            print(line, flush=True)
        holds = {each["type"] for each in status.get("conditions", ()) if each["status"] == "True"}
        if holds & {"Completed", "Failed"}:
            return 0 if "Completed" in holds else 1
        time.sleep(POLL_S)
    print(f"not completed in time; see: kubectl describe oc,oj -n {namespace}")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2])))
