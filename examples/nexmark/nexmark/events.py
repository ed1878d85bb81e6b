"""Nexmark's events: persons who register, the auctions that they open, bids on these.

Event number n is the same each time, whoever computes it: each value is a hash of the number, the
field and the seed. So a range of events is a few NumPy operations, in any order and on any machine.

Of 50 events one is a person, three are auctions, 46 are bids, in this order. Half of the bids are
on one hot auction of the last hundred, the others on one of the last hundred; bidders and sellers
are hot in three of four cases. Numbers come at 10,000 events a second of event time, and a time may
be up to half a second behind that of its number.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

KINDS = ("persons", "auctions", "bids")
CYCLE = 50
AUCTIONS_A_CYCLE = 3
FIRST_BID = 1 + AUCTIONS_A_CYCLE
"""Place of the first bid in a cycle; the person is at 0."""

FIRST_MS = 1_700_000_000_000
EVENTS_A_MS = 10
DISORDER_MS = 500

IN_FLIGHT = 100
"""Auctions and persons of whom the newest events may speak; one of them is hot."""
FIRST_ID = 1_000
SEED = 7

FIRST_NAMES = ("Ada", "Alan", "Barbara", "Donald", "Edsger", "Grace", "John", "Leslie", "Tony")
LAST_NAMES = ("Backus", "Dijkstra", "Hoare", "Hopper", "Knuth", "Lamport", "Liskov", "Turing")
CITIES = ("Boise", "Cheyenne", "Phoenix", "Portland", "Redmond", "San Francisco", "Seattle")
ITEMS = ("chair", "clock", "lamp", "map", "mirror", "piano", "radio", "typewriter")
CHANNELS = ("Apple", "Baidu", "Facebook", "Google")
CATEGORIES = 5
SIDE_INPUT_KEYS = 10_000


def events(kind, numbers, seed=SEED):
    """Those of the events with these numbers (int64) that are `persons`, `auctions` or `bids`: a
    record batch.
    """
    place = numbers % CYCLE
    if kind == "persons":
        return persons(numbers[place == 0], seed)
    if kind == "auctions":
        return auctions(numbers[(place > 0) & (place < FIRST_BID)], seed)
    return bids(numbers[place >= FIRST_BID], seed)


def side_input():
    """A small table, which has a value for nine keys of ten."""
    keys = np.arange(SIDE_INPUT_KEYS)
    keys = pa.array(keys[keys % 10 != 0])
    values = pc.binary_join_element_wise("value ", keys.cast(pa.string()), "")
    return pa.table({"key": keys, "value": values})


def persons(numbers, seed):
    first, last, city = (drawn(numbers, field, seed) for field in range(3))
    names = chosen(FIRST_NAMES, first), chosen(LAST_NAMES, last)
    return pa.record_batch(
        {
            "id": FIRST_ID + numbers // CYCLE,
            "name": pc.binary_join_element_wise(*names, " "),
            "city": chosen(CITIES, city),
            "date_time": times_ms(numbers, seed),
        }
    )


def auctions(numbers, seed):
    item, category, length, start, extra = (drawn(numbers, field, seed) for field in range(10, 15))
    registered = times_ms(numbers, seed)
    return pa.record_batch(
        {
            "id": FIRST_ID + auctions_until(numbers) - 1,
            "item": chosen(ITEMS, item),
            "seller": person(numbers, 20, seed),
            "category": (category % CATEGORIES).astype(np.int64),
            "initial_bid": price(start),
            "reserve": price(start) + price(extra),
            "date_time": registered,
            "expires": registered + 1_000 + (length % 20_000).astype(np.int64),
        }
    )


def bids(numbers, seed):
    hot, which, amount, channel = (drawn(numbers, field, seed) for field in range(30, 34))
    newest = auctions_until(numbers) - 1
    auction = np.where(hot % 2 > 0, hottest(newest), one_of_the_last(newest, which))
    return pa.record_batch(
        {
            "auction": FIRST_ID + auction,
            "bidder": person(numbers, 40, seed),
            "price": price(amount),
            "channel": chosen(CHANNELS, channel),
            "date_time": times_ms(numbers, seed),
        }
    )


def person(numbers, field, seed):
    """Ids of persons who have registered before."""
    hot, which = drawn(numbers, field, seed), drawn(numbers, field + 1, seed)
    newest = numbers // CYCLE
    return FIRST_ID + np.where(hot % 4 > 0, hottest(newest), one_of_the_last(newest, which))


def auctions_until(numbers):
    """How many auctions there are up to an event, itself included."""
    here = np.minimum(numbers % CYCLE, AUCTIONS_A_CYCLE)
    return np.maximum(numbers // CYCLE * AUCTIONS_A_CYCLE + here, 1)


def hottest(newest):
    return newest // IN_FLIGHT * IN_FLIGHT


def one_of_the_last(newest, random):
    return newest - (random % np.minimum(newest + 1, IN_FLIGHT).astype(np.uint64)).astype(np.int64)


def price(random):
    """In cents, from 100 to 100 million; each power of ten is as frequent as the next."""
    return np.rint(10 ** (random % 6_000_000 / 1e6) * 100).astype(np.int64)


def times_ms(numbers, seed):
    early = (drawn(numbers, 50, seed) % DISORDER_MS).astype(np.int64)
    return FIRST_MS + DISORDER_MS + numbers // EVENTS_A_MS - early


def chosen(texts, random):
    indices = (random % len(texts)).astype(np.int64)
    return pa.array(texts).take(pa.array(indices))


def drawn(numbers, field, seed):
    """Random numbers of 64 bits: the hash splitmix64."""
    mixed = numbers.astype(np.uint64) * np.uint64(64) + np.uint64(field)
    mixed = (mixed + np.uint64(seed + 1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
