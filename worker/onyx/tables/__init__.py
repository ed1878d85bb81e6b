"""Tables of jobs: read to their end by input plugins, and kept once a process."""
