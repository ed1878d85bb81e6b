"""A job that works off what there is on Spark, and then goes on with peers, counts and all."""

import json
import tempfile
import time
from pathlib import Path

from onyx.api import (
    Settings,
    await_job_completion,
    drain_job,
    shutdown_env,
    shutdown_peer_group,
    start_env,
    start_peer_group,
    start_peers,
    submit_job,
)

CUSTOMERS = ("ann", "bob", "cid")
PATIENCE_S = 120.0


def order(number):
    return {"customer": CUSTOMERS[number % len(CUSTOMERS)]}


def count(order, state):
    state.orders = (state.orders or 0) + 1
    return {**order, "orders": state.orders}


def job(folder, engine, **keys):
    catalog = [
        {"name": "orders", "type": "input", "plugin": "generator",
         "options": {"fn": "engines:order", "ratePerSecond": 100}},
        {"name": "count", "type": "function", "fn": "engines:count", "groupByKey": "customer",
         "fluxPolicy": "continue", "state": {"orders": "value[int]"}},
        {"name": "counted", "type": "output", "plugin": "files",
         "options": {"path": str(folder), "format": "jsonl", "rollSeconds": 1}},
    ]  # fmt: skip
    workflow = [["orders", "count"], ["count", "counted"]]
    spec = {"workflow": workflow, "catalog": catalog, "engine": engine, **keys}
    return {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxJob",
        "metadata": {"name": "orders"},
        "spec": {"guarantee": "exactly-once", **spec},
    }


def wait_for(folder, many):
    """Wait until so many rows are published."""
    ends_s = time.monotonic() + PATIENCE_S
    while len(rows(folder)) < many:
        if time.monotonic() > ends_s:
            raise TimeoutError(f"there are {len(rows(folder))} rows, and not {many}")
        time.sleep(0.2)


def rows(folder):
    lines = [line for part in folder.glob("*.jsonl") for line in part.read_text().splitlines()]
    return [json.loads(line) for line in lines]


def main():
    env = start_env(Settings(modules=("engines",)))
    group = start_peer_group(env.settings)
    try:
        start_peers(3, group)
        with tempfile.TemporaryDirectory(dir=".") as name:
            folder = Path(name)
            first = submit_job(env.settings, job(folder, "spark"))
            wait_for(folder, 100)
            upgrade = {"from": first.job}
            second = submit_job(env.settings, job(folder, "peers", upgrade=upgrade))
            wait_for(folder, len(rows(folder)) + 200)
            drain_job(env.settings, second.job)
            print("completed:", await_job_completion(env.settings, second.job))
            for customer in CUSTOMERS:
                found = sorted(
                    each["orders"] for each in rows(folder) if each["customer"] == customer
                )
                print(customer, "without a gap:", found == list(range(1, len(found) + 1)))
    finally:
        shutdown_peer_group(group)
        shutdown_env(env)


if __name__ == "__main__":
    main()
