"""The daemon of Python workers that a lent JVM starts: another process forks it, `python_workers`.

Spark imports it by its name, from a folder that is on the path for it alone.
"""

import json
import os
import socket
import sys

if __name__ == "__main__":
    workers = socket.socket(socket.AF_UNIX)
    workers.connect(os.environ["ONYX_TEST_PYTHON_WORKERS"])
    socket.send_fds(workers, [b"x"], [0, 1, 2])
    wanted = {"folder": os.getcwd(), "environment": dict(os.environ), "arguments": sys.argv}
    workers.sendall(json.dumps(wanted).encode() + b"\n")
    for stream in (0, 1):
        os.close(stream)
    workers.recv(1)  # nothing comes before its end
