"""Output `http`: segments to an endpoint. The input `http` is in `plugins/requests`."""
