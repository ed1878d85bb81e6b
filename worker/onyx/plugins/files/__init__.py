"""Plugin `files`: files and objects as input, and as output in parts (see `plugins.parts`)."""
