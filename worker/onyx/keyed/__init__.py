"""State by key that functions use: values, lists, maps and timers of a grouped task, as the state
log keeps them.

`store` holds the states of a task, `states` one of them, `timers` and `expiry` what is due.
`group_state` and `column_state` are what functions see of them. Nothing here blocks, looks at a
clock, or calls code of the user's.
"""
