"""The tasks of a group: what runs them, what they ask of their process, what it says for them."""
