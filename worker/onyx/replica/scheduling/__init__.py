"""Scheduling: from a replica to allocations, pure and deterministic.

Counts per job (`job_schedulers`) and per task (`task_schedulers`) are arithmetic over the demands
of the jobs (`demand`); who sits where is an assignment problem (`placement`); `allocation` puts
them together. Runs once a process, and only after entries that change members or jobs.
"""
