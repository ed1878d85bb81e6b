"""The queries on dicts: what `batchFormat: dicts`, the default, calls."""

# q1: prices in euros


def in_euros(bid):
    return {**bid, "price": bid["price"] * 908 // 1000}


# q2: bids on a few auctions


def few_auctions(bid):
    return {"auction": bid["auction"], "price": bid["price"]} if bid["auction"] % 123 == 0 else None


# q3: who sells in three cities what category

CITIES_NEAR = {"Boise", "Portland", "San Francisco"}


def of_category(auction):
    if auction["category"] != 3:
        return None
    return {
        "auction": auction["id"],
        "seller": auction["seller"],
        "date_time": auction["date_time"],
    }


def near(person):
    if person["city"] not in CITIES_NEAR:
        return None
    return {
        "id": person["id"],
        "name": person["name"],
        "city": person["city"],
        "registered": person["date_time"],
    }


# q5: which auction had the most bids in ten seconds


def bids_of(event, window, trigger, state_event, bids):
    """How many bids an auction had in one extent of the window."""
    until = state_event["upper_bound"]
    return {"auction": state_event["group_key"], "bids": bids, "until": until}


def most_bids():
    """Aggregation: the auctions with the most bids, all of them if several have as many."""
    return {
        "init": lambda window: {"bids": 0, "auctions": []},
        "create_state_update": lambda window, most, count: [count["auction"], count["bids"]],
        "apply_state_update": add_count,
    }


def add_count(window, most, update):
    auction, bids = update
    if bids < most["bids"]:
        return most
    others = most["auctions"] if bids == most["bids"] else []
    return {"bids": bids, "auctions": [*others, auction]}


def hot_items(event, window, trigger, state_event, most):
    until = state_event["upper_bound"]
    return [{"until": until, "auction": each, "bids": most["bids"]} for each in most["auctions"]]


# q7: the highest bid of ten seconds


def highest():
    """Aggregation: the bids with the highest price, all of them if several have the same."""
    return {
        "init": lambda window: [],
        "create_state_update": lambda window, bids, bid: bid,
        "apply_state_update": add_bid,
    }


def add_bid(window, bids, bid):
    if not bids or bid["price"] > bids[0]["price"]:
        return [bid]
    return [*bids, bid] if bid["price"] == bids[0]["price"] else bids


def highest_bids(event, window, trigger, state_event, bids):
    return [{**bid, "until": state_event["upper_bound"]} for bid in bids]


# q8: who registered and opened an auction in the same ten seconds


def registers(person):
    time = person["date_time"]
    return {"person": person["id"], "event": "registers", "name": person["name"], "date_time": time}


def sells(auction):
    time = auction["date_time"]
    return {"person": auction["seller"], "event": "sells", "name": None, "date_time": time}


def new_sellers(event, window, trigger, state_event, by_event):
    """The join: both kinds of events must be there."""
    if "registers" not in by_event or "sells" not in by_event:
        return None
    return {
        "person": state_event["group_key"],
        "name": by_event["registers"][0]["name"],
        "from": state_event["lower_bound"],
    }


# q4 and q6: averages of winning bids, of a category, and of the last ten of a seller


def sold(event, window, trigger, state_event, price):
    return {**state_event["group_key"], "price": price}


def average_price(event, window, trigger, state_event, prices):
    return {"category": state_event["group_key"], "price": prices["sum"] // prices["n"]}


def last_ten():
    """Aggregation: when the ten last auctions closed, which these are, and their prices."""
    return {
        "init": lambda window: [],
        "create_state_update": lambda window, last, auction: closed(auction),
        "apply_state_update": lambda window, last, auction: sorted([*last, auction])[-10:],
    }


def closed(auction):
    return [auction["expires"], auction["id"], auction["price"]]


def average_of_ten(event, window, trigger, state_event, last):
    prices = [price for _, _, price in last]
    return {"seller": state_event["group_key"], "price": sum(prices) // len(prices)}


# q9: the winning bid of each auction

OF_A_BID = ("bid_price", "bid_bidder", "bid_date_time")


def in_time(pair):
    return pair if pair["bid_date_time"] <= pair["expires"] else None


def winning():
    """Aggregation: the highest bid; of several the first one, and of these that of the lowest
    bidder."""
    return {
        "init": lambda window: None,
        "create_state_update": lambda window, best, pair: [pair[key] for key in OF_A_BID],
        "apply_state_update": better,
    }


def better(window, best, bid):
    (price, bidder, time), none = bid, best is None
    return bid if none or (-price, time, bidder) < (-best[0], best[2], best[1]) else best


def winning_bid(event, window, trigger, state_event, best):
    price, bidder, time = best
    auction = state_event["group_key"]
    return {"auction": auction, "price": price, "bidder": bidder, "date_time": time}


# q13: bids with what a side input has


def with_key(bid):
    return {**bid, "key": bid["auction"] % 10_000}
