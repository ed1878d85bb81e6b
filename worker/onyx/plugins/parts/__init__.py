"""Parts: output files that are staged, then published whole. Used by `files` and `spark`."""
