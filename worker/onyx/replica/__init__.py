"""The replica value, the log commands that change it, scheduling, effects as values. All pure."""
