"""What a peer takes over in a new allocation version: partitions of an input, the state of a task,
parts of an output, and what the job before an upgrade has left. All before it is ready, but that
inputs open their partitions when all peers are. Which chunks of which state logs count is for
`onyx.state.recovery` to find; `state_log` has it do that in the background."""
