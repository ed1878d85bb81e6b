"""What the writer relies on in a store with transactions: the one of our tests, SQLite and a real
PostgreSQL alike."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import pytest
from tests.support.jobs.plugin_context import plugin_context
from tests.support.jobs.transactions import MemoryStore
from tests.support.servers.sql_databases import Database, sql_store

from onyx.errors import UserError
from onyx.plugins.transactions import TransactionStore

pytestmark = pytest.mark.server

PEERS = 6


class Place(Protocol):
    def store(self) -> TransactionStore:
        """A new one, as another process would have it."""
        ...

    def numbers(self) -> list[int]: ...


class Memory:
    def __init__(self) -> None:
        self._database = MemoryStore()

    def store(self) -> TransactionStore:
        return MemoryStore(self._database)

    def numbers(self) -> list[int]:
        return sorted(row["n"] for row in self._database.rows)


class Sql:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._stores: list[TransactionStore] = []
        database.run("CREATE TABLE numbers (n BIGINT PRIMARY KEY)")

    def store(self) -> TransactionStore:
        self._stores.append(sql_store(self._database))
        return self._stores[-1]

    def numbers(self) -> list[int]:
        return self._database.numbers()

    def close(self) -> None:
        for store in self._stores:
            store.close()


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    if request.param == "memory":
        yield Memory()
        return
    found = Sql(request.getfixturevalue(f"{request.param}_database"))
    yield found
    found.close()


def rows(*numbers: int) -> list[dict[str, int]]:
    return [{"n": number} for number in numbers]


def test_a_transaction_is_applied_once_by_whomever_and_however_often(place: Place) -> None:
    mine, theirs = place.store(), place.store()
    mine.open("a.0")
    assert mine.apply("a.0", 1, rows(1, 2))
    assert theirs.apply("a.0", 1, rows(1, 2))
    assert mine.apply("a.0", 3, rows(3))
    assert theirs.apply("a.0", 2, rows(4))
    assert place.numbers() == [1, 2, 3]


def test_a_writer_without_position_writes_nothing(place: Place) -> None:
    store = place.store()
    store.open("a.0")
    assert not store.apply("a.1", 1, rows(1))
    store.forget("a.0")
    assert not store.apply("a.0", 1, rows(1))
    store.forget("a.0")
    assert place.numbers() == []


def test_a_position_that_is_there_is_not_made_anew(place: Place) -> None:
    store = place.store()
    store.open("a.0")
    assert store.apply("a.0", 1, rows(1))
    store.open("a.0")
    assert store.apply("a.0", 1, rows(1))
    assert place.numbers() == [1]


def test_many_that_apply_the_same_at_once_write_it_once(place: Place) -> None:
    stores = [place.store() for _ in range(PEERS)]
    barrier = threading.Barrier(PEERS)
    stores[0].open("a.0")

    def apply(store: TransactionStore) -> bool:
        barrier.wait()
        return all(
            store.apply("a.0", number, rows(2 * number, 2 * number + 1)) for number in (1, 2, 3)
        )

    with ThreadPoolExecutor(PEERS) as pool:
        assert list(pool.map(apply, stores)) == [True] * PEERS
    assert place.numbers() == [2, 3, 4, 5, 6, 7]


def test_many_that_begin_at_once_all_have_a_position(place: Place) -> None:
    stores = [place.store() for _ in range(PEERS)]
    barrier = threading.Barrier(PEERS)

    def begin(number: int) -> bool:
        barrier.wait()
        stores[number].open(f"a.{number}")
        return stores[number].apply(f"a.{number}", 1, rows(number))

    with ThreadPoolExecutor(PEERS) as pool:
        assert all(pool.map(begin, range(PEERS)))
    assert place.numbers() == list(range(PEERS))


def test_fencing_takes_the_positions_of_the_dead_away_and_spares_the_living(place: Place) -> None:
    store = place.store()
    store.fence(["alive"])
    for writer in ("dead.0", "alive.0", "alive.1", "dead.alive.2"):
        store.open(writer)
    store.fence(["alive", "another"])
    written = [
        store.apply(writer, 1, rows(number))
        for number, writer in enumerate(("dead.0", "alive.0", "alive.1", "dead.alive.2"))
    ]
    assert written == [False, True, True, False]
    assert place.numbers() == [1, 2]


def test_all_positions_go_at_the_end(place: Place) -> None:
    store = place.store()
    store.forget(None)
    store.open("a.0")
    store.open("b.0")
    store.forget(None)
    assert not store.apply("a.0", 1, rows(1))
    assert not store.apply("b.0", 1, rows(2))


def test_other_tasks_keep_their_positions(database: Database) -> None:
    database.run("CREATE TABLE numbers (n INTEGER)")
    mine = sql_store(database)
    theirs = sql_store(database, context=plugin_context({}, task="other"))
    mine.open("a.0")
    theirs.open("a.0")
    mine.fence([])
    mine.forget(None)
    assert theirs.apply("a.0", 1, rows(1))
    assert not mine.apply("a.0", 1, rows(2))
    assert database.numbers() == [1]
    mine.close()
    theirs.close()


def test_rows_that_are_refused_leave_the_position_where_it_was(database: Database) -> None:
    database.run("CREATE TABLE numbers (n INTEGER UNIQUE)")
    store = sql_store(database)
    store.open("a.0")
    with pytest.raises(UserError, match=r"writing to table 'numbers' failed: .*(?i:unique)"):
        store.apply("a.0", 1, rows(1, 2, 2))
    assert database.numbers() == []
    assert store.apply("a.0", 1, rows(1, 2))
    assert database.numbers() == [1, 2]
    store.close()


def test_what_was_applied_long_ago_need_not_fit_the_table_any_more(database: Database) -> None:
    database.run("CREATE TABLE numbers (n INTEGER)")
    store, other = sql_store(database), sql_store(database)
    store.open("a.0")
    assert store.apply("a.0", 1, rows(1))
    database.run("ALTER TABLE numbers RENAME COLUMN n TO m")
    assert other.apply("a.0", 1, rows(1))
    with pytest.raises(UserError, match="no column for key 'n'"):
        other.apply("a.0", 2, rows(2))
    assert database.rows("SELECT m FROM numbers") == [(1,)]
    store.close()
    other.close()
