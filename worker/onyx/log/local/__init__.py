"""The log of one machine: a file that one process holds and serves over a local socket."""
