"""The kinds of states that a job has and that can be asked for."""
