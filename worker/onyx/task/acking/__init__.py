"""Acks on their way to the ackers, and completions on their way to the inputs."""
