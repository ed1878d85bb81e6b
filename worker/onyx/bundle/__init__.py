"""A failure as a file: what a cluster says of a job, and what is done with it at home."""
