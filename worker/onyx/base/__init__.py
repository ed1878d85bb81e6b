"""What lies below all rooms: structs, columns of ids, names in paths, environment variables, clock
and randomness, imports on demand."""
