"""Which servers of an ensemble may vote, by what their folders hold."""

from __future__ import annotations

from itertools import product

import pytest

from onyx.log.server.member import Holds, Join, Unknown, Vote, Wait, decide

SAID = {"-": Holds.NOTHING, "1": Holds.ALONE, "3": Holds.SHARED, "?": Unknown("does not answer")}


def decisions(said: str) -> list[type]:
    """What each server decides that has to ask: those with nothing or data of their own."""
    answers = {id: SAID[each] for id, each in enumerate(said, start=1)}
    return [type(decide(id, answers)) for id, each in enumerate(said, start=1) if each in "-1"]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("---", [Vote, Vote, Vote]),
        ("--?", [Wait, Wait]),
        ("?--", [Wait, Wait]),
        ("3--", [Join, Join]),
        ("33-", [Join]),
        ("3-?", [Join]),
        ("1--", [Vote, Vote, Join]),
        ("-1-", [Vote, Vote, Join]),
        ("--1", [Vote, Join, Vote]),
        ("1-?", [Wait, Wait]),
        ("11-", [Wait, Wait, Wait]),
        ("13-", [Wait, Join]),
        ("133", [Wait]),
        ("1----", [Vote, Vote, Vote, Join, Join]),
        ("333--", [Join, Join]),
    ],
)
def test_who_votes_joins_and_waits(said: str, expected: list[type]) -> None:
    assert decisions(said) == expected


@pytest.mark.parametrize("servers", [3, 5])
def test_no_majority_of_empty_servers_ever_forms_beside_data(servers: int) -> None:
    """Whatever the servers say, and even if each heard it at another time."""
    for said in map("".join, product("-13?", repeat=servers)):
        voting = set()
        for heard in said, *(said[:n] + "?" + said[n + 1 :] for n in range(servers)):
            answers = {id: SAID[each] for id, each in enumerate(heard, start=1)}
            for id, each in enumerate(said, start=1):
                if each == "-" and answers[id] is Holds.NOTHING:
                    voting |= {id} if isinstance(decide(id, answers), Vote) else set()
        if "1" in said or "3" in said:
            assert len(voting) <= servers // 2, said


def test_somebody_who_waits_says_for_what() -> None:
    missing = decide(2, {1: Unknown("zk-0:4888 does not answer"), 2: Holds.NOTHING})
    assert isinstance(missing, Wait)
    assert "(server 1: zk-0:4888 does not answer)" in missing.reason
    conflict = decide(1, {1: Holds.ALONE, 2: Holds.ALONE, 3: Holds.NOTHING})
    assert isinstance(conflict, Wait)
    assert "servers 1, 2 hold data of different ensembles" in conflict.reason
