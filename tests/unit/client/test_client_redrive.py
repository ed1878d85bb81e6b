"""Dead letters go in again, each once, whatever ends in the middle."""

from __future__ import annotations

import errno
import gzip
import itertools
import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.clocks import ManualClock
from tests.support.failing_files import failing_files
from tests.support.jobs.redrive_cluster import TARGET, Died, FakeCluster, letter

from onyx.client.appender import NotTaken
from onyx.client.redrive.letters import LetterChoice, LetterFolder, WrittenLetter, moment_ms
from onyx.client.redrive.marks import Claim, Known, RedriveMarks, packed
from onyx.client.redrive.redrive import Limits, Redrive, RedriveSummary, Target
from onyx.errors import OnyxError, StateError, Unavailable, UserError
from onyx.flow.dead_letters import dead_letter, described
from onyx.flow.segment import UndecodedRecord
from onyx.ledger.outcomes import Outcomes
from onyx.requests.request import Answer, Commit, Status


def lines(letters: Sequence[Any]) -> bytes:
    encoded = (each if isinstance(each, bytes) else msgspec.json.encode(each) for each in letters)
    return b"".join(each + b"\n" for each in encoded)


_parts = itertools.count()


def write(folder: Path, *letters: Any) -> Path:
    folder.mkdir(exist_ok=True)
    part = folder / f"part-{next(_parts):06d}.jsonl"
    part.write_bytes(lines(letters))
    return part


def redrive(folder: Path, limits: Limits = Limits(), **choice: Any) -> Redrive:  # noqa: B008
    place = LetterFolder(str(folder))
    chosen = LetterChoice(choice.pop("task", "work"), **choice)
    return Redrive(place, RedriveMarks(place.at), chosen, limits, TARGET, ManualClock(), "ann")


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    write(tmp_path / "bad", *map(letter, range(4)))
    write(tmp_path / "bad", *map(letter, range(4, 6)))
    return tmp_path / "bad"


# --- each once -----------------------------------------------------------------------------------


def test_all_letters_of_a_task_go_in_once(bad: Path) -> None:
    cluster = FakeCluster()
    summary = redrive(bad).run(cluster)
    assert cluster.numbers == [0, 1, 2, 3, 4, 5]
    assert (summary.redriven, summary.letters, summary.parts) == (6, 6, 2)
    assert summary.errors == {"ValueError (shop.py, line 3)": 6}
    again = redrive(bad).run(cluster)
    assert (again.redriven, again.left) == (0, {"redriven before": 6})
    assert cluster.numbers == [0, 1, 2, 3, 4, 5]


def test_records_that_were_never_segments_go_in_only_where_somebody_names_the_input(
    tmp_path: Path,
) -> None:
    error = described(UndecodedRecord("no JSON"), "")
    record = dead_letter("old", "work", {"_error": "no", "_raw": "{"}, error, 1, 0, "1")
    folder, cluster = write(tmp_path / "bad", letter(0), record).parent, FakeCluster()
    summary = redrive(folder).run(cluster)
    assert summary.redriven == 1
    assert [why[:35] for why in summary.left] == ["of records that were never segments"]
    assert redrive(folder, undecoded=True).run(cluster).redriven == 1


@pytest.mark.parametrize("call", range(1, 9))
def test_who_dies_in_the_middle_is_followed_by_whoever_comes_next(bad: Path, call: int) -> None:
    cluster = FakeCluster()
    cluster.dies = call.__eq__
    try:
        redrive(bad, Limits(first=4)).run(cluster)
        redrive(bad).run(cluster)
    except Died:
        pass
    redrive(bad).run(cluster)
    assert cluster.numbers == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("turn", range(5))
def test_a_part_that_cannot_be_read_is_said_and_nothing_goes_in_twice(bad: Path, turn: int) -> None:
    cluster = FakeCluster()
    with failing_files([n == turn for n in range(5)]), pytest.raises(Unavailable, match="part-"):
        redrive(bad).run(cluster)
    redrive(bad).run(cluster)
    assert cluster.numbers == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("turn", range(4))
def test_a_full_disk_is_said_and_nothing_goes_in_twice(
    bad: Path, turn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, turns, real = FakeCluster(), itertools.count(), os.fsync

    def full(descriptor: int) -> None:
        if next(turns) == turn:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OnyxError, match="No space left"):
        redrive(bad).run(cluster)
    redrive(bad).run(cluster)
    assert cluster.numbers == [0, 1, 2, 3, 4, 5]


def test_a_claim_that_nobody_has_held_is_finished_from_its_letters(bad: Path) -> None:
    cluster = FakeCluster()
    cluster.dies = (1).__eq__
    with pytest.raises(Died):
        redrive(bad, Limits(first=3)).run(cluster)
    write(bad, letter(6))
    summary = redrive(bad, ids=frozenset({"id-6"})).run(cluster)
    assert (summary.finished, summary.finished_by, summary.redriven) == (3, ["ann"], 1)
    assert cluster.numbers == [0, 1, 2, 6]


def test_two_at_once_share_the_letters(bad: Path) -> None:
    cluster, other = FakeCluster(), FakeCluster()
    other.taken, other.held = cluster.taken, cluster.held
    first = redrive(bad)

    def meanwhile() -> None:
        cluster.before = lambda: None
        redrive(bad, error="odd 1").run(other)

    claim = first._claim

    def late(fresh: Any) -> Claim:  # between looking and claiming, somebody else claims
        if cluster.before != meanwhile and not cluster.taken:
            meanwhile()
        return claim(fresh)

    first._claim = late  # type: ignore[method-assign]
    summary = first.run(cluster)
    assert cluster.numbers == [0, 1, 2, 3, 4, 5]
    assert (summary.redriven, summary.left) == (5, {"redriven before": 1})


def test_a_letter_that_lies_in_two_parts_is_one(bad: Path) -> None:
    write(bad, letter(1), letter(1))
    cluster = FakeCluster()
    redrive(bad).run(cluster)
    assert cluster.numbers == [0, 1, 2, 3, 4, 5]


def test_letters_without_an_id_are_as_many_as_their_places(tmp_path: Path) -> None:
    write(tmp_path / "bad", letter(1, id=""), letter(1, id=""))
    cluster = FakeCluster()
    assert redrive(tmp_path / "bad").run(cluster).redriven == 2
    assert redrive(tmp_path / "bad").run(cluster).redriven == 0
    assert cluster.numbers == [1, 1]


def test_a_claim_for_a_job_that_is_not_this_one_is_said_and_its_letters_stay(bad: Path) -> None:
    cluster, elsewhere = FakeCluster(), redrive(bad, Limits(first=2))
    elsewhere._target = Target("job-9", "again", frozenset({"job-9"}))
    cluster.dies = (1).__eq__
    with pytest.raises(Died):
        elsewhere.run(cluster)
    summary = redrive(bad).run(cluster)
    assert (summary.open, summary.redriven) == (2, 4)
    assert "job-9" in summary.open_why
    assert redrive(bad, Limits(again=True), ids=frozenset({"id-0"})).run(cluster).redriven == 1


def test_what_was_cut_off_too_long_ago_is_said_once_and_not_tried_again(bad: Path) -> None:
    cluster = FakeCluster()
    cluster.dies = (3).__eq__
    with pytest.raises(Died):
        redrive(bad).run(cluster)
    cluster.too_late = True
    assert redrive(bad).run(cluster).open == 6
    assert redrive(bad).run(cluster).open == 0
    assert cluster.numbers == []


def test_another_refusal_leaves_the_claim_for_whoever_may(bad: Path) -> None:
    class Closed(FakeCluster):
        def commit(self, commit: Commit, ack: str, timeout_s: float) -> Answer:
            raise NotTaken(Answer(Status.UNAUTHENTICATED, "no token"))

    cluster = FakeCluster()
    for _ in range(2):
        with pytest.raises(NotTaken):
            redrive(bad).run(Closed())
    assert redrive(bad).run(cluster).finished == 6
    assert cluster.numbers == [0, 1, 2, 3, 4, 5]


# --- which ---------------------------------------------------------------------------------------

CHOICES: dict[str, tuple[dict[str, Any], list[int]]] = {
    "an error": ({"error": "odd 3"}, [3]),
    "a type": ({"error": "ValueError: odd"}, [0, 1, 2, 3, 4, 5]),
    "an id": ({"ids": frozenset({"id-2", "id-9"})}, [2]),
    "a time": ({"since_ms": 1_000_001}, []),
    "times": ({"since_ms": 1_000_000, "until_ms": 1_000_001}, [0, 1, 2, 3, 4, 5]),
    "before": ({"until_ms": 1_000_000}, []),
    "other jobs": ({"jobs": frozenset({"job-7"})}, []),
    "another task": ({"task": "elsewhere"}, []),
}


@pytest.mark.parametrize("name", CHOICES)
def test_letters_are_chosen(bad: Path, name: str) -> None:
    choice, expected = CHOICES[name]
    cluster = FakeCluster()
    summary = redrive(bad, **choice).run(cluster)
    assert cluster.numbers == expected
    assert sum(summary.left.values()) == 6 - len(expected)


def test_the_first_letters_and_then_the_next_ones(bad: Path) -> None:
    cluster = FakeCluster()
    assert redrive(bad, Limits(first=1)).run(cluster).redriven == 1
    assert cluster.numbers == [0]
    assert redrive(bad, Limits(first=4)).run(cluster).redriven == 4
    assert cluster.numbers == [0, 1, 2, 3, 4]


def test_what_would_be_done_changes_nothing(bad: Path) -> None:
    write(bad, letter(1))
    summary = redrive(bad).preview()
    assert (summary.redriven, summary.left) == (6, {"redriven before": 1})
    assert sorted(each.name[:4] for each in bad.iterdir()) == ["part"] * 3
    cluster = FakeCluster()
    cluster.dies = (1).__eq__
    with pytest.raises(Died):
        redrive(bad, Limits(first=2)).run(cluster)
    summary = redrive(bad).preview()
    assert (summary.finished, summary.redriven) == (2, 4)
    assert cluster.numbers == []


def test_letters_that_went_in_go_in_again_if_somebody_asks_for_that(bad: Path) -> None:
    cluster = FakeCluster()
    redrive(bad).run(cluster)
    summary = redrive(bad, Limits(again=True), ids=frozenset({"id-3"})).run(cluster)
    assert summary.redriven == 1
    assert cluster.numbers == [0, 1, 2, 3, 3, 4, 5]


# --- what fails again ----------------------------------------------------------------------------


def test_what_fails_each_time_goes_in_as_often_as_it_may(tmp_path: Path) -> None:
    bad, cluster = tmp_path / "bad", FakeCluster()
    write(bad, letter(1))
    redriven = []
    for turn in range(6):
        redriven.append(redrive(bad, Limits(rounds_max=3)).run(cluster).redriven)
        if redriven[-1]:  # it has failed, under an id of its own
            write(bad, letter(1, id=f"turn-{turn}"))
    assert redriven == [1, 1, 1, 0, 0, 0]


def test_what_fails_while_letters_go_in_waits_for_the_next_call(bad: Path) -> None:
    cluster = FakeCluster()
    numbers = itertools.count(10)
    cluster.before = lambda: write(bad, letter(next(numbers))) and None
    assert redrive(bad).run(cluster).redriven == 6
    cluster.before = lambda: None
    assert redrive(bad).run(cluster).redriven > 0


def test_what_became_of_them_is_counted(bad: Path) -> None:
    cluster = FakeCluster()
    cluster.outcomes = Outcomes(dead_letters=2, first_error="work: ValueError: odd 1")
    summary = redrive(bad).run(cluster)
    assert (summary.outcomes, summary.first_error) == (
        {"dead_letters": 2}, "work: ValueError: odd 1",
    )  # fmt: skip
    [(number, claim, is_done)] = RedriveMarks(LetterFolder(str(bad)).at).claims()
    assert (number, claim.count, claim.by, is_done) == (0, 6, "ann", True)


def test_what_fails_and_has_no_letter_ends_its_claim(bad: Path) -> None:
    cluster = FakeCluster()
    cluster.outcomes = Outcomes(failed=1, first_error="work: no")
    assert redrive(bad).run(cluster).outcomes == {"failed": 1}
    assert redrive(bad).run(cluster).redriven == 0


# --- what lies there -----------------------------------------------------------------------------

AT = datetime(2026, 11, 29, 12, tzinfo=UTC)


@pytest.mark.parametrize("form", ["jsonl", "gzip", "parquet", "file"])
def test_segments_have_the_values_that_they_had(tmp_path: Path, form: str) -> None:
    segment = {"n": 1, "at": AT, "price": Decimal("1.10"), "blob": b"\x00"}
    error = described(ValueError("no"), "")
    made = [
        dead_letter("job-1", "work", {**segment, "n": n}, error, 1, 0, f"id-{n}") for n in (1, 2)
    ]
    bad = tmp_path / "bad"
    bad.mkdir()
    place = bad
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(made), bad / "part.parquet")
    elif form == "gzip":
        (bad / "part.jsonl.gz").write_bytes(gzip.compress(lines(made)))
    else:
        (bad / "some.jsonl").write_bytes(lines(made))
        place = bad / "some.jsonl" if form == "file" else bad
    cluster = FakeCluster()
    redrive(place).run(cluster)
    assert [*cluster.taken.values()] == [[segment, {**segment, "n": 2}]]


NO_LETTERS = [
    b"", b"  ", b"{", b"[]", b"1", b'"x"', b"null", b"\xff\xfe", b"{}", b'{"a": 1}',
    b'{"task": "work", "segment": {"n": 1}}', b"[" * 100_000, b"x" * 3_000_000,
    lines([letter(1) | {"segment": [1]}]).strip(), lines([letter(1) | {"error": 7}]).strip(),
]  # fmt: skip


def test_rows_that_are_no_letters_are_counted_and_left(tmp_path: Path) -> None:
    write(tmp_path / "bad", letter(0), *NO_LETTERS, letter(1))
    cluster = FakeCluster()
    summary = redrive(tmp_path / "bad").run(cluster)
    assert cluster.numbers == [0, 1]
    assert summary.left == {"no letters": 13}


def test_what_stands_for_a_record_that_no_input_could_decode_goes_in_as_it_is(
    tmp_path: Path,
) -> None:
    bad = {"_error": "no json", "_raw": "{\ufffd"}
    write(tmp_path / "bad", letter(1) | {"segment": bad})
    cluster = FakeCluster()
    redrive(tmp_path / "bad").run(cluster)
    assert [*cluster.taken.values()] == [[bad]]


def test_a_segment_that_its_letter_does_not_have_stays_and_the_first_is_named(
    tmp_path: Path,
) -> None:
    part = write(
        tmp_path / "bad",
        letter(1),
        letter({1, 2}),
        letter(3, types="date /n"),
        lines([letter(4)]).replace(b'{"n":4}', b'{"n":%d}' % 10**30).strip(),
    )
    cluster = FakeCluster()
    summary = redrive(tmp_path / "bad").run(cluster)
    assert (cluster.numbers, summary.left) == ([1], {"not whole in their letters": 3})
    assert summary.why_cut == f"{part.name}, row 1: the letter does not have all of it: /n is cut"


def test_a_file_may_be_named_from_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, letter(1)).rename(tmp_path / "letters.jsonl")
    monkeypatch.chdir(tmp_path)
    assert redrive(Path("letters.jsonl")).preview().redriven == 1


@given(st.lists(st.binary(max_size=200), max_size=5))
def test_whatever_lies_there_is_read_without_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, rows: list[bytes]
) -> None:
    folder = tmp_path_factory.mktemp("bad")
    write(folder, *rows, letter(1))
    assert redrive(folder).preview().redriven == 1


def test_hidden_files_and_folders_are_no_parts(bad: Path) -> None:
    (bad / ".part-1.jsonl").write_bytes(lines([letter(7)]))
    (bad / "_part-1.jsonl").write_bytes(lines([letter(7)]))
    (bad / "notes.txt").write_text("x")
    (bad / "more.jsonl").mkdir()
    assert redrive(bad).preview().letters == 6


def test_a_folder_that_is_not_there_and_a_damaged_part_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere is not there.*--from"):
        redrive(tmp_path / "nowhere").preview()
    (tmp_path / "part.jsonl.gz").write_bytes(b"no gzip")
    with pytest.raises(UserError, match=r"part\.jsonl\.gz"):
        redrive(tmp_path).preview()
    (tmp_path / "part.jsonl.gz").unlink()
    (tmp_path / "part.parquet").write_bytes(b"PAR1")
    with pytest.raises(UserError, match=r"part\.parquet"):
        redrive(tmp_path).preview()


def test_a_damaged_mark_and_a_part_that_is_gone_are_named(bad: Path) -> None:
    cluster = FakeCluster()
    cluster.dies = (1).__eq__
    with pytest.raises(Died):
        redrive(bad, Limits(first=2)).run(cluster)
    part = min(bad.glob("*.jsonl"))
    data = part.read_bytes()
    part.write_bytes(data[data.index(b"\n") + 1 :])  # other letters in the same rows
    with pytest.raises(UserError, match=r"jsonl has changed since ann"):
        redrive(bad).run(cluster)
    [claim] = (bad / "_redriven").glob("*.claim")
    claim.write_bytes(b"x")
    with pytest.raises(StateError, match=r"0000000000\.claim"):
        redrive(bad).run(cluster)


def test_large_letters_are_several_lots(tmp_path: Path) -> None:
    write(tmp_path / "bad", *(letter(n) | {"job": "job-1", "pad": "x" * 400_000} for n in range(5)))
    cluster = FakeCluster()
    redrive(tmp_path / "bad").run(cluster)
    assert [len(each) for each in cluster.taken.values()] == [2, 2, 1]


# --- numbers -------------------------------------------------------------------------------------


def claims_of(rows: list[list[tuple[int, int]]]) -> Iterator[Claim]:
    for each in rows:
        prints = packed([print_ for print_, _ in each])
        yield Claim("w", "j", "i", "t", "by", 0, (), prints, prints, bytes(n for _, n in each))


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9)), max_size=9), max_size=40)
)
def test_what_is_known_of_many_claims(rows: list[list[tuple[int, int]]]) -> None:
    known, expected = Known(), dict[int, int]()
    for claim in claims_of(rows):
        known.add(claim)
    for number, rounds in itertools.chain(*rows):
        expected[number] = max(rounds, expected.get(number, 0))
    asked = list(range(25))
    assert known.has(asked) == [each in expected for each in asked]
    assert known.rounds(asked) == [expected.get(each, 0) for each in asked]


def test_errors_that_all_differ_are_counted_together_from_some_number_on() -> None:
    summary = RedriveSummary()
    for n in range(1_500):
        error = described(type(f"E{n}", (Exception,), {})("x"), "")
        made = msgspec.json.encode(letter(n) | {"error": error})
        summary.count(msgspec.json.decode(made, type=WrittenLetter))
    assert len(summary.errors) == 1_001
    assert summary.errors["others"] == 500


def test_times_are_read_with_and_without_a_zone() -> None:
    assert moment_ms("1970-01-01T00:00:01") == 1_000
    assert moment_ms("1970-01-01T01:00:01.000+01:00") == 1_000
    assert moment_ms("soon") is None
