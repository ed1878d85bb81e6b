"""State on the local disk of a worker: a cache of the state log, gone with its process."""
