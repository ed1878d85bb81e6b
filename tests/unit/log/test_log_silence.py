"""When a server counts as silent, by looks at one session of 16 s: it gets 8 s."""

from __future__ import annotations

import pytest

from onyx.log.zookeeper.lost_servers import Judgement, Look, ServerSilence, step

NONE, SILENT, OVER = Judgement.NONE, Judgement.SILENT, Judgement.OVER


def judged(looks: list[tuple[float, float, bool]]) -> list[Judgement]:
    """What is judged of looks: when, when an answered request was last sent, connected or not."""
    state, found = ServerSilence(0.0, 0.0), []
    for now_s, confirmed_s, connected in looks:
        state, judgement = step(state, Look(now_s, confirmed_s, 16.0, connected))
        found.append(judgement)
    return found


def every_half_second(until_s: float, confirmed_s: float) -> list[tuple[float, float, bool]]:
    return [(half / 2, confirmed_s, True) for half in range(1, int(until_s * 2) + 1)]


def test_a_server_that_answers_is_never_silent() -> None:
    looks = [(second / 2, second / 2 - 7.5, True) for second in range(1, 100)]
    assert set(judged(looks)) == {NONE}


def test_the_connection_is_given_up_after_half_of_the_session_and_not_before() -> None:
    found = judged(every_half_second(8.0, confirmed_s=0.0))
    assert found == [*[NONE] * 15, SILENT]


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        ([(8.5, 0.0, False), (9.0, 0.0, False)], [NONE, NONE]),
        ([(8.5, 8.4, True)], [OVER]),
        ([(8.5, 0.0, True)], [SILENT]),
        ([(8.5, 8.4, True), (9.0, 8.4, True)], [OVER, NONE]),
    ],
    ids=["dials again", "answers", "silent on the next connection too", "reported once"],
)
def test_what_follows_a_silence(
    looks: list[tuple[float, float, bool]], expected: list[Judgement]
) -> None:
    assert judged([*every_half_second(8.0, 0.0), *looks])[16:] == expected


def test_a_process_that_did_not_run_reads_what_has_come_before_it_judges() -> None:
    stopped = [(0.5, 0.4, True), (20.0, 0.4, True), (20.5, 0.4, True)]
    assert judged([*stopped, (21.0, 20.1, True)]) == [NONE] * 4
    assert judged([*stopped, (22.0, 0.4, True), (23.0, 0.4, True)])[3:] == [NONE, SILENT]
