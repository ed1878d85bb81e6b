"""What a task with state does besides batches: it takes over (`recover`); it fires, becomes durable
and ends (`upkeep`). What it keeps meanwhile is in `task.state`; how that is read again in
`task.recovery.state`, of whose files `onyx.state` knows.
"""
