"""Takes orders, each key once: `python shop.py 8089`. They go to `taken.jsonl`."""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from threading import Lock

taken: set[str] = set()
numbers = count(1)
lock = Lock()


class Shop(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with lock:
            number = next(numbers)
            if number % 3 == 1:
                return self.answer(503, "busy", {"Retry-After": "0"})
            if "customer" not in order:
                return self.answer(422, "an order needs a customer")
            self.take(self.headers["Idempotency-Key"], order)
            if number % 4 == 2:
                self.close_connection = True  # the order is taken, and the answer is lost
                return None
        return self.answer(200, "thank you")

    def take(self, key, order):
        if key not in taken:
            taken.add(key)
            with open("taken.jsonl", "a") as file:
                file.write(json.dumps(order) + "\n")

    def answer(self, status, text, headers=()):
        self.send_response(status)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())


if __name__ == "__main__":
    ThreadingHTTPServer(("localhost", int(sys.argv[1])), Shop).serve_forever()
