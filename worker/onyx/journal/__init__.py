"""The journal: stable positions for inputs whose sources have none.

    journal         of one partition, by its owner: taken over, appended to, read, collected
    logs            its files: their names, chunks and summaries as bytes
    depot           what is kept of what is processed
    view            for those who read it and do not own it
    held_requests   requests of a write that are not in it yet, until their batch is committed

Who appends to it, and reads it as an input, is in `plugins.journalled`.
"""
