"""Code of users: where its modules come from, a hash of them, and the functions that jobs name."""
