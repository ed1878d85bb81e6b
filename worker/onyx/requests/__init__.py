"""Requests of clients to running jobs: what is asked, and what is answered."""
