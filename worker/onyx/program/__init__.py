"""The program of one task: what the job says that it does, wherever it runs.

Functions, conditions, grouping, windows, triggers and hooks of one task, and what is said when one
of them fails. It needs a clock and what resolves the names of functions: no log, no replica and no
channels. A peer puts versions, wiring, acks and recovery around it (`task/`); a query of Spark
calls it as it is (`spark_query/`).
"""
