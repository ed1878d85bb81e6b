"""What an order costs."""

PRICES = {"tea": 3.5, "coffee": 4.25}


def price(order):
    return {**order, "price": PRICES[order["item"]] * order["count"]}
