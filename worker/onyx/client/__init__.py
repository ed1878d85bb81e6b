"""A client of a cluster: jobs, their statuses and the states of their windows."""
