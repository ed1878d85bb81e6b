"""Inputs `requests` and `http`: segments that clients hand to a running job."""
