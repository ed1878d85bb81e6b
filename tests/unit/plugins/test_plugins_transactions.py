"""Writers into stores with transactions: nothing is lost and nothing is there twice."""

import contextlib

import pytest
from tests.support.clocks import ManualClock
from tests.support.jobs.plugin_context import plugin_context
from tests.support.jobs.transactions import AFTER, BEFORE, MemoryStore

from onyx.codec.values import decode_values, encode_values
from onyx.errors import Fenced, OutputFailed, Unavailable, UserError
from onyx.flow.columns.record_batch import Columns, from_dicts, to_dicts
from onyx.plugins.protocol import Output, TransactionalOutput
from onyx.plugins.rolling import RollLimits
from onyx.plugins.transactions import ColumnsTransactionWriter, TransactionWriter
from onyx.testing.plugin_kit import check_output


def numbers(*values):
    return [{"n": n} for n in values]


def writer(store, limits=None, **context):
    return TransactionWriter(store, plugin_context({}, **context), limits or RollLimits())


def log(*failures):
    """A commit that fails in these ways, one call after the other, and then no more; and what is in
    the log: failures that are AFTER are."""
    left, reported = [*failures], []

    def commit(token, segments):
        failure = left.pop(0) if left else None
        if failure != BEFORE and (not reported or reported[-1][0] is not token):
            reported.append((token, segments))
        if failure is not None:
            raise Unavailable("no answer of the state log")

    return commit, reported


def taken_over(store, reported, incarnation="incarnation-2"):
    """Another peer does what whoever recovers the log does."""
    other = writer(MemoryStore(store), incarnation=incarnation)
    for token, _ in reported[-1:]:
        [read] = decode_values(encode_values([token]))
        other.finish(read)
    return other


def test_it_is_an_output_that_can_write_exactly_once():
    output = writer(MemoryStore())
    assert isinstance(output, Output)
    assert isinstance(output, TransactionalOutput)
    assert not output.cooperative


def test_it_keeps_to_the_protocol_of_outputs():
    def start():
        database = MemoryStore()

        def make(incarnation):
            return writer(MemoryStore(database), RollLimits(segments=4), incarnation=incarnation)

        return make, lambda: list(database.rows)

    check_output(start)


@pytest.mark.parametrize(
    ("limits", "writes", "seconds", "durable"),
    [
        (RollLimits(segments=2), [numbers(1), numbers(2), numbers(3)], 0, 2),
        (RollLimits(size_bytes=10), [numbers(1), numbers(2), numbers(3)], 0, 2),
        (RollLimits(size_bytes=11), [numbers(1), numbers(2), numbers(3), numbers(4)], 0, 3),
        (RollLimits(age_s=5), [numbers(1)], 4, 0),
        (RollLimits(age_s=5), [numbers(1)], 5, 1),
    ],
)
def test_transactions_end_by_segments_bytes_and_time(limits, writes, seconds, durable):
    clock, store = ManualClock(), MemoryStore()
    output = writer(store, limits, clock=clock)
    for segments in writes:
        output.write(segments)
    clock.advance(seconds)
    output.tick()
    assert output.durable() == len(store.rows) == durable


def test_what_is_written_at_once_is_in_one_transaction():
    commit, reported = log()
    output = writer(MemoryStore(), RollLimits(segments=2))
    output.begin(commit)
    output.write(numbers(1))
    output.write(numbers(2, 3, 4))
    assert [segments for _, segments in reported] == [4]


def test_rows_are_committed_before_the_store_sees_any():
    store, seen = MemoryStore(), []
    output = writer(store)
    output.begin(lambda token, segments: seen.append((segments, list(store.rows))))
    output.write(numbers(1, 2))
    output.flush()
    assert seen == [(2, [])]
    assert store.rows == numbers(1, 2)


@pytest.mark.parametrize("applied", [None, BEFORE, AFTER])
def test_a_crash_after_the_commit_loses_nothing_and_doubles_nothing(applied):
    store, (commit, reported) = MemoryStore(), log()
    output = writer(store)
    output.begin(commit)
    output.write(numbers(1, 2))
    store.faults.append(applied)
    if applied is None:
        output.flush()
    else:
        with pytest.raises(Unavailable):
            output.flush()
    taken_over(store, reported)
    taken_over(store, reported, "incarnation-3")
    assert store.rows == numbers(1, 2)


def test_a_writer_that_wakes_up_late_finds_applied_what_it_has_committed():
    store, (commit, reported) = MemoryStore(), log()
    output = writer(store)
    output.begin(commit)
    output.write(numbers(1))
    store.faults.append(BEFORE)
    with pytest.raises(Unavailable):
        output.flush()
    other = taken_over(store, reported)
    output.tick()
    assert store.rows == numbers(1)
    other.fence(["incarnation-2"])
    output.write(numbers(2))
    with pytest.raises(Fenced, match="task 'work'"):
        output.flush()
    assert store.rows == numbers(1)


@pytest.mark.parametrize("doubt", [BEFORE, AFTER])
def test_a_commit_in_doubt_is_repeated_with_the_same_token(doubt):
    store, (commit, reported) = MemoryStore(), log(doubt)
    tokens = []
    output = writer(store)
    output.begin(lambda token, segments: (tokens.append(token), commit(token, segments)))
    output.write(numbers(1))
    with pytest.raises(Unavailable):
        output.flush()
    assert store.rows == []
    output.tick()
    assert tokens[0] is tokens[1]
    assert store.rows == numbers(1)
    assert len(reported) == output.durable() == 1


@pytest.mark.parametrize(("doubt", "rows"), [(BEFORE, numbers(1, 3)), (AFTER, numbers(1, 2, 3))])
def test_beginning_again_leaves_what_may_have_been_committed_to_those_who_know(doubt, rows):
    store, (commit, reported) = MemoryStore(), log(None, doubt)
    output = writer(store)
    output.begin(commit)
    output.write(numbers(1))
    output.flush()
    output.write(numbers(2))
    with pytest.raises(Unavailable):
        output.flush()
    taken_over(store, reported)
    output.begin(commit)
    output.write(numbers(3))
    output.flush()
    taken_over(store, reported[:2])
    assert store.rows == rows
    assert output.durable() == 2


def test_beginning_again_applies_what_was_committed_and_drops_the_rest():
    store, (commit, reported) = MemoryStore(), log()
    output = writer(store, RollLimits(segments=2))
    output.begin(commit)
    store.faults.extend([None, BEFORE])
    output.write(numbers(1, 2))
    assert output.durable() == 0
    output.begin(commit)
    assert output.durable() == 2
    output.write(numbers(3))
    output.begin(commit)
    output.flush()
    assert store.rows == numbers(1, 2)
    assert [segments for _, segments in reported] == [2]


def test_without_commit_a_transaction_in_doubt_is_still_written_once():
    store = MemoryStore()
    output = writer(store)
    output.write(numbers(1))
    store.faults.append(AFTER)
    with pytest.raises(Unavailable):
        output.flush()
    output.tick()
    assert store.rows == numbers(1)
    assert output.durable() == 1


def test_a_store_that_does_not_answer_takes_nothing_and_memory_stays_bounded():
    store = MemoryStore()
    output = writer(store, RollLimits(segments=2))
    store.faults.append(BEFORE)
    with pytest.raises(Unavailable):
        output.write(numbers(1))
    store.faults.extend([None, BEFORE, BEFORE])
    output.write(numbers(1, 2))
    with pytest.raises(Unavailable):
        output.write(numbers(3))
    output.write(numbers(3))
    output.flush()
    assert store.rows == numbers(1, 2, 3)


def test_one_that_may_be_dead_applies_nothing_and_takes_no_more_than_one_transaction():
    alive = [False]
    store = MemoryStore()
    output = writer(store, RollLimits(segments=2), permitted=lambda: alive[0])
    output.write(numbers(1, 2))
    output.fence([])
    output.flush()
    assert store.rows == []
    alive[0] = True
    output.tick()
    assert store.rows == numbers(1, 2)


def test_permission_lost_while_the_store_does_not_answer_takes_nothing_more():
    alive = [True]
    store = MemoryStore()
    output = writer(store, RollLimits(segments=1), permitted=lambda: alive[0])
    store.faults.extend([None, BEFORE])
    output.write(numbers(1))
    alive[0] = False
    with pytest.raises(Unavailable, match="declared dead"):
        output.write(numbers(2))
    alive[0] = True
    output.write(numbers(2))
    assert store.rows == numbers(1, 2)


def test_one_that_may_be_dead_fences_nobody_until_it_is_permitted():
    alive = [False]
    store = MemoryStore()
    store.positions["dead.0"] = 3
    output = writer(store, permitted=lambda: alive[0])
    output.fence([])
    assert store.positions
    alive[0] = True
    output.tick()
    assert not store.positions


def test_whom_to_fence_is_asked_anew_in_each_version():
    """Who has come since then must not be fenced: it may have committed something by now."""
    alive = [False]
    store = MemoryStore()
    output = writer(store, permitted=lambda: alive[0])
    output.fence([])
    output.begin(log()[0])
    store.positions["newcomer.0"] = 0
    alive[0] = True
    output.tick()
    assert "newcomer.0" in store.positions


def test_a_segment_that_does_not_fit_is_told_before_it_is_committed():
    commit, reported = log()
    output = writer(MemoryStore())
    output.begin(commit)
    with pytest.raises(UserError, match="no column"):
        output.write([{"bad": 1}])
    output.flush()
    assert reported == []


def test_a_segment_that_is_refused_breaks_nothing_for_the_others():
    store = MemoryStore()
    output = writer(store)
    output.write(numbers(1))
    with pytest.raises(UserError, match="no column") as caught:
        output.write([{"n": 2}, {"bad": 1}])
    assert not isinstance(caught.value, OutputFailed)
    output.write(numbers(3))
    output.flush()
    assert (store.rows, output.durable()) == (numbers(1, 3), 2)


def test_what_is_written_after_a_transaction_was_refused_is_not_to_blame(monkeypatch):
    store = MemoryStore()
    output = writer(store, RollLimits(segments=1))

    def refuse(*_):
        raise UserError("job 'flights', task 'work': a row is there twice")

    monkeypatch.setattr(store, "apply", refuse)
    for _ in range(2):
        with pytest.raises(OutputFailed, match="task 'work': a row is there twice"):
            output.write(numbers(1))
    with pytest.raises(OutputFailed, match="a row is there twice"):
        output.flush()


def test_a_value_that_cannot_travel_is_told_with_job_and_task():
    with pytest.raises(UserError, match=r"job 'flights', task 'work'.*'tags'"):
        writer(MemoryStore()).write([{"tags": {1, 2}}])


def test_names_of_writers_never_come_again():
    store = MemoryStore()
    for _ in range(3):
        writer(store).write(numbers(1))
    assert len(store.positions) == 3


@pytest.mark.parametrize(("doubt", "kept"), [(None, 0), ("committed", 1), ("applied", 1)])
def test_closing_takes_the_position_along_unless_something_is_in_doubt(doubt, kept):
    store = MemoryStore()
    commit, reported = log(AFTER) if doubt == "committed" else log()
    output = writer(store)
    output.begin(commit)
    output.write(numbers(1))
    if doubt == "applied":
        store.faults.extend([BEFORE, BEFORE])
    with contextlib.suppress(Unavailable):
        output.flush()
    output.close()
    assert len(store.positions) == kept
    taken_over(store, reported)
    assert store.rows == numbers(1)
    assert store.closed


def test_closing_drops_what_is_not_committed():
    store, (commit, reported) = MemoryStore(), log()
    output = writer(store)
    output.begin(commit)
    output.write(numbers(1))
    output.close()
    assert (store.rows, store.positions, reported) == ([], {}, [])


def test_sealing_takes_every_position_of_the_task_away():
    store = MemoryStore()
    output = writer(store)
    output.write(numbers(1))
    writer(store, incarnation="another").write(numbers(2))
    output.seal()
    output.seal()
    assert store.positions == {}
    assert store.rows == numbers(1)


class ColumnsMemoryStore(MemoryStore):
    """Takes columns as well."""

    def check_columns(self, columns):
        self.check(to_dicts(columns))

    def apply_runs(self, writer, number, runs):
        self.kinds = [type(run) for run in runs]
        dicts = [run if isinstance(run, list) else to_dicts(run) for run in runs]
        return self.apply(writer, number, [segment for run in dicts for segment in run])


def columns_writer(store, **context):
    return ColumnsTransactionWriter(store, plugin_context({}, **context), RollLimits(segments=4))


def batch(*values):
    return from_dicts(numbers(*values))[0].record_batch


def test_dicts_and_columns_share_a_transaction_in_their_order():
    store = ColumnsMemoryStore()
    output = columns_writer(store)
    output.write(numbers(1))
    output.write(numbers(2))
    output.write_columns(batch())
    output.write_columns(batch(3))
    assert output.durable() == 0
    output.write(numbers(4))
    assert (output.durable(), store.rows) == (4, numbers(1, 2, 3, 4))
    assert store.kinds == [list, Columns, list]


def test_what_was_committed_in_columns_is_applied_by_another_writer():
    store, (commit, reported) = ColumnsMemoryStore(), log()
    output = columns_writer(store)
    output.begin(commit)
    output.write(numbers(1))
    output.write_columns(batch(2, 3))
    store.faults.append(BEFORE)
    with pytest.raises(Unavailable):
        output.flush()
    assert (store.rows, [segments for _, segments in reported]) == ([], [3])
    other = columns_writer(ColumnsMemoryStore(store), incarnation="incarnation-2")
    other.finish(decode_values(encode_values([reported[0][0]]))[0])
    assert store.rows == numbers(1, 2, 3)


def test_columns_that_cannot_be_written_are_not_taken():
    output = columns_writer(ColumnsMemoryStore())
    with pytest.raises(UserError, match="key 'bad' has no column"):
        output.write_columns(from_dicts([{"bad": 1}])[0].record_batch)
