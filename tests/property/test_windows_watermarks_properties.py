"""Watermarks and epochs against what they promise: models that remember everything."""

from collections import defaultdict, deque
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from onyx.windows.watermarks import (
    IDLE,
    SILENT,
    WAITING_EPOCHS_MAX,
    ChannelEpochs,
    ChannelMarks,
    Lull,
    PartitionMarks,
    Rising,
    least,
    merge,
    time_of,
)

CHANNELS = ("a", "b", "c")
TIMES = st.integers(-20, 20)
SAID = st.tuples(st.sampled_from(CHANNELS), TIMES | st.just(IDLE))


@given(st.lists(SAID, max_size=40))
def test_a_task_says_the_minimum_of_what_its_channels_promised_last(news):
    marks, rising = ChannelMarks(CHANNELS), Rising()
    heard: dict[str, list] = defaultdict(list)
    sent: list = []
    for channel, said in news:
        heard[channel].append(said)
        marks.hear(channel, said)
        new = rising.follow(marks.mark)
        if new is not None:
            sent.append(new)
        awake = [c for c in CHANNELS if not heard[c] or heard[c][-1] is not IDLE]
        if not all(heard[c] for c in awake):
            assert new is None, "somebody who counts has said nothing"
        elif awake:
            least = min(max(t for t in heard[c] if t is not IDLE) for c in awake)
            times = [t for t in sent if t is not IDLE]
            assert rising.time_ms == times[-1] >= least
            assert sent[-1] is not IDLE
        else:
            assert sent[-1] is IDLE
    for one, other in pairwise(sent):
        assert one != other
        assert IDLE in (one, other) or one < other
    times = [t for t in sent if t is not IDLE]
    assert times == sorted(times), "it never falls"


MARKS = TIMES | st.builds(Lull, TIMES) | st.sampled_from((IDLE, SILENT))


@given(st.lists(st.lists(MARKS, max_size=4), max_size=4))
def test_it_does_not_matter_over_how_many_tasks_a_mark_comes(groups):
    assert least(map(least, groups)) == least(mark for group in groups for mark in group)


@given(st.lists(st.tuples(st.sampled_from(CHANNELS), TIMES | st.builds(Lull, TIMES)), max_size=40))
def test_time_that_follows_a_clock_never_falls_and_passes_nobody_who_is_awake(news):
    marks, rising = ChannelMarks(CHANNELS), Rising()
    last: dict[str, Lull | int] = {}
    before = None
    for channel, said in news:
        last[channel] = said
        marks.hear(channel, said)
        new = rising.follow(marks.mark)
        awake = [time_of(each) for each in last.values() if not isinstance(each, Lull)]
        if new is not None and awake:
            assert not isinstance(new, Lull)
        if new is not None:
            assert before is None or time_of(new) >= before
            before = time_of(new)
            assert isinstance(new, Lull) == (len(last) == len(CHANNELS) and not awake)


STEPS = st.tuples(st.sampled_from("snnttc"), st.integers(0, 2), TIMES)


@given(st.lists(STEPS, max_size=60), st.integers(0, 5))
def test_an_input_in_a_lull_never_passes_the_clock_since_all_were_silent(steps, disorder):
    """c: a new allocation. Event time has come at most as far as the newest segment, and the
    seconds in which no partition had anything."""
    marks, now_s = PartitionMarks(disorder, 2.0, follows_clock=True), 0.0
    newest: int | None = None
    for step, partition, time in steps:
        if step == "s":
            marks.saw(partition, time)
            newest = time if newest is None else max(newest, time)
        elif step == "n":
            marks.saw_nothing(partition, now_s)
        elif step == "c":
            marks.ask_anew()
        else:
            now_s += 1.0
        mark = marks.mark((0, 1, 2), now_s)
        if isinstance(mark, Lull):
            assert newest is not None
            assert mark.time_ms >= newest - disorder
            assert mark.time_ms <= newest - disorder + 1_000 * now_s
        elif isinstance(mark, int):
            assert newest is not None
            assert mark <= newest - disorder


@given(
    st.lists(st.tuples(st.sampled_from("snt"), st.integers(0, 2), TIMES), max_size=40),
    st.integers(0, 5),
    st.none() | st.just(3.0),
    st.sets(st.integers(0, 2)),
)
def test_an_input_says_the_minimum_of_its_partitions_less_disorder(steps, disorder, idle, active):
    """s: a partition gave this time; n: it gave nothing; t: a second has passed."""
    marks, now_s = PartitionMarks(disorder, idle), 0.0
    gave: dict[int, list[int]] = defaultdict(list)
    silent: dict[int, float] = {}
    for step, partition, time in steps:
        if step == "s":
            marks.saw(partition, time)
            gave[partition].append(time)
            silent.pop(partition, None)
        elif step == "n":
            marks.saw_nothing(partition, now_s)
            silent.setdefault(partition, now_s)
        else:
            now_s += 1.0
        idlers = {p for p, since in silent.items() if idle and now_s - since >= idle}
        awake = active - idlers
        if not awake:
            expected = IDLE
        elif any(not gave[p] for p in awake):
            expected = SILENT
        else:
            expected = min(max(gave[p]) for p in awake) - disorder
        assert marks.mark(active, now_s) == expected


class Dataflow:
    """Two inputs, two tasks in the middle, one sink: FIFO channels, any order between them."""

    def __init__(self) -> None:
        self.channels = {
            (source, target): deque()
            for sources, targets in ((("i0", "i1"), ("m0", "m1")), (("m0", "m1"), ("sink",)))
            for source in sources
            for target in targets
        }
        self.epochs = {
            "m0": ChannelEpochs(("i0", "i1")),
            "m1": ChannelEpochs(("i0", "i1")),
            "sink": ChannelEpochs(("m0", "m1")),
        }
        self.next = [0, 0]
        self.numbers = [0, 0]
        self.arrived: list[set[int]] = [set(), set()]
        self.forgotten: dict[int, int] = {}

    def frontier(self, partition: int) -> int:
        position = 0
        while position in self.arrived[partition]:
            position += 1
        return position

    def emit(self, partition: int, way: int) -> None:
        self._send(partition, way, self.next[partition])
        self.next[partition] += 1

    def retry(self, partition: int, way: int) -> None:
        if self.frontier(partition) < self.next[partition]:
            self._send(partition, way, self.frontier(partition))

    def _send(self, partition: int, way: int, position: int) -> None:
        self.channels[f"i{partition}", f"m{way}"].append(("segment", (partition, position)))

    def tick(self, partition: int, skipped: int) -> None:
        self.numbers[partition] += 1 + skipped
        sent = (self.numbers[partition], ((partition, self.frontier(partition)),))
        for way in ("m0", "m1"):
            self.channels[f"i{partition}", way].append(("epoch", sent))

    def move(self, number: int) -> None:
        waiting = [ends for ends, queue in self.channels.items() if queue]
        if waiting:
            self.deliver(*waiting[number % len(waiting)])

    def deliver(self, source: str, target: str) -> None:
        kind, item = self.channels[source, target].popleft()
        if kind == "epoch":
            self.epochs[target].hear(source, *item)
            complete = self.epochs[target].take()
            if complete is not None and target == "sink":
                merge(self.forgotten, complete[1].items())
            elif complete is not None:
                passed = (complete[0], tuple(complete[1].items()))
                self.channels[target, "sink"].append(("epoch", passed))
        elif target == "sink":
            partition, position = item
            assert position >= self.forgotten.get(partition, 0), "this was said never to come"
            self.arrived[partition].add(position)
        else:
            self.channels[target, "sink"].append((kind, item))


ACTIONS = st.tuples(
    st.sampled_from(("emit", "retry", "tick", *["move"] * 6)),
    st.integers(0, 1),
    st.integers(0, 5),
)


@given(st.lists(ACTIONS, max_size=150))
def test_nothing_arrives_below_a_frontier_whose_epoch_is_complete(actions):
    world = Dataflow()
    for action, partition, number in actions:
        if action == "move":
            world.move(number)
        elif action == "tick":
            world.tick(partition, number // 5)
        else:
            getattr(world, action)(partition, number % 2)
    last = max(world.numbers) + 1
    world.numbers = [last - 1, last - 1]
    for partition in (0, 1):
        world.tick(partition, 0)
    while any(world.channels.values()):
        world.move(0)
    for partition in (0, 1):
        world.tick(partition, 0)
    while any(world.channels.values()):
        world.move(0)
    complete = {p: world.frontier(p) for p in (0, 1)}
    assert world.forgotten == complete, "all is forgotten once everybody has caught up"


def test_a_frontier_does_not_overtake_a_copy_by_the_epoch_of_a_slower_input():
    world = Dataflow()
    world.tick(0, 0)
    world.deliver("i0", "m0")
    world.deliver("i0", "m1")
    world.emit(0, 0)
    world.retry(0, 1)
    world.deliver("i0", "m1")
    world.deliver("m1", "sink")
    world.tick(0, 0)
    world.deliver("i0", "m1")
    assert world.frontier(0) == 1
    assert world.channels["i0", "m0"], "the first copy is still under way"
    world.tick(1, 0)
    for ends in (("i1", "m0"), ("i1", "m1"), ("m0", "sink"), ("m1", "sink")):
        world.deliver(*ends)
    assert world.forgotten[0] == 0
    while any(world.channels.values()):
        world.move(0)


@given(
    st.lists(
        st.tuples(st.sampled_from(CHANNELS), st.integers(1, 5), st.integers(0, 3)), max_size=80
    )
)
def test_epochs_lose_no_frontier_and_wait_in_bounded_memory(news):
    epochs = ChannelEpochs(CHANNELS)
    newest = dict.fromkeys(CHANNELS, 0)
    sent: dict[int, int] = {}
    found: dict[int, int] = {}
    numbers = []
    for position, (channel, step, partition) in enumerate(news):
        newest[channel] += step
        epochs.hear(channel, newest[channel], [(partition, position)])
        merge(sent, [(partition, position)])
        assert len(epochs._waiting) <= WAITING_EPOCHS_MAX
        complete = epochs.take()
        if complete is not None:
            assert complete[0] == min(newest.values())
            numbers.append(complete[0])
            merge(found, complete[1].items())
    assert numbers == sorted(set(numbers))
    for channel in CHANNELS:
        epochs.hear(channel, max(newest.values()) + 1, ())
    complete = epochs.take()
    assert complete is not None
    merge(found, complete[1].items())
    assert found == sent
