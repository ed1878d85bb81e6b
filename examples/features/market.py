"""Functions of the jobs beside: orders of a shop."""

import json
from collections import Counter

import pyarrow.compute as pc

import onyx
from onyx.plugin import LiveSource, Portion

SOLD = ("tea", "cake")
_asked = []


def mark(word, order):
    return {"to": word, **order}


# conditions.yaml


def sold(order):
    if order["item"] not in SOLD:
        raise LookupError(f"{order['item']} is not sold")
    return order


def is_unknown(event, order, error, all_new):
    return isinstance(error, LookupError)


def explain(event, order, error):
    return {"id": order["id"], "why": str(error)}


def is_of(event, old, order, all_new, who):
    return order["customer"] == who


# lifecycles.yaml


def ask(order):
    if not _asked:
        _asked.append(order)
        raise ConnectionError("the server was away")
    return {"id": order["id"], "answer": order["total"] * 2}


def server():
    """The hooks: what a hook returns is merged into the event, for the next ones."""

    def opened(event, lifecycle):
        return {"address": lifecycle.options["address"], "batches": []}

    def counted(event, lifecycle):
        event["batches"].append(len(event["batch"]))

    def closed(event, lifecycle):
        print(f'{{"server": "{event["address"]}", "orders": {sum(event["batches"])}}}', flush=True)

    def failed(event, lifecycle, phase, error):
        return "restart" if isinstance(error, ConnectionError) else "kill"

    return {
        "before_task_start": opened,
        "after_batch": counted,
        "after_task_stop": closed,
        "handle_exception": failed,
    }


# groups.yaml


def size(order):
    return "large" if order["total"] >= 20 else "small"


def customer(event, window, trigger, state_event, items):
    return {"customer": state_event["group_key"], "items": sorted(items)}


# triggers.yaml, percentile.yaml


def is_cake(trigger, state_event):
    segment = state_event["segment"]
    return segment is not None and segment["item"] == trigger.options["item"]


def cheapest(event, window, trigger, state_event, total):
    return {"item": state_event["group_key"], "from": state_event["lower_bound"], "cheapest": total}


def so_far(event, window, trigger, state_event, total):
    return {"item": state_event["group_key"], "from": state_event["lower_bound"], "so far": total}


def every_other():
    """A trigger of one's own, with a state for each group: fires with segments 2, 4, 6, ..."""
    return {
        "init_state": lambda trigger: 0,
        "next_state": lambda trigger, count, event: count + (event["event_type"] == "new-segment"),
        "trigger_fire": lambda trigger, count, event: (
            event["event_type"] == "new-segment" and count % 2 == 0
        ),
    }


def note(event, window, trigger, state_event, orders):
    """Writes to a file, a table, ...: to where a second time does no harm."""


def cart(event, window, trigger, state_event, orders):
    return {"item": state_event["group_key"], "cart": sorted(each["id"] for each in orders)}


# tables.yaml


def pack(boxes, order):
    return {"id": order["id"], "about": order["about"], "box": boxes[size(order)]["box"]}


# shares.yaml, together.yaml, limits.yaml


def sold_or_not(order):
    return {"id": order["id"], "sold": order["item"] in SOLD}


def prices(orders):
    return [{"id": order["id"], "total": order["total"]} for order in orders]


def total_of_columns(batch):
    return batch.append_column("cents", pc.multiply(batch["total"], 100))


def collatz(segment):
    at = segment["at"]
    return {**segment, "at": 3 * at + 1 if at % 2 else at // 2, "steps": segment["steps"] + 1}


# returned.yaml


class Till(LiveSource):
    """A queue of three orders in memory."""

    def __init__(self):
        self.waiting = [
            {"id": 1, "item": "tea"},
            {"id": 2, "item": "soap"},
            {"id": 3, "item": "cake"},
        ]
        self.given = Counter()
        self.open = 0

    def receive(self, wait_s):
        orders, self.waiting = self.waiting, []
        self.given.update(order["id"] for order in orders)
        self.open += len(orders)
        return (
            Portion(
                orders,
                handles=orders,
                ids=[str(order["id"]) for order in orders],
                deliveries=[self.given[order["id"]] for order in orders],
            )
            if orders
            else None
        )

    def ack(self, orders):
        self.open -= len(orders)

    def fail(self, orders, after_s):
        self.open -= len(orders)
        self.waiting += orders

    def term(self, orders, reasons):
        self.open -= len(orders)
        for order, reason in zip(orders, reasons, strict=True):
            print(json.dumps({"refused": order["id"], "because": reason}), flush=True)

    def exhausted(self):
        return not self.waiting and not self.open

    def close(self):
        pass


def till(context, partition, cursor):
    return Till()


def sell(order):
    if order["item"] == "cake" and order not in _asked:
        _asked.append(order)
        raise onyx.Retry("it is in the oven")
    return sold(order)
