"""`python -m tests.cluster COMMAND`: see its `--help`, and README.md beside this file."""

from __future__ import annotations

import argparse
import sys

from tests.cluster import cluster
from tests.cluster.binaries import are_built, program, why_impossible
from tests.cluster.commands import ClusterError, daemons
from tests.cluster.engine import build_images
from tests.cluster.layout import KUBECONFIG


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster")
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="bring the cluster up, or finish it")
    up.add_argument("--no-node", action="store_true", help="control plane only")
    commands.add_parser("down", help="take it down without a trace")
    load = commands.add_parser("load", help="copy images into the node")
    load.add_argument("images", nargs="+")
    commands.add_parser("images", help="build the images and copy them into the node")
    commands.add_parser(
        "possible", help="whether there can be a cluster here; fails with the reason"
    )
    commands.add_parser("built", help="whether its programs have been built; fails if not")
    commands.add_parser("status", help="what runs")
    arguments = parser.parse_args()
    try:
        _run(arguments)
    except ClusterError as error:
        print(f"tests.cluster: {error}", file=sys.stderr)
        return 1
    return 0


def _run(arguments: argparse.Namespace) -> None:
    if arguments.command == "up":
        cluster.up(with_node=not arguments.no_node)
        print(f"export KUBECONFIG={KUBECONFIG}")
        print(f"export PATH={program('kubectl').parent}:{program('helm').parent}:$PATH")
    elif arguments.command == "down":
        cluster.down()
    elif arguments.command == "load":
        cluster.load(arguments.images)
    elif arguments.command == "possible":
        if reason := why_impossible():
            raise ClusterError(reason)
    elif arguments.command == "built":
        if not are_built():
            raise ClusterError("programs have to be built")
    elif arguments.command == "images":
        cluster.load(build_images())
    else:
        reason = cluster.why_there_is_no_node()
        print("running:", ", ".join(daemons()) or "nothing")
        print("node:", f"none, {reason}" if reason else "there is one")


if __name__ == "__main__":
    sys.exit(main())
