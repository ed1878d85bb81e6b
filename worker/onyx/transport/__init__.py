"""Streams between peer groups: gRPC, bounded everywhere, short-circuited inside one process.

Imported before gRPC, which reads the variable below when it is loaded. Without these two parts of
its event engine, the thread that waits for messages also reads the socket, and nobody hands bytes
from a pool of threads to it. For frames of 40 kB, 2 ms apart, both ends together then wait 14 times
a frame and not 20, and take 0.8 of the CPU. What the user has set holds.
"""

import os

EXPERIMENTS = "-event_engine_client,-event_engine_listener"
"""Experiments of gRPC, which warns of names that it does not know."""


os.environ.setdefault("GRPC_EXPERIMENTS", EXPERIMENTS)
