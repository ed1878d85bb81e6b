"""Backups: a consistent point of a cluster in a folder or bucket, and a cluster begun from one."""
