"""What a group looks at beside its events, about once a second."""
