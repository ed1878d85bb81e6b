"""Inputs of sources that give what they have once and want to hear when that is safe: queues."""
