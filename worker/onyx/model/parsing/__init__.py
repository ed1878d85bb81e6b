"""From the text of a manifest to a frozen value, or to every problem in it at once."""
