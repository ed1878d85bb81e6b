"""The journal: stable positions for inputs whose sources have none."""
