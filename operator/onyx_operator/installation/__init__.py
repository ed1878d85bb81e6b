"""The installation's own Secrets: drawn once, and renewed."""
