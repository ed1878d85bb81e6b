"""Written by `python -m onyx.builder.generate`."""
