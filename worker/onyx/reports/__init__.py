"""What is said of a job beside the log: why it does not advance, deaths of workers, code that
differs, and segments that did not go on. Each is a value that workers write and others read."""
