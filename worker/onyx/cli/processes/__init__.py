"""Worker processes under a supervisor, and how they end."""
