"""What happens to a batch between its task and the next: functions, flow conditions, routing."""
