"""The phases of a task that works on batches, in the order of a job's life: `start`, `wire`, then
for each batch `read`, `apply`, `send` and `finish`. `kinds.RUN` has them all."""
