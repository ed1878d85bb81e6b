"""HTTP: segments to an endpoint."""
