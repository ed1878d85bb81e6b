"""Tasks: a table of phases and one `step()`, over the parts of a task.

The way of a segment: `source` reads it, or `channels` bring it; `phases` read, apply, route and
send the batch that it is in; `state` keeps what it changes, and `stateful` lets that fire and
become durable, or `sink` writes it; `acking` accounts for it. A new allocation version begins with
`recovery`. What goes wrong is decided in `machine`, and what is different under
at-most-once is in `delivery`.
"""
