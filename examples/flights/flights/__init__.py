"""The code of the flights job. Start workers with `--modules flights`."""
