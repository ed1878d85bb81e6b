"""Input `requests`: segments that clients hand to a running job."""
