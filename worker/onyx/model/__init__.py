"""The information model: what a job may say, parsing it with all errors, analysing its workflow."""
