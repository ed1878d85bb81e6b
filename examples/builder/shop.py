"""Orders of a shop: the large ones apart, the others summed by customer; the job is here too."""

from onyx.builder import Job, files, whole

PRICES = {"tea": 3, "cake": 5}


def price(fee, order):
    return {**order, "total": PRICES[order["item"]] * order["count"] + fee}


def row(event, window, trigger, state_event, total):
    return {"customer": state_event["group_key"], "total": total}


priced = Job("orders", guarantee="exactly-once").read(files("orders.jsonl")).map(price, fee=1)

job = (
    priced.when((">", "total", 10))
    .write(files("large"), name="large")
    .when(("<=", "total", 10))
    .group_by("customer")
    .window(whole(), ("sum", "total"), id="totals")
    .trigger("segment", threshold="1000 elements", refinement="accumulating", emit=row)
    .write(files("totals"))
)

if __name__ == "__main__":
    job.run()
