"""A client that was generated for Go hands orders to a job."""

from __future__ import annotations

import json
import subprocess

import pytest
from tests.support.clients import go_client
from tests.support.jobs.yaml_jobs import channel, manifest, taken, until

from onyx.client.appending import addresses_of
from onyx.testing import with_test_env

pytestmark = pytest.mark.server
GIVING = "tests.support.jobs.request_functions"


def test_a_client_in_another_language_gets_answers_with_values() -> None:
    client = go_client.program()
    target = channel()
    with with_test_env(3, modules=[GIVING]) as env:
        spec = f"""
        ackReturns: {{total: sum}}
        workflow: [[in, price], [price, out]]
        catalog:
          - {{name: in, type: input, plugin: requests}}
          - {{name: price, type: function, fn: "{GIVING}:priced"}}
          - {{name: out, type: output, plugin: channel, options: {{channel: {target.name}}}}}
        """
        job = env.submit(manifest(spec, "in-go"))
        until(env, lambda replica: len(replica.run(job).ready) == 3)
        address = addresses_of(env.client.replica())[0]

        def orders() -> list[dict[str, object]]:
            done = subprocess.run(
                [client, address, "in-go", "in", "first"],
                capture_output=True,
                text=True,
                timeout=60.0,
            )
            assert done.returncode == 0, done.stderr
            return [json.loads(line) for line in done.stdout.splitlines()]

        answers = orders()
        assert {each["status"] for each in answers} == {"APPEND_STATUS_PROCESSED"}
        assert answers[0]["number"] == 1
        assert sorted(each["number"] for each in answers) == [1, 2, 3, 4]
        assert answers[0]["values"] == {"total": "6"}
        assert {json.dumps(each["values"]) for each in answers[1:]} == {'{"total": "6"}'}
        assert orders()[0]["status"] == "APPEND_STATUS_PROCESSED"
    assert sum(1 for row in taken(target) if row["order"] == 1) == 1, "taken once under its id"
