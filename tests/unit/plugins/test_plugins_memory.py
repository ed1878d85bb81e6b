"""Plugins without files: sequence, generator, channel, function, blackhole, stdout."""

import json

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.support.clocks import ManualClock
from tests.support.jobs.plugin_context import plugin_context

from onyx.errors import UserError, UserFunctionError
from onyx.plugins.channel import open_channel
from onyx.plugins.protocol import START, Behind, Cursor
from onyx.plugins.registry import build_input, build_output
from onyx.testing.columns_kit import check_columns_input, read_columns


def drain(reader):
    segments = []
    while not reader.exhausted():
        segments += reader.read(3)
    return segments


def numbers(segments):
    return [segment["n"] for segment in segments]


def test_a_sequence_is_dealt_to_its_partitions():
    options = {"segments": [{"n": n} for n in range(5)], "partitions": 2}
    plugin = build_input("sequence", plugin_context(options))
    parts = {name: numbers(drain(plugin.open(name, START))) for name in plugin.partitions()}
    assert parts == {"0": [0, 2, 4], "1": [1, 3]}


def test_what_is_left_is_known_where_there_is_an_end():
    options = {"segments": [{"n": n} for n in range(5)], "partitions": 2}
    at = {"0": Cursor(1), "1": START}
    plugin = build_input("sequence", plugin_context(options))
    assert plugin.behind(at) == {"0": Behind(2), "1": Behind(2)}
    plugin = build_input("generator", plugin_context({"segments": 5, "partitions": 2}))
    assert plugin.behind(at) == {"0": Behind(2), "1": Behind(2)}
    assert build_input("generator", plugin_context({"partitions": 2})).behind(at) == {}


def test_what_a_function_does_to_a_segment_does_not_change_the_sequence():
    plugin = build_input("sequence", plugin_context({"segments": [{"n": {"deep": 1}}]}))
    plugin.open("0", START).read(1)[0]["n"]["deep"] = 2
    assert plugin.open("0", START).read(1) == [{"n": {"deep": 1}}]


def test_generated_numbers_are_dealt_to_partitions_and_none_is_missing():
    for total in (0, 1, 2, 3, 7):
        plugin = build_input("generator", plugin_context({"segments": total, "partitions": 3}))
        found = [drain(plugin.open(name, START)) for name in plugin.partitions()]
        assert sorted(n for part in found for n in numbers(part)) == list(range(total))


def test_an_unbounded_generator_is_never_exhausted():
    reader = build_input("generator", plugin_context({})).open("0", Cursor(10**9))
    assert numbers(reader.read(2)) == [10**9, 10**9 + 1]
    assert not reader.exhausted()


def test_a_rate_holds_back_new_segments_and_not_those_read_again():
    clock = ManualClock()
    plugin = build_input("generator", plugin_context({"ratePerSecond": 10}, clock=clock))
    reader = plugin.open("0", Cursor(5))
    assert reader.read(100) == []
    clock.advance(0.5)
    assert numbers(reader.read(100)) == [5, 6, 7, 8, 9]
    assert reader.read(100) == []
    assert numbers(plugin.open("0", Cursor(6)).read(100)) == [6, 7, 8, 9]
    clock.advance(3600)
    assert len(reader.read(100)) == 11, "one and a second's worth at once, not an hour's"


def test_a_generator_function_makes_the_segment_of_its_number():
    context = plugin_context(
        {"segments": 2, "fn": "m:f"}, functions={"m:f": lambda n: {"sq": n * n}}
    )
    assert drain(build_input("generator", context).open("0", START)) == [{"sq": 0}, {"sq": 1}]


@pytest.mark.parametrize(
    ("fn", "error", "why"),
    [
        (lambda n: 1 // n, UserFunctionError, r"m:f\(0\) raised ZeroDivisionError"),
        (lambda n: [n], UserError, r"m:f\(0\) returned a list; return a dict"),
    ],
)
def test_a_generator_function_that_fails_is_told(fn, error, why):
    plugin = build_input("generator", plugin_context({"fn": "m:f"}, functions={"m:f": fn}))
    with pytest.raises(error, match=why):
        plugin.open("0", START).read(1)


def test_an_input_reads_what_is_put_until_the_channel_is_closed():
    channel = open_channel("in")
    plugin = build_input("channel", plugin_context({"channel": "in"}))
    reader = plugin.open(plugin.partitions()[0], START)
    assert reader.read(10) == []
    assert not reader.exhausted()
    channel.put({"n": 1}, {"n": 2})
    assert numbers(reader.read(10)) == [1, 2]
    channel.close()
    assert reader.exhausted()


def test_a_channel_keeps_what_may_have_to_be_read_again():
    channel = open_channel("in", segments_max=3)
    plugin = build_input("channel", plugin_context({"channel": "in"}))
    reader = plugin.open("in", START)
    assert channel.offer([{"n": n} for n in range(5)]) == 3, "bounded"
    reader.read(10)
    assert channel.offer([{"n": 3}]) == 0, "read, but not passed by the frontier"
    assert numbers(plugin.open("in", reader.cursor(0)).read(10)) == [0, 1, 2]
    cursor = reader.cursor(2)
    assert channel.offer([{"n": 3}, {"n": 4}, {"n": 5}]) == 2
    assert numbers(plugin.open("in", cursor).read(10)) == [2, 3, 4]
    with pytest.raises(UserError, match="no longer has position 0"):
        plugin.open("in", START).read(1)


def test_putting_without_room_and_after_the_end_is_an_error():
    channel = open_channel("in", segments_max=1)
    with pytest.raises(UserError, match="no room"):
        channel.put({"n": 1}, {"n": 2}, timeout_s=0.0)
    channel.close()
    with pytest.raises(UserError, match="closed"):
        channel.put({"n": 3})


def test_an_output_channel_gives_everything_in_order_and_closes_when_sealed():
    channel = open_channel("out", segments_max=2)
    output = build_output("channel", plugin_context({"channel": "out"}))
    output.write([{"n": 1}, {"n": 2}, {"n": 3}])
    assert output.durable() == 2, "the third waits for room, and is not acked"
    assert numbers(channel.take()) == [1, 2]
    output.tick()
    assert output.durable() == 3
    assert numbers(channel.take()) == [3]
    output.seal()
    assert channel.closed
    assert channel.take() == []


def test_a_function_gets_each_segment_or_each_batch():
    calls = []
    functions = {"m:f": calls.append}
    each = build_output("function", plugin_context({"fn": "m:f"}, functions=functions))
    each.write([{"n": 1}, {"n": 2}])
    assert each.durable() == 2
    whole = build_output(
        "function", plugin_context({"fn": "m:f", "batch": True}, functions=functions)
    )
    whole.write([{"n": 3}])
    assert calls == [{"n": 1}, {"n": 2}, [{"n": 3}]]


def test_a_function_that_raises_makes_nothing_durable():
    context = plugin_context({"fn": "m:f"}, functions={"m:f": lambda segment: segment["missing"]})
    output = build_output("function", context)
    with pytest.raises(UserFunctionError, match=r"m:f raised KeyError: 'missing'"):
        output.write([{"n": 1}])
    assert output.durable() == 0


def test_a_blackhole_acks_everything():
    output = build_output("blackhole", plugin_context({}))
    output.write([{}] * 3)
    assert output.durable() == 3


def test_stdout_writes_a_line_each(capsys):
    output = build_output("stdout", plugin_context({}))
    output.write([{"city": "Zürich"}, {"n": None}])
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {"city": "Zürich"},
        {"n": None},
    ]


def test_a_value_that_json_cannot_write_is_named():
    output = build_output("stdout", plugin_context({}))
    with pytest.raises(UserError, match="key 'price' holds a complex"):
        output.write([{"n": 1, "price": 1j}])


def columns_of(plugin, context):
    """What each call gives, over all partitions."""
    made = build_input(plugin, context)
    return {name: list(read_columns(made, name, START, 4)) for name in made.partitions()}


def test_generated_numbers_are_a_column():
    options = {"segments": 10, "partitions": 3}
    found = columns_of("generator", plugin_context(options, batch_format="arrow"))
    numbers = {name: [part["n"].to_pylist() for part in parts] for name, parts in found.items()}
    assert numbers == {"0": [[0, 3, 6, 9]], "1": [[1, 4, 7]], "2": [[2, 5, 8]]}
    check_columns_input(lambda kind: generator(kind, options))


def generator(batch_format, options, **functions):
    context = plugin_context(options, batch_format=batch_format, functions=functions)
    return build_input("generator", context)


def test_a_generator_function_over_columns_makes_a_row_for_each_number():
    def squares(batch):
        return pa.table({"square": pc.multiply(batch["n"], batch["n"])})

    options = {"segments": 6, "fn": "squares"}
    made = generator("arrow", options, squares=squares)
    parts = read_columns(made, "0", START, 4)
    assert [part["square"].to_pylist() for part in parts] == [[0, 1, 4, 9], [16, 25]]


@pytest.mark.parametrize(
    ("fn", "why"),
    [
        (lambda batch: batch.slice(1), "many returned 3 rows for 4 numbers; return one for each"),
        (lambda batch: None, "many returned 0 rows for 4 numbers"),
        (lambda batch: 1 / 0, "many raised ZeroDivisionError"),
        (lambda batch: 7, "many raised .* it must return a pyarrow.RecordBatch"),
    ],
)
def test_a_generator_function_over_columns_that_fails_is_named(fn, why):
    made = generator("arrow", {"segments": 4, "fn": "many"}, many=fn)
    with pytest.raises(UserError, match=why):
        list(read_columns(made, "0", START, 4))


def test_a_channel_gives_columns_as_they_were_put():
    channel = open_channel("mixed")
    channel.put_columns(pa.record_batch({"n": [0, 1, 2]}))
    channel.put_columns(pa.record_batch({"n": [3, 4]}))
    channel.put({"n": 5}, {"n": 6})
    channel.put_columns(pa.record_batch({"n": ["seven"]}))
    channel.close()
    options = {"channel": "mixed"}
    (found,) = columns_of("channel", plugin_context(options, batch_format="arrow")).values()
    shown = [part if isinstance(part, list) else part["n"].to_pylist() for part in found]
    assert shown == [[0, 1, 2, 3], [4], [{"n": 5}, {"n": 6}], ["seven"]]

    def make(kind):
        return build_input("channel", plugin_context(options, batch_format=kind))

    whole = [{"n": n} for n in (*range(7), "seven")]
    assert make("dicts").open("mixed", START).read(100) == whole
