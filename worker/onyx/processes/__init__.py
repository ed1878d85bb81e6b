"""Worker processes under a supervisor: how they start, and how they end.

Below the command line and the kit for tests, which both start workers.
"""
