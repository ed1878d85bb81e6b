"""The processor of processors.yaml."""

from onyx.processors import Processor, traverse


class Boxes(Processor):
    """Boxes of some orders of a customer."""

    def __init__(self, size):
        self.size = size
        self.waiting = {}
        self.left = None
        """What is being offered, until all of it was taken."""

    def process_item(self, ordinal, order):
        customer = order.get("customer")
        orders = [*self.waiting.get(customer, ()), order["id"]]
        if len(orders) == self.size:
            if not self.try_emit({"customer": customer, "box": orders}):
                return False
            orders = []
        self.waiting[customer] = orders
        return True

    def complete(self):
        if self.left is None:
            self.left = traverse(
                {"customer": customer, "box": orders}
                for customer, orders in self.waiting.items()
                if orders
            )
        return self.emit_from(self.left)

    def save_to_snapshot(self):
        if self.left is None:
            self.left = traverse(list(self.waiting.items()))
        if not self.save_from(self.left):
            return False
        self.left = None
        return True

    def restore_from_snapshot(self, inbox):
        self.waiting.update(inbox.drain())
