"""How gRPC is told to wait for messages: names that it does not know would have no effect."""

import os
import subprocess
import sys

PROGRAM = """
import os
import onyx.transport.grpc_channel
from concurrent import futures
import grpc
grpc.server(futures.ThreadPoolExecutor(1)).stop(None)
print(os.environ["GRPC_EXPERIMENTS"])
"""


def started(**environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name != "GRPC_EXPERIMENTS"}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**inherited, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        check=True,
    )


def test_grpc_knows_what_the_transport_switches_off():
    done = started()
    assert "event_engine" in done.stdout
    assert "Unknown experiment" not in done.stderr


def test_grpc_warns_of_a_name_that_it_does_not_know():
    """Otherwise the test above could not fail."""
    assert "Unknown experiment" in started(GRPC_EXPERIMENTS="no_such_name").stderr


def test_what_the_user_has_set_holds():
    assert started(GRPC_EXPERIMENTS="-event_engine_dns").stdout.strip() == "-event_engine_dns"
