"""What an input gives: as segments of either form, with their event times, and bad records."""
