"""Which certificates belong to a worker: those that carry the name of all workers."""

from __future__ import annotations

import pytest

from onyx.transport.grpc_channel import carries

WANTED = "onyx-worker.onyx.svc"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["onyx-worker.onyx.svc"], True),
        (["other", "Onyx-Worker.onyx.SVC"], True),
        (["*.onyx.svc"], True),
        (["*.svc"], False),
        (["*"], False),
        (["onyx-worker.onyx.svc.evil"], False),
        (["x.onyx-worker.onyx.svc"], False),
        ([], False),
    ],
)
def test_a_name_is_carried_as_a_servers_certificate_carries_it(names, expected):
    assert carries(names, WANTED) is expected


def test_a_name_of_one_part_has_no_wildcard():
    assert not carries(["*."], "workers")
    assert carries(["workers"], "workers")
