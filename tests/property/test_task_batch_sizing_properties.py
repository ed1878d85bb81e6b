"""The size of batches is within its bounds and changes for a reason, whatever comes."""

from hypothesis import given
from hypothesis import strategies as st

from onyx.codec.segments import bytes_each
from onyx.model.job import CatalogEntry
from onyx.model.limits import BATCH_SEGMENTS_MAX
from onyx.task.batching import BATCH_BYTES_MAX, CPU_ENOUGH_S, BatchSizing
from onyx.telemetry.recorder import ROOTS_MAX

OBSERVED = st.lists(
    st.tuples(
        st.integers(0, 2_000),  # segments waiting
        st.floats(0, 100),  # seconds that the batch takes
        st.floats(0, 100),  # of the processor
        st.integers(0, 20_000),  # characters of each segment
        st.integers(0, 20),  # segments made of each
    ),
    max_size=40,
)


def entry(**keys):
    return CatalogEntry("read", "input", plugin="files", **keys)


def observe(sizing, waiting, took_s, cpu_s, characters, made=1):
    """One batch; the segments that it had."""
    segments = [{"text": "x" * characters}] * min(waiting, sizing.segments_max)
    sizing.taken(waiting)
    sizing.done(segments, made * len(segments), took_s, cpu_s)
    return segments


@given(OBSERVED)
def test_a_size_is_within_its_bounds_and_enough_may_be_in_flight(observed):
    sizing = BatchSizing(entry())
    for each in observed:
        observe(sizing, *each)
        assert 1 <= sizing.segments_max <= ROOTS_MAX
        assert sizing.pending_max >= 2 * sizing.segments_max


@given(OBSERVED)
def test_a_size_grows_only_when_a_batch_was_full(observed):
    sizing = BatchSizing(entry())
    for waiting, took_s, cpu_s, _, made in observed:
        before = sizing.segments_max
        observe(sizing, waiting, took_s, cpu_s, 5, made)
        if waiting < before:
            assert sizing.segments_max <= before
        else:
            assert sizing.segments_max <= 2 * before


@given(OBSERVED)
def test_equal_observations_give_equal_sizes(observed):
    first, second = BatchSizing(entry()), BatchSizing(entry())
    for each in observed:
        observe(first, *each)
        observe(second, *each)
        assert first.segments_max == second.segments_max


@given(OBSERVED, st.integers(1_000, 20_000))
def test_a_batch_of_large_segments_holds_no_more_bytes_than_it_may(observed, characters):
    sizing = BatchSizing(entry())
    for each in observed:
        observe(sizing, *each)
    for _ in range(8):
        segments = observe(sizing, BATCH_SEGMENTS_MAX, CPU_ENOUGH_S, CPU_ENOUGH_S, characters)
    assert sizing.segments_max * bytes_each(segments) <= BATCH_BYTES_MAX


@given(OBSERVED, st.integers(1, BATCH_SEGMENTS_MAX), st.integers(1, 10_000_000))
def test_what_is_given_stays(observed, batch_size, max_pending):
    sizing = BatchSizing(entry(batch_size=batch_size, max_pending=max_pending))
    for each in observed:
        observe(sizing, *each)
        assert (sizing.segments_max, sizing.pending_max) == (batch_size, max_pending)
