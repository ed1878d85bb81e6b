"""Dead letters in a table are redriven."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.support.jobs.plugin_context import plugin_context
from tests.support.jobs.redrive_cluster import (
    LETTERS_TABLE,
    Died,
    FakeCluster,
    check_place,
    job_with_letters,
    redrive_of,
    whole_letter,
)
from tests.support.servers.sql_databases import Database, named

from onyx.errors import OnyxError, UserError
from onyx.flow.segment import Segment
from onyx.plugins.registry import build_output

pytestmark = pytest.mark.server


class Letters:
    """A table of letters, and the job that writes there."""

    def __init__(self, database: Database) -> None:
        self.options = {**named(database.url), "table": "letters"}
        self.job = job_with_letters("sql", **self.options)

    def write(self, letters: Sequence[Segment]) -> None:
        output = build_output("sql", plugin_context(self.options))
        try:
            output.write(list(letters))
            output.flush()
        finally:
            output.close()


@pytest.mark.parametrize("time", ["TEXT", "TIMESTAMP"])
def test_letters_in_a_table_go_in_once_as_they_were(
    database: Database, tmp_path: Path, time: str
) -> None:
    database.run(LETTERS_TABLE.format(time=time))
    letters = Letters(database)
    check_place(letters.job, letters.write, tmp_path / "marks")


def test_a_table_is_read_some_rows_at_a_time_and_other_rows_stay(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onyx.client.redrive.elsewhere.READ_ROWS", 2)
    monkeypatch.setattr("onyx.client.redrive.elsewhere.SEEN_ROWS", 3)
    sqlite_database.run(LETTERS_TABLE.format(time="TEXT"))
    letters, cluster = Letters(sqlite_database), FakeCluster()
    letters.write([whole_letter(n) for n in range(7)])
    letters.write([whole_letter(1, job="job-2"), whole_letter(8, task="other")])
    letters.write([whole_letter(9, id=""), whole_letter(9, id=""), whole_letter(9, job=None)])
    sqlite_database.run(
        """INSERT INTO letters (error, job, task, id, "time", segment, types) VALUES
        ('{bad', 'job-1', 'work', 'x', '', '{}', ''), ('{}', 'job-1', 'work', 'y', '', '1', ''),
        ('{}', 'job-1', 'work', 'z', 7, NULL, '')"""
    )
    summary = redrive_of(letters.job, tmp_path / "marks").run(cluster)
    assert cluster.numbers == [0, 1, 1, 2, 3, 4, 5, 6]
    assert summary.left == {"of task other": 1, "no letters": 6}


def test_letters_that_are_gone_before_they_went_in_are_said(
    sqlite_database: Database, tmp_path: Path
) -> None:
    sqlite_database.run(LETTERS_TABLE.format(time="TEXT"))
    letters, cluster = Letters(sqlite_database), FakeCluster()
    letters.write([whole_letter(1)])
    cluster.dies = (1).__eq__
    with pytest.raises(Died):
        redrive_of(letters.job, tmp_path).run(cluster)
    sqlite_database.run("DELETE FROM letters")
    summary = redrive_of(letters.job, tmp_path).run(cluster)
    assert (summary.open, summary.redriven) == (1, 0)
    assert "letters of letters are gone since ann" in summary.open_why


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (None, "does not exist; make the database and its table first"),
        ("CREATE TABLE letters (job TEXT, task TEXT, id TEXT)", "no column for 'error'"),
        ("CREATE TABLE letters (n INTEGER)", "no column for 'id'"),
    ],
)
def test_a_table_that_has_no_letters_is_said(
    sqlite_database: Database, tmp_path: Path, table: str | None, message: str
) -> None:
    if table:
        sqlite_database.run(table)
    with pytest.raises(UserError, match=message):
        redrive_of(Letters(sqlite_database).job, tmp_path).preview()


def test_a_database_that_does_not_answer_is_an_error(tmp_path: Path) -> None:
    options = {"url": "postgresql://nobody@127.0.0.1:1/x", "table": "letters"}
    with pytest.raises(OnyxError, match="letters"):
        redrive_of(job_with_letters("sql", **options), tmp_path).preview()
