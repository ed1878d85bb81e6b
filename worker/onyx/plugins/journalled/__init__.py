"""Inputs whose sources have no stable positions: what they give is read from a journal.

    partitions   all of one peer: their journals are taken over, and what has been passed is deleted
    partition    one of them: a thread takes what its source, the *feed*, gives into the journal
    reader       gives that to the task, and tells the feed what is processed

Feeds are in `plugins.requests`, `plugins.sources` and `plugins.job`.
"""
