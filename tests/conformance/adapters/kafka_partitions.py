"""Cases about which partitions of a topic a peer reads: those of any input."""

from __future__ import annotations

from typing import Any

from onyx.replica.jobs import partitions_of, rank_of


def check(case: dict[str, Any], document: dict[str, Any]) -> str | None:
    partitions, peers = case["n_partitions"], case["n_peers"]
    if wrong := _properties(document, partitions, peers):
        return wrong
    if "expected_error" in case:
        return "expected an error: peers without a partition read nothing"
    mine = partitions_of(case["slot"], partitions, peers)
    got = [mine.start, mine.stop - 1]
    return None if got == case["expected"] else f"expected {case['expected']}, got {got}"


def _properties(document: dict[str, Any], partitions: int, peers: int) -> str | None:
    """What is wrong with what all peers get, as the file says it of all slots."""
    known = {each["id"] for each in document["properties"]}
    if known != {"coverage", "contiguous"}:
        return f"properties {known} are not looked at"
    dealt = [partitions_of(rank, partitions, peers) for rank in range(peers)]
    if [number for each in dealt for number in each] != list(range(partitions)):
        return "the peers have not every partition once, in order"
    owners = [rank_of(number, partitions, peers) for number in range(partitions)]
    if owners != [rank for rank, each in enumerate(dealt) for _ in each]:
        return "who asks for the peer of a partition gets another one"
    return None
