"""Whether a job can be submitted, or can upgrade another one: answered before anything changes."""
