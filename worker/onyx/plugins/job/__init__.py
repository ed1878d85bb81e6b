"""Input `job`: follows what another job of the cluster writes."""
