"""The wire protocol: generated code and nothing else."""
