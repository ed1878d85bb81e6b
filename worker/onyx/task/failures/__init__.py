"""What goes wrong in a task: reports, restarts, and segments that end processes."""
