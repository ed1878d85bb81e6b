"""What a peer takes over in a new allocation version: partitions of an input, parts of an output,
state logs, and what the job before an upgrade has left. All before it is ready, but that inputs
open their partitions when all peers are."""
