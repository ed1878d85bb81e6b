"""Inputs whose sources have no stable positions: what they give is read from a journal."""
